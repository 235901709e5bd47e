"""Handlers that answer too often or too rarely: rows are never shifted, and the reason is plain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import HeadraceError, StageError, TooManyFailuresError
from headrace.model.handler import ModelHandler
from tests.field.running import rows_in

TEXTS = ["a", "b", "c", "d", "e", "TWICE", "g", "h", "SKIP", "j", "k", "l", "m"]
ITEMS = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
TIMES = {"TWICE": 2, "SKIP": 0}


class Miscount(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return self.form([row["text"].upper() for row in batch for _ in range(TIMES.get(row["text"], 1))])

    form: Callable[[list[str]], Any] = staticmethod(list)


class Answering(Miscount):
    def __init__(self, answer: Callable[[list[dict[str, Any]]], Any]):
        self.answer = answer

    def run_inference(self, batch, model):
        return self.answer(batch)


def check(out: str = "out") -> None:
    """Check that the sound rows come out with their own letters, and that the others are dead letters with the reason."""
    assert [(row["id"], row["prediction"]) for row in rows_in(out)] == [
        (i, text.upper()) for i, text in enumerate(TEXTS) if text not in TIMES
    ]
    letters = rows_in(f"{out}/_dead_letters")
    assert [letter["row"] for letter in letters] == [ITEMS[5], ITEMS[8]]
    assert {letter["error_type"] for letter in letters} == {"AnswerError"}
    for letter, times in zip(letters, ("2 times", "0 times"), strict=True):
        assert f"handler Miscount answered {times} for 1 row; answers are paired by position" in letter["message"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", ["json", "parquet", "csv"])
def test_no_row_gets_the_answer_of_another(kind: str, size: int) -> None:
    ds = hr.from_items(ITEMS).run_inference(Miscount(), min_batch_size=size, max_batch_size=size)
    result = getattr(ds, f"write_{kind}")("out").run(on_error="dead_letter")
    check()
    assert str(result.report().balance()) == "read 13 = written 11 + failed 2 + filtered 0"


FORMS: dict[str, Callable[[list[str]], Any]] = {
    "tuple": tuple,
    "generator": iter,
    "array": np.array,
    "Arrow array": lambda answers: pa.array(answers, pa.string()),
    "series": lambda answers: pd.Series(answers, dtype="str"),
    "column of a dict": lambda answers: {"letter": answers},
    "column of a frame": lambda answers: pd.DataFrame({"letter": answers}),
    "results": lambda answers: [hr.PredictionResult(None, answer) for answer in answers],
}


@pytest.mark.parametrize(
    ("form", "isolation"), [*((form, "thread") for form in FORMS), ("column of a frame", "process")]
)
def test_answers_are_counted_in_whatever_form(form: str, isolation: str) -> None:
    handler = Miscount()
    handler.form = FORMS[form]
    output = {"letter": "prediction"} if form.startswith("column") else "prediction"
    ds = hr.from_items(ITEMS).run_inference(handler, batch_size=4, isolation=isolation, output=output)
    ds.write_json("out").run(on_error="dead_letter")
    assert [(row["id"], row["prediction"]) for row in rows_in()] == [
        (i, text.upper()) for i, text in enumerate(TEXTS) if text not in TIMES
    ]
    assert [letter["row"] for letter in rows_in("out/_dead_letters")] == [ITEMS[5], ITEMS[8]]


@pytest.mark.parametrize("num_cpus", [1, None])
def test_rows_of_files_are_named_with_file_and_row(num_cpus: int | None) -> None:
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ITEMS))
    ds = hr.read_json("in.jsonl").run_inference(Miscount(), batch_size=4, concurrency=2)
    ds.write_json("out").run(on_error="dead_letter", num_cpus=num_cpus)
    check()
    assert [(d["file"], d["position"]) for d in rows_in("out/_dead_letters")] == [("in.jsonl", 5), ("in.jsonl", 8)]


def test_without_dead_letters_the_job_fails_with_the_counts_and_the_handler() -> None:
    ds = hr.from_items(ITEMS).run_inference(Miscount(), min_batch_size=4, max_batch_size=4)
    with pytest.raises(StageError, match=r"row 5 .*AnswerError: handler Miscount answered 2 times for 1 row"):
        ds.write_json("out").run()


def test_nulls_stand_for_wrong_answers_where_they_are_asked_for() -> None:
    ds = hr.from_items(ITEMS).run_inference(Miscount(), batch_size=4)
    ds.write_json("out").run(on_error="null")
    assert [row["prediction"] for row in rows_in()] == [None if t in TIMES else t.upper() for t in TEXTS]


def test_a_count_that_is_right_by_chance_is_documented_and_a_handler_can_fail_one_row() -> None:
    """No count can show two wrong rows that make up for each other."""
    both = [{"id": i, "text": text} for i, text in enumerate(["SKIP", "x", "TWICE", "y"])]
    documented = f"{ModelHandler.__doc__} {ModelHandler.run_inference.__doc__}"
    assert "position" in documented
    assert "RowError" in documented

    def careful(batch: list[dict[str, Any]]) -> list[Any]:
        return [
            row["text"].upper() if row["text"] not in TIMES else hr.RowError(f"no single answer to {row['text']}")
            for row in batch
        ]

    ds = hr.from_items(both).run_inference(Answering(careful), min_batch_size=4, max_batch_size=4)
    ds.write_json("out").run(on_error="dead_letter")
    assert [(row["id"], row["prediction"]) for row in rows_in()] == [(1, "X"), (3, "Y")]
    letters = rows_in("out/_dead_letters")
    assert [(d["row"]["id"], d["error_type"], d["message"]) for d in letters] == [
        (0, "RowError", "no single answer to SKIP"),
        (2, "RowError", "no single answer to TWICE"),
    ]


NOTHING = {
    "None": None,
    "a list": [],
    "a tuple": (),
    "a dict": {},
    "an array": np.array([]),
    "a matrix": np.zeros((0, 4)),
    "an Arrow array": pa.array([], pa.int64()),
    "a series": pd.Series([], dtype="float64"),
    "a frame": pd.DataFrame(),
    "an empty column": {"x": []},
    "None under a key": {"x": None},
}


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("size", [1, 4])
def test_no_answers_at_all_are_the_same_fault_of_the_handler(nothing: str, size: int) -> None:
    ds = hr.from_items(ITEMS[:4]).run_inference(Answering(lambda batch: NOTHING[nothing]), batch_size=size)
    with pytest.raises(TooManyFailuresError, match="handler Answering answered"):
        ds.write_json("out").run(on_error="dead_letter")
    assert [d["row"] for d in rows_in("out/_dead_letters")] == ITEMS[:4]
    assert {d["error_type"] for d in rows_in("out/_dead_letters")} == {"AnswerError"}
    with pytest.raises(StageError, match="handler Answering answered"):
        ds.write_json("again").run()


USELESS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "a set": lambda batch: {row["text"] for row in batch},
    "several arrays as a tuple": lambda batch: (np.zeros(len(batch)), np.ones(len(batch))),
    "several arrays as a tuple under a key": lambda batch: {"x": (np.zeros((len(batch), 2)), np.ones((len(batch), 2)))},
    "always two": lambda batch: ["x", "y"],
    "always three": lambda batch: ["x", "y", "z"],
    "a dict of different lengths": lambda batch: {"a": [1] * len(batch), "b": [1] * (len(batch) + 1)},
    "one answer for all": lambda batch: [sum(row["id"] for row in batch)],
    "one value for all": lambda batch: sum(row["id"] for row in batch),
    "one text for all": lambda batch: "".join(row["text"] for row in batch),
    "the whole batch more": lambda batch: [row["text"] for row in batch] * 2,
}


@pytest.mark.parametrize("useless", USELESS)
@pytest.mark.parametrize("rows", [4, 5, 12])
def test_answers_that_are_not_one_a_row_are_never_paired(useless: str, rows: int) -> None:
    items = [{"id": i, "text": f"t{i}"} for i in range(rows)]
    ds = hr.from_items(items).run_inference(Answering(USELESS[useless]), batch_size=rows)
    with pytest.raises(HeadraceError) as caught:
        ds.write_json("out").run(on_error="dead_letter")
    assert "bug in Headrace" not in str(caught.value)
    assert "handler Answering answered" in str(caught.value)
    assert not list(Path("out").glob("part-*"))


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_last_batch_of_one_row_is_not_answered_by_a_sum(isolation: Any) -> None:
    ds = hr.from_items(ITEMS).run_inference(
        Answering(lambda batch: [sum(row["id"] for row in batch)]), batch_size=4, isolation=isolation
    )
    with pytest.raises(TooManyFailuresError, match="does not answer row by row"):
        ds.write_json("out").run(on_error="dead_letter")
    assert not list(Path("out").glob("part-*"))


def test_a_key_that_some_answers_lack_fails_those_rows() -> None:
    ds = hr.from_items(ITEMS[:5]).run_inference(
        Answering(lambda batch: [{"letter": row["text"]} if row["id"] != 2 else {"lettre": "c"} for row in batch]),
        batch_size=5,
        output={"letter": "prediction"},
    )
    ds.write_json("out").run(on_error="dead_letter")
    assert [row["prediction"] for row in rows_in()] == ["a", "b", "d", "e"]
    (letter,) = rows_in("out/_dead_letters")
    assert "without key 'letter'" in letter["message"]
