"""Run by the crash tests as a process of its own: python -m tests.engine.commit.crashing_job FORMAT OUT [SEED]."""

from __future__ import annotations

import random
import sys

from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink
from headrace.sinks.parquet import ParquetSink
from tests.engine.commit.jobs import Job, committer_for, work_left

JOB = Job(fates=((1,) * 40, (2, 0, -1, 1) * 10, (1, 3) * 15), block_rows=7, late_column=True)
SINKS = {"parquet": ParquetSink, "csv": CsvSink, "json": JsonSink}


def main(kind: str, out: str, seed: int = 0) -> None:
    now = 0.0
    committer = committer_for(out, JOB, sink=SINKS[kind](out), rows_per_part=25, clock=lambda: now)
    committer.open()
    for i, block in enumerate(work_left(committer, JOB, random.Random(seed))):
        committer.put(block)
        if i % 5 == 4:  # now and then rows have waited long enough for a segment
            now += 60.0
            committer.flush()
        print(i, flush=True)
    committer.finish()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
