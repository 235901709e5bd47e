"""Tensors to a model in a process of its own and back, with Beam's MultiProcessShared. SIZES

Prints JSON: median seconds of a call by number of bytes.
"""

# mypy: ignore-errors

import json
import sys
import time
from statistics import median
from typing import Any

import numpy as np
from apache_beam.utils.multi_process_shared import MultiProcessShared


class Echo:
    """Answers with what it is given."""

    def predict(self, batch: Any) -> Any:
        """Answer."""
        return batch


def main() -> None:
    """Send tensors to the model and back; every answer is compared, beside the clock, with what was sent."""
    sizes = json.loads(sys.argv[1])
    shared = MultiProcessShared(Echo, tag=f"echo-{time.time_ns()}", always_proxy=True, spawn_process=True)
    model = shared.acquire()
    found = {}
    for nbytes, calls in sizes.items():
        times = []
        for call in range(calls):
            sent = np.arange(call, call + int(nbytes) // 8, dtype=np.int64)
            began = time.perf_counter()
            got = model.predict(sent)
            times.append(time.perf_counter() - began)
            if not np.array_equal(sent, got):
                sys.exit(f"{nbytes} bytes came back as others")
        found[nbytes] = median(times)
    print(json.dumps(found), flush=True)
    shared.release(model)


if __name__ == "__main__":  # its server is a process that imports this again
    main()
