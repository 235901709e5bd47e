"""Rows of like length in one batch: what a model sees, and that nobody behind it notices."""

import json

import numpy as np
import pytest

import headrace as hr
from headrace.errors import HeadraceError, PlanError

LENGTHS = np.clip(np.random.default_rng(1).lognormal(3.0, 0.8, 2_000), 1, 300).astype(int).tolist()
ROWS = [{"id": i, "text": "x" * length} for i, length in enumerate(LENGTHS)]


class Padded(hr.ModelHandler):
    """Answers with the length of the text; notes the lengths of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        self.batches.append([len(text) for text in batch])
        return [hr.RowError("a hundred") if len(text) == 100 else len(text) for text in batch]

    @property
    def padding(self) -> float:
        return 1 - sum(sum(batch) for batch in self.batches) / sum(len(batch) * max(batch) for batch in self.batches)

    def __headrace_fingerprint__(self):
        return "padded"


class Weighing(hr.ModelHandler):
    """Answers with the weight of the batch."""

    def load_model(self):
        return None

    def weigh(self, batch):
        return np.array([len(text) for text in batch])

    def run_inference(self, batch, model):
        return [int(len(batch) * self.weigh(batch).max())] * len(batch)


def written(folder) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("length_fn", ["text", len, "size"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_output_keeps_its_order_and_padding_is_small(tmp_path, length_fn, concurrency) -> None:
    handler = Padded()
    rows = [{**row, "size": len(row["text"])} for row in ROWS]
    ds = hr.from_items(rows).run_inference(
        handler, inputs="text", length_fn=length_fn, max_batch_weight=4_000, concurrency=concurrency
    )
    result = ds.drop("model_id").write_json(tmp_path / "out").run(on_error="dead_letter")
    expected = [{**row, "prediction": row["size"]} for row in rows if row["size"] != 100]
    assert written(tmp_path / "out") == expected
    letters = written(tmp_path / "out" / "_dead_letters")
    assert sorted(letter["row"]["id"] for letter in letters) == [row["id"] for row in rows if row["size"] == 100]
    assert all(len(batch) * max(batch) <= 4_000 for batch in handler.batches)
    assert handler.padding < 0.25, (
        "a model that costs nothing may as well work on padding; more than that is not sorted"
    )
    (stage,) = [stage for stage in result.statistics.stages if stage.model is not None]
    assert stage.model.padding == pytest.approx(handler.padding)
    assert stage.model.mean_batch_weight == pytest.approx(
        np.mean([len(batch) * max(batch) for batch in handler.batches])
    )


def test_in_order_of_arrival_padding_is_large() -> None:
    handler = Padded()
    hr.from_items(ROWS).run_inference(handler, inputs="text", batch_size=32, on_error="null").count()
    assert handler.padding > 0.4


def test_failed_rows_are_nulled_in_their_place() -> None:
    ds = hr.from_items(ROWS).run_inference(Padded(), inputs="text", length_fn="text", on_error="null")
    got = [row["prediction"] for row in ds.iter_rows()]
    assert got == [None if length == 100 else length for length in LENGTHS]


def test_the_first_failure_ends_the_run_and_is_placed(tmp_path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*ROWS[:50], {"text": "x" * 100}]))
    ds = hr.read_json(str(tmp_path / "in.jsonl")).run_inference(Padded(), inputs="text", length_fn="text")
    with pytest.raises(HeadraceError, match=r"failed on row \d+ of .*in.jsonl \(RowError: a hundred"):
        ds.count()


def test_rows_of_many_blocks_and_children_of_rows_come_back_to_their_place(tmp_path) -> None:
    for number in range(8):
        lines = [json.dumps(row) + "\n" for row in ROWS[number * 20 : (number + 1) * 20]]
        (tmp_path / f"{number}.jsonl").write_text("".join(lines))
    handler = Padded()
    ds = hr.read_json(str(tmp_path / "*.jsonl")).flat_map(
        lambda row: [{"id": row["id"], "text": row["text"][:half]} for half in (len(row["text"]) // 2, None)]
    )
    ds = ds.run_inference(handler, inputs="text", length_fn="text", on_error="null")
    got = [(row["id"], row["prediction"]) for row in ds.iter_rows()]
    halves = [(row["id"], size) for row in ROWS[:160] for size in (len(row["text"]) // 2, len(row["text"]))]
    assert got == [(i, None if size == 100 else size) for i, size in halves]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_handler_may_say_how_long_its_rows_are(isolation) -> None:
    ds = hr.from_items(ROWS).run_inference(Weighing(), inputs="text", max_batch_weight=2_000, isolation=isolation)
    rows = list(ds.iter_rows())
    assert [row["id"] for row in rows] == list(range(len(ROWS)))
    assert all(row["prediction"] <= 2_000 for row in rows)
    (model,) = [stage.model for stage in ds.stats().stages if stage.model is not None]
    assert model.padding < 0.4


def test_a_cache_and_sorting_go_together(tmp_path) -> None:
    handler = Padded()
    ds = hr.from_items(ROWS).run_inference(
        handler, inputs="text", length_fn="text", cache=hr.PredictionCache(tmp_path / "cache"), on_error="null"
    )
    assert [row["prediction"] for row in ds.iter_rows()] == [n if n != 100 else None for n in LENGTHS]
    asked = [length for batch in handler.batches for length in batch]
    assert sorted(asked) == sorted(set(LENGTHS))


def test_weights_that_add_up_bound_a_batch_in_order() -> None:
    handler = Padded()
    ds = hr.from_items(ROWS).run_inference(handler, inputs="text", weight_fn=len, max_batch_weight=500, on_error="null")
    assert ds.count() == len(ROWS)
    assert [length for batch in handler.batches for length in batch] == LENGTHS
    assert all(sum(batch) <= 500 for batch in handler.batches)


def test_what_a_function_of_lengths_fails_on_is_a_failed_row(tmp_path) -> None:
    items = [{"text": "a"}, {"text": None}, {"text": "abc"}]
    ds = hr.from_items(items).run_inference(Padded(), inputs="text", length_fn=lambda text: len(text))
    ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert [row["text"] for row in written(tmp_path / "out")] == ["a", "abc"]
    (letter,) = written(tmp_path / "out" / "_dead_letters")
    assert letter["stage"].endswith("/weigh")
    assert letter["row"] == {"text": None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_fn": len, "weight_fn": "text"}, "pass one of them"),
        ({"length_fn": 3}, "length_fn is 3; pass the name of a column, or a function"),
        ({"max_batch_weight": -1, "length_fn": len}, "max_batch_weight is -1; it is a weight, more than 0"),
        ({"sort_window_rows": 0}, "sort_window_rows is 0; it is a whole number of rows, at least 1"),
        ({"target_latency_secs": "1"}, "target_latency_secs is '1'; it is a number of seconds, more than 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message) -> None:
    with pytest.raises(PlanError, match=message):
        hr.from_items(ROWS).run_inference(Padded(), inputs="text", **options)


def test_the_same_job_may_sort_its_rows_another_way(tmp_path) -> None:
    def job(**options):
        ds = hr.from_items(ROWS[:50]).run_inference(Padded(), inputs="text", **options)
        return ds.write_json(tmp_path / "out")

    job().run(on_error="dead_letter")
    for options in ({"length_fn": "text"}, {"length_fn": len, "max_batch_weight": 100}):
        result = job(**options).run(on_error="dead_letter")
        assert result.statistics.sinks[0].rows_before == 50
