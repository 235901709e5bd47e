from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import (
    AnswerError,
    ModelLoadError,
    RowError,
    StageError,
    TooManyFailuresError,
    UnknownColumnError,
)
from headrace.model.handler import ModelHandler, PredictionResult
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec
from headrace.records.columns import from_column
from headrace.records.first_rows import HOPELESS_ROWS


class Recorder(ModelHandler[str]):
    """Answers with a function of the ids and remembers its calls."""

    def __init__(self, answer: Callable[[list[int]], Any]) -> None:
        self.answer = answer
        self.calls: list[list[int]] = []
        self.unloaded: list[str] = []

    def load_model(self) -> str:
        return "model"

    def run_inference(self, batch: list[dict[str, int]], model: str) -> Any:  # type: ignore[override]
        assert batch
        ids = [row["id"] for row in batch]
        self.calls.append(ids)
        return self.answer(ids)

    def unload(self, model: str) -> None:
        self.unloaded.append(model)


def ids(count: int, first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"id": np.arange(first, first + count)})


def picky(bad: set[int]) -> Callable[[list[int]], Any]:
    def answer(ids: list[int]) -> list[int]:
        if bad & set(ids):
            raise ValueError("prompt longer than the model takes")
        return [i * 10 for i in ids]

    return answer


def make(answer: Callable[[list[int]], Any], on_error: Any = "dead_letter", **spec: Any) -> tuple[Predictor, Recorder]:
    handler = Recorder(answer)
    predictor = Predictor(InferenceSpec(handler=handler, **spec), "score", on_error)
    predictor.open()
    return predictor, handler


def test_a_sound_batch_takes_one_call() -> None:
    predictor, handler = make(picky(set()))
    prediction = predictor.predict(ids(8))
    assert from_column(prediction.columns["prediction"]) == [i * 10 for i in range(8)]
    assert (prediction.rows, prediction.kept, prediction.errors, prediction.with_error) == (8, None, {}, 0)
    assert len(handler.calls) == 1


@pytest.mark.parametrize("bad", range(8))
def test_one_bad_row_of_eight_is_found_in_four_failing_calls_and_no_sound_part_runs_twice(bad: int) -> None:
    predictor, handler = make(picky({bad}))
    prediction = predictor.predict(ids(8))
    assert list(prediction.errors) == [bad]
    assert isinstance(prediction.errors[bad], ValueError)
    assert prediction.kept is not None
    assert prediction.kept.tolist() == [i != bad for i in range(8)]
    assert prediction.rows == 7
    assert prediction.columns["prediction"].to_pylist() == [i * 10 for i in range(8) if i != bad]
    failing = [call for call in handler.calls if bad in call]
    assert len(failing) <= 4
    assert len(handler.calls) <= 7
    answered = [i for call in handler.calls if bad not in call for i in call]
    assert sorted(answered) == [i for i in range(8) if i != bad]


@given(st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_exactly_the_bad_rows_fail(case: tuple[int, set[int]]) -> None:
    count, bad = case
    predictor, handler = make(picky(bad))
    if len(bad) == count >= HOPELESS_ROWS:
        return
    prediction = predictor.predict(ids(count))
    assert set(prediction.errors) == bad
    assert prediction.columns["prediction"].to_pylist() == [i * 10 for i in range(count) if i not in bad]
    sound = [i for call in handler.calls if not bad & set(call) for i in call]
    assert len(sound) == len(set(sound)), "a sound part was run twice"


@given(st.lists(st.sets(st.integers(0, 59)), min_size=2, max_size=5))
def test_exactly_the_bad_rows_fail_of_every_batch_whatever_the_ones_before_taught(batches: list[set[int]]) -> None:
    bad = {100 * n + row for n, rows in enumerate(batches) for row in rows}
    predictor, handler = make(picky(bad))
    predictor.predict(ids(1, 99_999))  # a success, so that there is hope
    for n in range(len(batches)):
        prediction = predictor.predict(ids(60, 100 * n))
        assert {100 * n + row for row in prediction.errors} == bad & set(range(100 * n, 100 * n + 60))
        sound = [i for i in range(100 * n, 100 * n + 60) if i not in bad]
        assert prediction.columns["prediction"].to_pylist() == [i * 10 for i in sound]
    answered = [i for call in handler.calls if not bad & set(call) for i in call]
    assert len(answered) == len(set(answered)), "a sound part was run twice"


@pytest.mark.parametrize(("one_in", "calls", "rows"), [(10_000, 0.01, 1.3), (100, 0.15, 4.0)])
def test_what_finding_scattered_bad_rows_costs(one_in: int, calls: float, rows: float) -> None:
    draw = random.Random(one_in)
    total = 60_000
    bad = {i for i in range(total) if draw.random() < 1 / one_in}
    predictor, handler = make(picky(bad))
    found = [row + first for first in range(0, total, 4_000) for row in predictor.predict(ids(4_000, first)).errors]
    assert set(found) == bad
    assert len(handler.calls) <= calls * total
    assert sum(map(len, handler.calls)) <= rows * total


def test_null_keeps_the_row_with_null_columns() -> None:
    predictor, _ = make(picky({2}), "null")
    prediction = predictor.predict(ids(4))
    assert prediction.columns["prediction"].to_pylist() == [0, 10, None, 30]
    assert (prediction.rows, prediction.kept, prediction.errors, prediction.with_error) == (4, None, {}, 1)


def test_fail_stops_at_the_first_bad_row_and_says_why() -> None:
    predictor, handler = make(picky({2, 6}), "fail")
    with pytest.raises(StageError, match="'score' failed on a row: ValueError: prompt longer than the model") as caught:
        predictor.predict(ids(8))
    assert caught.value.row == 2
    assert isinstance(caught.value.__cause__, ValueError)
    assert not any({4, 5, 6, 7} & set(call) for call in handler.calls[1:])


def test_an_answered_row_error_fails_that_row_without_another_call() -> None:
    predictor, handler = make(lambda ids: [RowError("too dark") if i == 1 else i for i in ids])
    prediction = predictor.predict(ids(4))
    assert prediction.columns["prediction"].to_pylist() == [0, 2, 3]
    assert {row: str(e) for row, e in prediction.errors.items()} == {1: "too dark"}
    assert len(handler.calls) == 1


def test_an_answered_row_error_stops_the_run_under_fail() -> None:
    predictor, _ = make(lambda ids: [RowError("too dark") if i > 1 else i for i in ids], "fail")
    with pytest.raises(StageError, match="RowError: too dark") as caught:
        predictor.predict(ids(4))
    assert caught.value.row == 2


def test_wrong_counts_are_halved_until_the_rows_to_blame_stand_alone() -> None:
    letters = ["a", "b", "c", "d", "e", "TWICE", "g", "h", "SKIP", "j", "k", "l", "m"]
    times = {"TWICE": 2, "SKIP": 0}
    predictor, _ = make(lambda ids: [letters[i].upper() for i in ids for _ in range(times.get(letters[i], 1))])
    good: list[str] = []
    errors: list[Exception] = []
    for first in range(0, 13, 4):
        prediction = predictor.predict(ids(min(4, 13 - first), first))
        good += prediction.columns["prediction"].to_pylist()
        errors += prediction.errors.values()
    assert good == list("ABCDEGHJKLM")
    assert [str(e).split(";")[0] for e in errors] == [
        "handler Recorder answered 2 times for 1 row",
        "handler Recorder answered 0 times for 1 row",
    ]


@pytest.mark.parametrize("times", [2, 3, 4])
@pytest.mark.parametrize("rows", [5, 6, 7, 8, 13])
def test_a_number_of_answers_that_does_not_depend_on_the_rows_is_never_right_by_chance(rows: int, times: int) -> None:
    predictor, _ = make(lambda ids: ["x"] * times)
    prediction = predictor.predict(ids(rows))
    assert prediction.rows == 0
    assert len(prediction.errors) == predictor.failed == rows
    assert predictor.succeeded == 0


TOGETHER: dict[str, Callable[[list[int]], Any]] = {
    "a sum in a list": lambda ids: [sum(ids)],
    "a bare sum": sum,
    "an array of one sum": lambda ids: np.sum(np.array(ids, dtype=float), keepdims=True),
    "equal answers once": lambda ids: sorted({i % 2 for i in ids}),
    "a text": lambda ids: ",".join(map(str, ids)),
}


@pytest.mark.parametrize("together", TOGETHER)
@pytest.mark.parametrize("rows", [3, 6, 7])
def test_a_handler_that_answers_rows_together_is_not_saved_by_batches_of_one(together: str, rows: int) -> None:
    predictor, _ = make(TOGETHER[together])
    prediction = predictor.predict(ids(rows))
    assert sorted(prediction.errors) == list(range(rows))
    assert (predictor.succeeded, predictor.failed) == (0, rows)
    for error in prediction.errors.values():
        assert isinstance(error, AnswerError)
        assert f"for {rows} rows" in str(error)
        assert "does not answer row by row" in str(error)


@pytest.mark.parametrize("together", TOGETHER)
def test_what_it_answers_to_a_row_alone_is_not_taken_later(together: str) -> None:
    predictor, _ = make(TOGETHER[together])
    predictor.predict(ids(6))
    (error,) = predictor.predict(ids(1, 6)).errors.values()
    assert "an answer to this row alone is not taken" in str(error)


def test_nor_is_what_it_had_answered_in_the_same_batch_before_it_was_known() -> None:
    def answer(ids: list[int]) -> list[int]:
        if 0 in ids:
            raise ValueError("poison")
        return [sum(ids)]

    predictor, _ = make(answer)
    errors = predictor.predict(ids(4)).errors
    assert isinstance(errors[0], ValueError)
    assert [type(errors[row]) for row in (1, 2, 3)] == [AnswerError] * 3
    assert (predictor.succeeded, predictor.failed) == (0, 4)


def test_under_fail_the_run_ends_with_the_numbers_of_rows_and_answers() -> None:
    predictor, _ = make(lambda ids: [sum(ids)], "fail")
    with pytest.raises(StageError, match=r"handler Recorder answered once for 2 rows.*does not answer row by row"):
        predictor.predict(ids(2))


def test_a_whim_is_asked_once_more_and_costs_no_row() -> None:
    calls: list[int] = []

    def answer(ids: list[int]) -> list[int]:
        calls.append(len(ids))
        return [i * 10 for i in ids][: -1 if len(calls) == 1 else None]

    predictor, _ = make(answer)
    prediction = predictor.predict(ids(8))
    assert prediction.columns["prediction"].to_pylist() == [i * 10 for i in range(8)]
    assert (predictor.succeeded, predictor.failed) == (8, 0)
    assert len(calls) <= 7


@pytest.mark.parametrize("spoilt", [None, [], [0], [1, 2, 3]])
@pytest.mark.parametrize("bad", range(8))
def test_one_row_that_spoils_the_answers_of_its_batch_fails_alone(bad: int, spoilt: Any) -> None:
    predictor, _ = make(lambda ids: (spoilt if len(ids) > 1 else None) if bad in ids else [i * 10 for i in ids])
    prediction = predictor.predict(ids(8))
    assert set(prediction.errors) == {bad}
    assert prediction.columns["prediction"].to_pylist() == [i * 10 for i in range(8) if i != bad]
    assert predictor.predict(ids(1, 8)).rows == 1, "answers to rows alone are still taken"


def test_a_squeezed_batch_of_one_is_known_by_the_batches_before() -> None:
    predictor, _ = make(lambda ids: np.squeeze(np.array([[i, i + 0.5] for i in ids])))
    assert predictor.predict(ids(3)).columns["prediction"].to_pylist() == [[0, 0.5], [1, 1.5], [2, 2.5]]
    assert predictor.predict(ids(1, 3)).columns["prediction"].to_pylist() == [[3, 3.5]]


@pytest.mark.parametrize("nothing", [None, []])
def test_no_answers_at_all_is_the_handlers_fault_of_each_row(nothing: Any) -> None:
    predictor, _ = make(lambda ids: nothing)
    prediction = predictor.predict(ids(4))
    assert prediction.rows == 0
    assert all(isinstance(error, AnswerError) for error in prediction.errors.values())


def test_a_model_that_fails_on_every_row_stops_early() -> None:
    predictor, handler = make(picky(set(range(10_000))))
    with pytest.raises(TooManyFailuresError, match=f"all of the first {HOPELESS_ROWS} rows failed.*prompt longer"):
        for first in range(0, 10_000, 40):
            predictor.predict(ids(40, first))
    assert max(i for call in handler.calls for i in call) < HOPELESS_ROWS + 40


def test_one_success_is_hope_enough() -> None:
    predictor, _ = make(picky(set(range(1, 400))))
    prediction = predictor.predict(ids(400))
    assert len(prediction.errors) == 399
    assert (predictor.failed, predictor.succeeded) == (399, 1)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_what_is_not_the_rows_fault_passes(stop: type[BaseException]) -> None:
    def answer(ids: list[int]) -> Any:
        raise stop

    predictor, handler = make(answer)
    with pytest.raises(stop):
        predictor.predict(ids(4))
    assert len(handler.calls) == 1


def test_an_unknown_column_is_the_plans_fault() -> None:
    predictor, handler = make(picky(set()), inputs="idd")
    with pytest.raises(UnknownColumnError, match="'score' needs column 'idd'"):
        predictor.predict(ids(4))
    assert not handler.calls


def test_parts_of_different_types_join_under_their_common_type() -> None:
    def answer(ids: list[int]) -> Any:
        if 5 in ids:
            raise ValueError
        return [i if i < 4 else i + 0.5 for i in ids]

    predictor, _ = make(answer)
    column = predictor.predict(ids(8)).columns["prediction"]
    assert column.type == pa.float64()
    assert column.to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.5, 6.5, 7.5]


def test_parts_of_quarrelling_types_join_as_one_batch_would() -> None:
    def answer(ids: list[int]) -> Any:
        if 5 in ids:
            raise ValueError
        return [i if i < 4 else str(i) for i in ids]

    predictor, _ = make(answer, "null")
    assert from_column(predictor.predict(ids(8)).columns["prediction"]) == [0, 1, 2, 3, "4", None, "6", "7"]


@pytest.mark.parametrize("on_error", ["dead_letter", "null"])
def test_tensors_survive_the_search(on_error: str) -> None:
    def answer(ids: list[int]) -> Any:
        if 2 in ids:
            raise ValueError
        return [np.full((i, 2), i, "float32") for i in ids]

    predictor, _ = make(answer, on_error)
    shapes = [None if a is None else a.shape for a in from_column(predictor.predict(ids(4)).columns["prediction"])]
    assert shapes == ([(0, 2), (1, 2), (3, 2)] if on_error == "dead_letter" else [(0, 2), (1, 2), None, (3, 2)])


@pytest.mark.parametrize("on_error", ["dead_letter", "null"])
def test_mapped_outputs_survive_the_search(on_error: str) -> None:
    def answer(ids: list[int]) -> Any:
        if 2 in ids:
            raise ValueError
        return {"a": ids, "b": [str(i) for i in ids]}

    predictor, _ = make(answer, on_error, output={"a": "x", "b": "y"})
    columns = predictor.predict(ids(4)).columns
    assert columns["x"].to_pylist() == ([0, 1, 3] if on_error == "dead_letter" else [0, 1, None, 3])
    assert columns["y"].to_pylist() == (["0", "1", "3"] if on_error == "dead_letter" else ["0", "1", None, "3"])


def test_a_batch_of_which_nothing_is_left() -> None:
    predictor, _ = make(picky({0, 1}))
    prediction = predictor.predict(ids(2))
    assert prediction.rows == 0
    assert len(prediction.columns["prediction"]) == 0


def test_model_ids_are_those_of_the_answers_or_of_the_handler() -> None:
    predictor, _ = make(lambda ids: [PredictionResult(i, i, model_id="v2" if i else None) for i in ids])
    prediction = predictor.predict(ids(3))
    assert prediction.model_ids == ["Recorder", "v2", "v2"]
    assert predictor.model_id_column(prediction).to_pylist() == ["Recorder", "v2", "v2"]
    predictor, _ = make(picky({1}))
    column = predictor.model_id_column(predictor.predict(ids(3)))
    assert column.to_pylist() == ["Recorder", "Recorder"]
    assert len(column.dictionary) == 1


class Args(ModelHandler[None]):
    def load_model(self) -> None:
        return None

    def run_inference(self, batch: Any, model: None, inference_args: Mapping[str, Any] | None = None) -> Any:
        return [str(inference_args)] * len(batch)


class KeywordArgs(ModelHandler[None]):
    def load_model(self) -> None:
        return None

    def run_inference(self, batch: Any, model: None, *, inference_args: Any = None) -> Any:  # type: ignore[override]
        return [str(inference_args)] * len(batch)


@pytest.mark.parametrize("handler", [Args(), KeywordArgs()])
def test_inference_args_reach_the_handler(handler: ModelHandler[None]) -> None:
    spec = InferenceSpec(handler=handler, inference_args={"top_k": 3})
    prediction = Predictor(spec, "score").predict(ids(1))
    assert prediction.columns["prediction"].to_pylist() == ["{'top_k': 3}"]


class Broken(Recorder):
    def load_model(self) -> str:
        raise RuntimeError("weights are torn")

    def model_files(self) -> tuple[str, ...]:
        return ("net.bin",)


def test_a_handler_that_raises_at_load() -> None:
    predictor = Predictor(InferenceSpec(handler=Broken(picky(set()))), "score")
    with pytest.raises(
        ModelLoadError, match="Broken cannot load its model from net.bin: RuntimeError: weights are torn"
    ):
        predictor.open()


def test_default_inputs_are_taken_where_the_user_names_none() -> None:
    class ById(ModelHandler[None]):
        def load_model(self) -> None:
            return None

        def run_inference(self, batch: Any, model: None) -> Any:  # type: ignore[override]
            return batch.sum(axis=1)

        def default_inputs(self) -> list[str]:
            return ["id"]

    assert Predictor(InferenceSpec(handler=ById()), "s").predict(ids(2)).columns["prediction"].to_pylist() == [0, 1]


def test_open_and_close_happen_once() -> None:
    predictor, handler = make(picky(set()))
    predictor.open()
    predictor.close()
    predictor.close()
    assert handler.unloaded == ["model"]
    assert predictor.statistics().loads == 1


def test_threads_share_one_model() -> None:
    handler = Recorder(picky({7, 23}))
    predictor = Predictor(InferenceSpec(handler=handler), "score", "dead_letter")
    results: dict[int, list[int]] = {}

    def work(first: int) -> None:
        results[first] = predictor.predict(ids(8, first)).columns["prediction"].to_pylist()

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 64, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(i for result in results.values() for i in result) == [i * 10 for i in range(64) if i not in (7, 23)]
    statistics = predictor.statistics()
    assert (statistics.loads, statistics.batches, statistics.rows) == (1, 8, 64)
    assert statistics.calls == len(handler.calls)


def test_statistics() -> None:
    predictor, _ = make(picky({1}))
    predictor.predict(ids(5))
    predictor.predict(ids(4, 10))
    statistics = predictor.statistics()
    assert statistics.handler == "Recorder"
    assert (statistics.batches, statistics.rows, statistics.mean_batch_rows) == (2, 9, 4.5)
    assert statistics.batch_rows_histogram == {4: 2}
    assert 0 < statistics.latency_p50_secs <= statistics.latency_p99_secs
