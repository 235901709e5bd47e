"""Runs whose worker processes die or hang: only the rows to blame fail, and the run goes on."""

import ctypes
import json
import os
import re
import signal
import time

import pytest

import headrace as hr
from headrace.errors import StageError, WorkerCrashedError

LONG = 600


def letters(folder):
    found = sorted((folder / "_dead_letters").glob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


def written(folder):
    return [json.loads(line)["id"] for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def stage_of(result):
    return result.statistics.stages[-1]


DEATHS = {
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(LONG),
}


def step(kind: str, death: str):
    def function(rows):
        ids = rows["id"] if kind == "map_batches" else [rows["id"]]
        if 7 in ids:
            DEATHS[death]()
        return [rows] if kind == "flat_map" else rows

    return function


@pytest.mark.parametrize(
    ("kind", "death", "told", "attempt"),
    [
        ("map", "segfault", "RowCrash: .*SIGSEGV", 2),
        pytest.param("flat_map", "kill", "RowCrash: .*signal 9", 2, marks=pytest.mark.heavy),
        ("filter", "hang", "RowTimeout: took longer than timeout_secs=2", 1),
        ("map_batches", "exit", "RowCrash: .*status 3", 1),
    ],
)
def test_a_row_that_takes_its_worker_down_is_found_and_set_aside(kind, death, told, attempt, tmp_path) -> None:
    options = {"row_wise": True, "batch_size": 4} if kind == "map_batches" else {}
    timeout = {"timeout_secs": 2} if death == "hang" else {"isolation": "process"}
    ds = getattr(hr.range(12), kind)(step(kind, death), concurrency=1, name="deadly", **options, **timeout)
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert written(tmp_path / "out") == [i for i in range(12) if i != 7]
    (letter,) = letters(tmp_path / "out")
    assert (letter["stage"], letter["row"], letter["position"], letter["attempt"]) == ("deadly", {"id": 7}, 7, attempt)
    assert re.match(told, f"{letter['error_type']}: {letter['message']}", flags=re.DOTALL)
    assert stage_of(result).restarts >= 1
    assert result.report().balance().holds
    assert "started again" in str(result.report())


class Deadly(hr.ModelHandler):
    def __init__(self, death: str) -> None:
        self.death = death

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        ids = [row["id"] for row in batch]
        if 7 in ids:
            DEATHS[self.death]()
        return ids


@pytest.mark.parametrize(
    ("death", "error"), [("segfault", "RowCrash"), pytest.param("hang", "RowTimeout", marks=pytest.mark.heavy)]
)
def test_a_batch_that_takes_the_model_down_is_halved_until_the_row_stands_alone(death, error, tmp_path) -> None:
    how = {"timeout_secs": 2} if death == "hang" else {"isolation": "process"}
    ds = hr.range(12).run_inference(Deadly(death), batch_size=6, **how)
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert written(tmp_path / "out") == [i for i in range(12) if i != 7]
    assert [(letter["error_type"], letter["row"]) for letter in letters(tmp_path / "out")] == [(error, {"id": 7})]
    assert stage_of(result).model.rows >= 12


def test_under_fail_the_run_ends_with_the_row_and_its_death(tmp_path) -> None:
    ds = hr.range(12).map(step("map", "segfault"), isolation="process", concurrency=1)
    with pytest.raises(StageError, match=r"(?s)row 7 of range\(12\) \(RowCrash: .*SIGSEGV.*in string_at"):
        ds.write_json(tmp_path / "out").run()


def test_code_that_closes_the_socket_of_its_worker_is_told_so(tmp_path, capfd) -> None:
    def careless(row):
        os.closerange(3, 256)
        return row

    with pytest.raises(WorkerCrashedError, match=r"can no longer speak to this process.*os\.closerange"):
        hr.range(2).map(careless, isolation="process").write_json(tmp_path / "out").run()
    assert "Traceback" not in capfd.readouterr().err


def test_a_death_that_does_not_come_again_costs_no_row(tmp_path) -> None:
    def once(row):
        mark = tmp_path / "mark"
        if row["id"] == 5 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    result = hr.range(12).map(once, isolation="process", concurrency=1).write_json(tmp_path / "out").run()
    assert written(tmp_path / "out") == list(range(12))
    assert (result.failed, stage_of(result).restarts) == (0, 1)


def test_a_hang_that_does_not_come_again_costs_no_row_with_a_retry(tmp_path) -> None:
    def once(row):
        mark = tmp_path / "mark"
        if row["id"] == 5 and not mark.exists():
            mark.touch()
            time.sleep(LONG)
        return row

    ds = hr.range(12).map(once, timeout_secs=2, retry=hr.Retry(2, backoff_secs=0), concurrency=1)
    result = ds.write_json(tmp_path / "out").run()
    assert written(tmp_path / "out") == list(range(12))
    assert (result.failed, stage_of(result).restarts) == (0, 1)


def test_a_null_stands_for_the_answer_that_killed_the_model(tmp_path) -> None:
    ds = hr.range(9).run_inference(Deadly("exit"), batch_size=9, isolation="process")
    result = ds.write_json(tmp_path / "out").run(on_error="null")
    rows = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [row["prediction"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, None, 8]
    assert result.report().with_error == 1


def test_time_limits_are_no_part_of_the_job_and_ask_for_processes(tmp_path) -> None:
    def same(row):
        return row

    hr.range(4).map(same).write_json(tmp_path / "out").run()
    job = hr.range(4).map(same, timeout_secs=60).write_json(tmp_path / "out")
    assert "worker process" in job.explain(num_cpus=1)
    assert job.run().rows_written == 0


@pytest.mark.parametrize("wrong", [0, -1, "5", float("nan")])
def test_what_is_no_time_is_refused(wrong) -> None:
    with pytest.raises(hr.PlanError, match="timeout_secs is"):
        hr.range(1).map(dict, timeout_secs=wrong)
    with pytest.raises(hr.PlanError, match="timeout_secs is"):
        hr.range(1).run_inference(Deadly("exit"), timeout_secs=wrong)


@pytest.mark.heavy
@pytest.mark.parametrize("concurrency", [1, 3])
def test_many_deaths_cost_time_and_no_row(concurrency, tmp_path) -> None:
    def children(row):
        mark = tmp_path / f"mark-{row['id']}"
        for child in range(3):
            if row["id"] % 400 == 17 and child == 1 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield {"id": row["id"], "child": child}

    ds = hr.range(4000).filter(lambda row: row["id"] % 5, isolation="process", concurrency=concurrency)
    ds = ds.flat_map(children, isolation="process", concurrency=concurrency)
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter", num_cpus=3)
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "out").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert lines == [{"id": i, "child": child} for i in range(4000) if i % 5 for child in range(3)]
    assert result.failed == 0
    assert stage_of(result).restarts == 10
    assert result.report().balance().holds
    assert result.report().balance().filtered == 800


@pytest.mark.heavy
def test_an_output_that_was_interrupted_among_deaths_is_gone_on_with(tmp_path) -> None:
    def deadly(row):
        if row["id"] % 300 == 7:
            os.kill(os.getpid(), signal.SIGSEGV)
        return row

    def job():
        return hr.range(2000).map(deadly, isolation="process", concurrency=2, version="1").write_json(tmp_path / "out")

    with pytest.raises(StageError, match="row 7 of"):
        job().run()
    result = job().run(on_error="dead_letter")
    assert written(tmp_path / "out") == [i for i in range(2000) if i % 300 != 7]
    assert sorted(letter["row"]["id"] for letter in letters(tmp_path / "out")) == list(range(7, 2000, 300))
    assert result.report().balance().holds
