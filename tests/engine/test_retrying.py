"""Runs whose steps and models fail now and then: asked again, counted, and told in the dead letters."""

import json
import threading

import pytest

import headrace as hr
from headrace.engine.execution import Execution
from headrace.engine.options import ExecutionOptions
from headrace.errors import StageError
from headrace.plan.graph import Plan
from headrace.plan.nodes import Collect

SOON = hr.Retry(3, backoff_secs=0)


def letters(folder):
    found = sorted((folder / "_dead_letters").glob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


class Flaky(hr.ModelHandler):
    """Fails the first calls for each batch; bad rows always."""

    def __init__(self, failures: int, bad=()) -> None:
        self.failures, self.bad = failures, bad
        self.calls: list[list[int]] = []

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        ids = [row["id"] for row in batch]
        self.calls.append(ids)
        if self.calls.count(ids) <= self.failures or set(ids) & set(self.bad):
            raise ConnectionError("busy")
        return ids


def counts(result):
    return {step.name: step for stage in result.statistics.stages for step in stage.steps}


def test_a_model_that_fails_now_and_then_loses_no_row(tmp_path) -> None:
    handler = Flaky(failures=2)
    result = hr.range(8).run_inference(handler, batch_size=4, retry=SOON).write_json(tmp_path / "out").run()
    assert (result.rows_written, result.failed) == (8, 0)
    assert [len(ids) for ids in handler.calls] == [4] * 6
    assert counts(result)["run_inference"].retried == 4
    assert "4 retries" in str(result.report())


def test_a_bad_row_is_asked_alone_as_often_as_its_batch_and_its_letter_says_so(tmp_path) -> None:
    handler = Flaky(failures=0, bad={5})
    ds = hr.range(8).run_inference(handler, batch_size=8, retry=SOON)
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert (result.rows_written, result.failed) == (7, 1)
    assert [letter["attempt"] for letter in letters(tmp_path / "out")] == [3]
    assert handler.calls.count([5]) == 3
    assert handler.calls.count(list(range(8))) == 3
    # Parts between the whole batch and the row alone are asked once.
    assert all(handler.calls.count(ids) == 1 for ids in handler.calls if 1 < len(ids) < 8)


def test_errors_that_are_not_named_are_not_asked_again(tmp_path) -> None:
    handler = Flaky(failures=1)
    with pytest.raises(StageError):
        hr.range(1).run_inference(handler, retry=hr.Retry(5, on="TimeoutError")).take(1)
    assert len(handler.calls) == 1


class Busy(hr.ModelHandler):
    """Answers errors in the place of some rows: for odd ones at first, for the bad ones always."""

    def __init__(self, bad=()) -> None:
        self.bad = bad
        self.calls: list[list[int]] = []

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        ids = [row["id"] for row in batch]
        self.calls.append(ids)
        first = len(self.calls) == 1
        return [hr.RowError("busy") if i in self.bad or (first and i % 2) else i for i in ids]


def test_rows_in_whose_place_an_error_stands_are_asked_again_alone_where_it_is_named(tmp_path) -> None:
    handler = Busy(bad={3})
    ds = hr.range(6).run_inference(handler, batch_size=6, retry=hr.Retry(2, backoff_secs=0, on=hr.RowError))
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert handler.calls == [[0, 1, 2, 3, 4, 5], [1], [3], [3], [5]]
    lines = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [(line["id"], line["prediction"]) for line in lines] == [(i, i) for i in (0, 1, 2, 4, 5)]
    assert [(letter["row"], letter["attempt"]) for letter in letters(tmp_path / "out")] == [({"id": 3}, 2)]
    assert (result.rows_written, result.failed) == (5, 1)


def test_an_error_in_the_place_of_a_row_is_its_answer_otherwise() -> None:
    handler = Busy()
    rows = hr.range(6).run_inference(handler, batch_size=6, retry=SOON, on_error="null").take(6)
    assert [row["prediction"] for row in rows] == [0, None, 2, None, 4, None]
    assert len(handler.calls) == 1


@pytest.mark.parametrize("kind", ["map", "flat_map", "filter", "map_batches", "add_column"])
def test_every_step_with_a_function_takes_it(kind, tmp_path) -> None:
    failed = set()

    def flaky(rows):
        key = str(rows)
        if key not in failed:
            failed.add(key)
            raise ConnectionError("busy")
        return [rows] if kind == "flat_map" else rows

    ds = hr.range(4)
    args = ("copy", flaky) if kind == "add_column" else (flaky,)
    ds = getattr(ds, kind)(*args, retry=SOON, isolation="thread")
    result = ds.write_json(tmp_path / "out").run()
    assert result.rows_written == 4
    (step,) = [s for name, s in counts(result).items() if name != "range"]
    assert step.retried == (1 if kind == "map_batches" else 4)


def test_a_worker_process_asks_again_too(tmp_path) -> None:
    def flaky(row):
        mark = tmp_path / str(row["id"])
        if not mark.exists():
            mark.touch()
            raise ConnectionError("busy")
        return row

    result = hr.range(3).map(flaky, retry=SOON, isolation="process").write_json(tmp_path / "out").run()
    assert result.rows_written == 3
    assert sum(step.retried for step in counts(result).values()) == 3


def test_a_stop_cuts_a_long_pause_short_and_fails_no_row() -> None:
    failing = threading.Event()

    def function(row):
        failing.set()
        raise ConnectionError("busy")

    ds = hr.range(3).filter(function, retry=hr.Retry(2, backoff_secs=3600, max_backoff_secs=3600))
    run = Execution(Plan([Collect(name="collect", upstream=ds.node)]), ExecutionOptions(on_error="dead_letter"))
    run.start()
    assert failing.wait(60)
    run.stop()
    assert run._state.wait(0)
    assert run._state.error is None
    assert [step.failed for stage in run.statistics().stages for step in stage.steps] == [0]
    run.close()


def test_a_retry_is_no_part_of_the_job(tmp_path) -> None:
    hr.range(4).map(lambda row: row).write_json(tmp_path / "out").run()
    again = hr.range(4).map(lambda row: row, retry=SOON).write_json(tmp_path / "out").run()
    assert again.rows_written == 0


def test_what_is_no_retry_is_refused() -> None:
    with pytest.raises(hr.PlanError, match="retry is 3; pass headrace.Retry"):
        hr.range(1).map(dict, retry=3)
    with pytest.raises(hr.PlanError, match="retry is 3"):
        hr.range(1).run_inference(Flaky(0), retry=3)
