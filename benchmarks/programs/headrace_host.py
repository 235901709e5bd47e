"""Tensors to a model in a process of its own and back, by the way that batches of a stage go. SIZES

Prints JSON: median seconds of a call by kind and by number of bytes. "model" is all that a batch passes: rows to
arrays, the handler, its answers paired and counted, rows again; "way" is the way there and back alone.
"""

# mypy: ignore-errors

import json
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.predict import PredictTask
from headrace.engine.processes.crew import Crew
from headrace.engine.processes.replica import ProcessReplica
from headrace.engine.processes.supervised import SupervisedReplica
from headrace.engine.processes.terms import Terms
from headrace.engine.task import StepCounts, Task
from headrace.model.handler import ModelHandler
from headrace.plan.nodes import InferenceSpec
from headrace.records.block import Block, Unit


class Echo(ModelHandler):
    """Answers with what it is given."""

    def load_model(self) -> None:
        """There is nothing to load."""

    def run_inference(self, batch: Any, model: Any, inference_args: Any = None) -> Any:
        """Answer."""
        return batch


class Way:
    """A task that gives blocks back as they are."""

    one_piece = True

    def open(self) -> None:
        """Do nothing."""

    def process(self, block: Block) -> Iterator[Block]:
        """Give it back."""
        yield block

    def counts(self) -> dict[str, StepCounts]:
        """Count nothing."""
        return {"echo": StepCounts()}

    def close(self) -> None:
        """Do nothing."""


def call_secs(task: Task, sizes: dict[int, int]) -> dict[str, float]:
    """Send tensors to the task and back; every answer is compared, beside the clock, with what was sent."""
    replica = SupervisedReplica(lambda: ProcessReplica(task, name="echo"), terms=[Terms(name="echo")], crew=Crew())
    replica.open()
    found = {}
    for nbytes, calls in sizes.items():
        times = []
        for call in range(calls):
            sent = np.arange(call, call + nbytes // 8, dtype=np.int64)
            batch = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(pa.array(sent), len(sent))})
            began = time.perf_counter()
            (answered,) = replica.process(Block(batch=batch, unit=Unit(0), start=(0,), end=(1,)))
            got = answered.batch.column("x").flatten().to_numpy()
            times.append(time.perf_counter() - began)
            if not np.array_equal(sent, got):
                sys.exit(f"{nbytes} bytes came back as others")
            del answered, got
        found[str(nbytes)] = median(times)
    replica.close()
    return found


def main() -> None:
    """Measure both."""
    sizes = json.loads(sys.argv[1])
    sizes = {int(nbytes): calls for nbytes, calls in sizes.items()}
    spec = InferenceSpec(handler=Echo(), inputs="x", output="x", model_id_column=None)
    print(
        json.dumps(
            {
                "model": call_secs(PredictTask(spec, "echo", "fail", sent_at_once=True), sizes),
                "way": call_secs(Way(), sizes),
            }
        )
    )


if __name__ == "__main__":
    main()
