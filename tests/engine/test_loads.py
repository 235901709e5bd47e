"""While models load, the statistics of the run say so."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import headrace as hr
from headrace.engine.copies import Copies
from headrace.engine.loads import Loads
from headrace.metrics.progress import line_of, table_of
from headrace.metrics.statistics import Loading, RunStatistics, StageStatistics
from headrace.testing import ManualClock


def test_a_load_that_fails_is_over_too() -> None:
    loads = Loads(ManualClock())
    with pytest.raises(ValueError, match="broken"), loads.noted("a"):
        raise ValueError("broken")
    assert loads.statistics() == ()


def test_copies_are_noted_only_while_they_load() -> None:
    loads, seen = Loads(ManualClock()), []

    class Model:
        def open(self) -> None:
            seen.append(loads.statistics())

        def close(self) -> None:
            pass

    copies = Copies(lambda _: Model(), 1, exclusive=True)  # type: ignore[arg-type,return-value]
    copies.join()
    for _ in range(2):
        with copies.lease(loads.noted("net")):
            assert loads.statistics() == ()
    copies.leave()
    assert seen == [(Loading(model="net", secs=0.0),)]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_running_job_tells_what_it_loads(keyed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, seen = threading.Event(), threading.Event()

    class Slow(hr.ModelHandler[Any]):
        model_id = "slow"

        def load_model(self) -> None:
            begun.set()
            assert seen.wait(30)

        def run_inference(self, batch: Any, model: None) -> list[int]:
            return [1 for _ in batch]

    loads: list[Loads] = []
    make = Loads.__init__

    def kept(self: Loads, *args: Any) -> None:
        make(self, *args)
        loads.append(self)

    monkeypatch.setattr(Loads, "__init__", kept)
    handler: Any = hr.KeyedModelHandler({"slow": Slow()}, key=lambda row: "slow") if keyed else Slow()
    thread = threading.Thread(target=hr.range(3).run_inference(handler).count)
    thread.start()
    assert begun.wait(30)
    assert [load.model for one in loads for load in one.statistics()] == ["slow"]
    seen.set()
    thread.join()
    assert not [load for one in loads for load in one.statistics()]


def test_progress_tells_of_loads() -> None:
    stage = StageStatistics(name="infer", loading=(Loading(model="net.onnx", secs=12.0),))
    run = RunStatistics(elapsed_secs=15.0, stages=(stage,))
    assert "infer loads net.onnx, 12.0 s so far" in line_of(run)
    assert table_of(run).row_count == 3
