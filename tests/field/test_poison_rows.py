"""Rows that a model refuses: they alone are set aside, with what is needed to mend them."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import ModelLoadError, StageError, TooManyFailuresError
from headrace.testing import assert_balanced
from tests.field.running import rows_in

POISON = (13, 14, 39)
ITEMS = [{"id": i, "prompt": "short" if i not in POISON else "long " * 5000} for i in range(40)]


class Picky(hr.ModelHandler):
    """Refuses a batch in which a prompt is too long, and writes down which rows it was asked for."""

    def __init__(self, log: str = "calls.log"):
        self.log = log

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        with open(self.log, "a") as log:
            log.write(json.dumps([row["id"] for row in batch]) + "\n")
        for row in batch:
            if len(row["prompt"]) > 1000:
                raise ValueError("prompt longer than the model takes")
        return [row["id"] * 10 for row in batch]


class Never(Picky):
    def run_inference(self, batch, model):
        super().run_inference(batch, model)
        raise OSError("no such path: /models/voice")


def calls(log: str = "calls.log") -> list[list[int]]:
    return [json.loads(line) for line in Path(log).read_text().splitlines()]


def letters() -> list[dict[str, Any]]:
    return rows_in("out/_dead_letters")


def write_source(kind: str) -> Any:
    if kind == "items":
        return hr.from_items(ITEMS)
    lines = "".join(json.dumps(row) + "\n" for row in ITEMS)
    if kind == "json":
        Path("in.jsonl").write_text(lines)
        return hr.read_json("in.jsonl")
    if kind == "csv":
        Path("in.csv").write_text("id,prompt\n" + "".join(f"{row['id']},{row['prompt']}\n" for row in ITEMS))
        return hr.read_csv("in.csv")
    hr.from_items(ITEMS).write_parquet("in").run()
    return hr.read_parquet("in/part-*")


@pytest.mark.parametrize(
    ("source", "isolation"),
    [("items", "thread"), ("json", "thread"), ("csv", "thread"), ("parquet", "thread"), ("json", "process")],
)
def test_three_bad_rows_of_forty_are_set_aside_alone(source: str, isolation: str) -> None:
    ds = write_source(source).run_inference(Picky(), min_batch_size=8, max_batch_size=8, isolation=isolation)
    result = ds.write_json("out").run(on_error="dead_letter")

    rows = rows_in()
    assert [(row["id"], row["prediction"]) for row in rows] == [(i, i * 10) for i in range(40) if i not in POISON]

    found = letters()
    assert [letter["row"] for letter in found] == [ITEMS[i] for i in POISON]
    for letter, bad in zip(found, POISON, strict=True):
        assert letter["error_type"] == "ValueError"
        assert letter["message"] == "prompt longer than the model takes"
        assert letter["stage"] == "run_inference"
        assert letter["position"] == bad
        assert "run_inference" in letter["traceback"]

    asked = calls()
    assert len(asked) <= 40
    times = Counter(i for call in asked for i in call)
    assert max(times.values()) <= 6
    for first in range(0, 40, 8):
        if not set(range(first, first + 8)) & set(POISON):
            assert {times[i] for i in range(first, first + 8)} == {1}

    assert str(result.report().balance()) == "read 40 = written 37 + failed 3 + filtered 0"
    assert (result.rows_written, result.failed) == (37, 3)
    assert_balanced(result)


def test_rows_that_are_all_nulled_do_not_look_like_a_good_end() -> None:
    job = hr.from_items(ITEMS).run_inference(Never(), max_batch_size=8).write_json("out")
    report = job.run(on_error="null").report()
    assert report.with_error == 40
    assert "40 with nulls for failed answers" in str(report)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("size", [1, 7, None])
@pytest.mark.parametrize("num_cpus", [1, None])
def test_bad_rows_in_batches_of_any_size_and_files_of_any_kind(
    kind: str, size: int | None, num_cpus: int | None
) -> None:
    ds = hr.from_items(ITEMS).run_inference(Picky(), batch_size=size, concurrency=2)
    getattr(ds, f"write_{kind}")("out").run(on_error="dead_letter", num_cpus=num_cpus)
    assert [row["id"] for row in rows_in()] == [i for i in range(40) if i not in POISON]
    assert [letter["row"]["id"] for letter in letters()] == list(POISON)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_without_dead_letters_the_job_fails_with_the_reason_and_the_row(isolation: str) -> None:
    ds = hr.from_items(ITEMS).run_inference(Picky(), min_batch_size=8, max_batch_size=8, isolation=isolation)
    with pytest.raises(StageError, match=r"row 13 .*ValueError: prompt longer than the model takes.*dead_letter"):
        ds.write_json("out").run()


def test_with_nulls_the_bad_rows_stay_in_the_output() -> None:
    ds = hr.from_items(ITEMS).run_inference(Picky(), batch_size=8)
    result = ds.write_parquet("out").run(on_error="null")
    answers = pq.read_table("out")["prediction"].to_pylist()
    assert answers == [None if i in POISON else i * 10 for i in range(40)]
    assert result.report().with_error == 3
    assert not letters()


@pytest.mark.parametrize(
    ("rows", "policy", "isolation"),
    [
        (1, "dead_letter", "thread"),
        (40, "dead_letter", "thread"),
        (40, "dead_letter", "process"),
        (1_000, "dead_letter", "thread"),
        (1_000, "null", "thread"),
    ],
)
def test_a_handler_that_fails_on_every_row_is_no_good_end(rows: int, policy: str, isolation: str) -> None:
    items = [{"id": i, "prompt": "short"} for i in range(rows)]
    job = hr.from_items(items).run_inference(Never(), max_batch_size=8, isolation=isolation).write_json("out")
    with pytest.raises(TooManyFailuresError, match="no such path: /models/voice"):
        job.run(on_error=policy)
    assert len(calls()) < 250, "it stops early"
    with pytest.raises(TooManyFailuresError):
        job.run(on_error=policy)


def test_a_model_that_cannot_be_loaded_fails_the_job_and_no_row() -> None:
    class Missing(Picky):
        def load_model(self):
            return open("missing.bin")

    with pytest.raises(ModelLoadError, match=r"Missing cannot load its model.*missing\.bin.*check the path"):
        hr.from_items(ITEMS).run_inference(Missing()).write_json("out").run(on_error="dead_letter")
    assert not letters()


# -- other steps --------------------------------------------------------------------------------------------------------


def bad_number(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "inverse": 1 / (row["id"] - 13)}


def expand(row: dict[str, Any]) -> Iterable[dict[str, Any]]:
    yield {"id": row["id"], "part": 0}
    if row["id"] == 13:
        raise KeyError("part 1")
    yield {"id": row["id"], "part": 1}


STEPS = {
    "map": lambda ds: ds.map(bad_number),
    "filter": lambda ds: ds.filter(lambda row: 1 / (row["id"] - 13)),
    "add_column": lambda ds: ds.add_column("inverse", lambda row: 1 / (row["id"] - 13)),
    "flat_map": lambda ds: ds.flat_map(expand),
    "map_batches row by row": lambda ds: ds.map_batches(
        lambda rows: [bad_number(row) for row in rows], batch_format="rows", row_wise=True
    ),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [1, 100])
def test_a_bad_row_in_any_step_fails_alone(step: str, size: int) -> None:
    ds = STEPS[step](hr.range(40)).add_column("prompt", lambda row: "short").run_inference(Picky(), batch_size=size)
    result = ds.write_json("out").run(on_error="dead_letter")
    assert {row["id"] for row in rows_in()} == set(range(40)) - {13}
    (letter,) = letters()
    assert letter["row"] == {"id": 13}
    assert letter["error_type"] in ("ZeroDivisionError", "KeyError")
    assert letter["stage"].startswith(step.partition(" ")[0]) or letter["stage"] in ("bad_number", "expand")
    assert_balanced(result)


def test_steps_may_say_for_themselves_what_becomes_of_bad_rows() -> None:
    ds = hr.from_items(ITEMS).run_inference(Picky(), batch_size=8, on_error="dead_letter").map(lambda row: row)
    ds.write_json("out").run()
    assert len(rows_in()) == 37
    with pytest.raises(StageError):
        hr.from_items(ITEMS).run_inference(Picky(), on_error="fail").write_json("again").run(on_error="dead_letter")


def test_bad_rows_in_front_of_and_behind_a_model() -> None:
    ds = hr.from_items(ITEMS).run_inference(
        Picky(),
        batch_size=8,
        inputs=None,
        preprocess=lambda row: 1 / row["id"] and row,
        postprocess=lambda x: 1 / (x - 50),
    )
    result = ds.write_json("out").run(on_error="dead_letter")
    assert [row["id"] for row in rows_in()] == [i for i in range(40) if i not in (0, 5, *POISON)]
    stages = {letter["row"]["id"]: letter["stage"] for letter in letters()}
    assert stages == {
        0: "run_inference/preprocess",
        5: "run_inference/postprocess",
        **dict.fromkeys(POISON, "run_inference"),
    }
    assert_balanced(result)


def test_rows_with_bytes_and_arrays_can_be_read_in_the_dead_letters() -> None:
    def make(row: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        return {"id": row["id"], "prompt": "short" * 400, "raw": b"\x00\x01", "grid": np.zeros((1, 2))}

    ds = hr.range(2).union(hr.range(1).map(lambda row: {"id": 5}))
    ds = ds.map(make).filter(lambda row: True)
    with pytest.raises(TooManyFailuresError):
        ds.run_inference(Picky()).write_json("out").run(on_error="dead_letter")
    assert {letter["row"]["id"] for letter in letters()} == {0, 1, 5}
    assert letters()[0]["row"]["raw"] == {"base64": "AAE="}
    assert letters()[0]["row"]["grid"] == [[0.0, 0.0]]


def test_a_folder_of_ones_own_for_the_dead_letters() -> None:
    ds = hr.from_items(ITEMS).run_inference(Picky(), batch_size=8)
    ds.write_parquet("out").run(on_error="dead_letter", dead_letters="failed")
    assert [row["row"]["id"] for row in rows_in("failed")] == list(POISON)
    assert not Path("out/_dead_letters").exists()


def test_a_second_run_does_nothing_twice() -> None:
    asked = []
    for _ in range(2):
        ds = hr.from_items(ITEMS).run_inference(Picky(), batch_size=8)
        result = ds.write_json("out").run(on_error="dead_letter")
        asked.append(len(calls()))
    assert asked[0] == asked[1] > 0
    assert len(rows_in()) == 37
    assert len(letters()) == 3
    assert result.report().dead_letters == 3


def test_what_a_model_logs_is_not_lost_with_the_row(caplog: pytest.LogCaptureFixture) -> None:
    class Logging(Picky):
        def run_inference(self, batch, model):
            logging.getLogger("mine").warning("asked for %d", len(batch))
            return super().run_inference(batch, model)

    hr.from_items(ITEMS[:14]).run_inference(Logging(), batch_size=14).write_json("out").run(on_error="dead_letter")
    assert "asked for 14" in caplog.text
