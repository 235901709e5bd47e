"""Copies of a model in whole runs: how many there are, and what is left when one dies."""

from __future__ import annotations

import gc
import json
import os
import re
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.copies import Copies
from headrace.engine.memory import proportional_bytes
from headrace.engine.predict import PredictTask
from headrace.engine.processes.replica import ProcessReplica
from headrace.plan.nodes import InferenceSpec
from headrace.records.block import Block, Unit
from headrace.testing import ManualClock


class Telling(hr.ModelHandler[Any]):
    """Answers with its process and the number of the model in it; some rows kill it."""

    def __init__(self, deadly: tuple[int, ...] = (), megabytes: int = 0) -> None:
        self.deadly, self.megabytes = deadly, megabytes

    def load_model(self) -> bytearray:
        return bytearray(b"x") * (self.megabytes * 2**20)

    def run_inference(self, batch: Any, model: bytearray) -> list[str]:
        if set(batch.tolist()) & set(self.deadly):
            os.abort()
        return [f"{os.getpid()}:{id(model)}" for _ in batch]


def written(out: Path) -> list[dict[str, Any]]:
    lines = [line for part in sorted(out.glob("part-*")) for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def letters(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in (out / "_dead_letters").glob("*") for line in file.read_text().splitlines()]


def models(rows: list[dict[str, Any]]) -> set[str]:
    return {row["prediction"] for row in rows}


def test_one_large_model_answers_all_batches_in_flight() -> None:
    rows = hr.range(400).run_inference(Telling(), inputs="id", batch_size=10, concurrency=4, large_model=True)
    answers = models(rows.take(400))
    assert len(answers) == 1
    assert not any(answer.startswith(f"{os.getpid()}:") for answer in answers)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_there_are_no_more_copies_than_asked_for(isolation: Any) -> None:
    rows = hr.range(400).run_inference(
        Telling(), inputs="id", batch_size=10, concurrency=4, model_copies=2, isolation=isolation
    )
    answers = models(rows.take(400))
    assert 1 <= len(answers) <= 2
    assert all(answer.startswith(f"{os.getpid()}:") for answer in answers) == (isolation == "thread")


def test_steps_that_ask_the_same_large_model_share_it(tmp_path: Path) -> None:
    jobs = []
    for name, handler in {"a": Telling((7,)), "b": Telling((7,)), "c": Telling((8,))}.items():
        asked = hr.range(20).run_inference(handler, inputs="id", batch_size=5, large_model=True, name=name)
        jobs.append(asked.write_json(tmp_path / name))
    result = hr.run(*jobs, on_error="dead_letter")
    a, b, c = (written(tmp_path / name) for name in "abc")
    assert [row["id"] for row in a] == [row["id"] for row in b] == [i for i in range(20) if i != 7]
    # Deaths replace the process; it is shared all the same.
    assert {answer.split(":")[0] for answer in models(c)}.isdisjoint(x.split(":")[0] for x in models(a) | models(b))
    for name, row in (("a", 7), ("b", 7), ("c", 8)):
        (letter,) = letters(tmp_path / name)
        assert (letter["stage"], letter["row"]["id"]) == (name, row)
    loads = [stage.model.loads for stage in result.statistics.stages if stage.model is not None]
    assert len(loads) == 2  # of the shared one the first step tells


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_that_abort_their_model_fail_alone_and_nothing_is_left(tmp_path: Path, keyed: bool) -> None:
    deadly = (13, 40, 41)
    ds = hr.from_items([{"id": i, "k": "ab"[i % 2]} for i in range(80)])
    handler: Any = Telling(deadly)
    settings: dict[str, Any] = {"large_model": True}
    if keyed:
        handler = hr.KeyedModelHandler({"a": Telling(deadly), "b": Telling(deadly)}, key="k")
        settings = {"isolation": "process"}
    asked = ds.run_inference(handler, inputs="id", batch_size=20, concurrency=2, **settings)
    job = asked.write_json(tmp_path / "out")
    before = memory_files()
    job.run(on_error="dead_letter")
    assert [row["id"] for row in written(tmp_path / "out")] == [i for i in range(80) if i not in deadly]
    found = letters(tmp_path / "out")
    assert sorted(letter["row"]["id"] for letter in found) == list(deadly)
    assert all(re.search("signal 6|SIGABRT|abort", letter["message"]) for letter in found)
    gc.collect()
    assert not [p for p in psutil.Process().children(recursive=True) if "headrace" in " ".join(p.cmdline())]
    assert memory_files() <= before


def memory_files() -> int:
    """Count this process's anonymous files and mappings of them."""
    if not os.path.isdir("/proc/self/fd"):
        return 0
    with open("/proc/self/maps") as maps:
        mapped = sum("memfd:headrace" in line for line in maps)
    folder = Path("/proc/self/fd")
    links = [os.readlink(fd) for fd in folder.iterdir() if os.path.lexists(fd)]
    return mapped + sum("memfd:headrace" in link for link in links)


class Weighed(Telling):
    """Answers with what all workers of the run take together."""

    def run_inference(self, batch: Any, model: bytearray) -> list[int]:  # type: ignore[override]
        parent = psutil.Process(os.getppid())
        return [sum(proportional_bytes(p.pid) for p in [parent, *parent.children()])] * len(batch)


@pytest.mark.heavy
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads proportional sizes")
def test_four_batches_in_flight_and_a_large_model_take_the_memory_of_one_copy() -> None:
    before = proportional_bytes(os.getpid())
    ds = hr.range(200).run_inference(
        Weighed(megabytes=400), inputs="id", batch_size=10, concurrency=4, large_model=True
    )
    most = max(row["prediction"] for row in ds.take(200))
    assert 400 * 2**20 < most - before < 700 * 2**20


def test_an_idle_process_ends_and_another_takes_its_place() -> None:
    clock = ManualClock()
    spec = InferenceSpec(handler=Telling(), inputs="id", model_id_column=None)
    copies = Copies(
        lambda _: ProcessReplica(PredictTask(spec, "ask", "fail", sent_at_once=True), name="ask"),
        1,
        exclusive=True,
        idle_secs=5.0,
        clock=clock,
    )
    copies.join()
    pids = []
    for _ in range(2):
        with copies.lease() as task:
            block = Block(batch=pa.record_batch({"id": [1, 2]}), unit=Unit(0), start=(0,), end=(2,))
            (answered,) = task.process(block)
            pids.append(int(answered.batch["prediction"][0].as_py().split(":")[0]))
        clock.advance(6)
        copies.put_out_idle()
        assert not psutil.pid_exists(pids[-1])
    assert pids[0] != pids[1]
    done = copies.statistics()
    assert done is not None
    assert (done.loads, done.rows) == (2, 4)
    copies.leave()


def test_what_does_not_go_together_is_refused() -> None:
    ds = hr.range(3)
    with pytest.raises(hr.PlanError, match="large_model=True gives the model a process"):
        ds.run_inference(Telling(), large_model=True, isolation="thread")
    with pytest.raises(hr.PlanError, match="model_copies"):
        ds.run_inference(Telling(), model_copies=0)
    keyed = hr.KeyedModelHandler({"a": Telling()}, key="k")
    with pytest.raises(hr.PlanError, match="idle_timeout_secs= is for one model"):
        ds.run_inference(keyed, idle_timeout_secs=5)


def test_the_plan_tells_of_copies() -> None:
    ds = hr.range(3).run_inference(Telling(), inputs="id", model_copies=2, isolation="process")
    assert "copies of the model: 2, in worker processes, one each" in ds.explain()
