"""A model over generated rows, of which some are poison: any batch that holds one fails. ROWS ONE_IN OUT

Prints seconds of the run and the handler's calls as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

# Small products gain nothing from threads, which on a busy machine only wait for one another.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

import headrace as hr
from benchmarks.poison_rows import poisoned


class Net(hr.ModelHandler):
    """A small network of two layers, a few microseconds a row, that refuses poison."""

    def __init__(self, one_in: int) -> None:
        self.one_in = one_in

    def load_model(self) -> Any:
        draw = np.random.default_rng(0)
        return draw.normal(size=64), draw.normal(size=(64, 256)), draw.normal(size=256)

    def run_inference(self, batch: Any, model: Any) -> Any:
        global calls
        calls += 1
        if poisoned(batch, self.one_in).any():
            raise ValueError("a row in this batch is poison")
        scale, first, second = model
        hidden = np.maximum(np.sin(batch[:, None] * scale) @ first, 0)
        return hidden @ second


calls = 0


def main() -> None:
    """Run it once."""
    rows, one_in, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    job = hr.range(rows).run_inference(Net(one_in), inputs="id", output="score").write_parquet(out)
    began = time.perf_counter()
    job.run(on_error="dead_letter")
    print(json.dumps({"secs": time.perf_counter() - began, "calls": calls}))


if __name__ == "__main__":
    main()
