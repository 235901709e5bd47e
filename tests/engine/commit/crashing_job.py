"""Run by the crash tests as a process of its own: python -m tests.engine.commit.crashing_job FORMAT OUT [SEED [retry|compact]]."""

from __future__ import annotations

import random
import sys

from headrace.engine.commit.compaction import compact
from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink
from headrace.sinks.parquet import ParquetSink
from tests.engine.commit.jobs import Job, committer_for, everything, work_left

JOB = Job(fates=((1,) * 40, (2, 0, -1, 1) * 10, (1, 3) * 15), block_rows=7, late_column=True)
SINKS = {"parquet": ParquetSink, "csv": CsvSink, "json": JsonSink}


RETRIED = JOB.retried(2, 0, 1, -1)
"""What becomes of the failed rows when they are run again."""


def main(kind: str, out: str, seed: str = "0", command: str = "") -> None:
    if command == "compact":
        compact(SINKS[kind](out), rows_per_part=30)
        return
    now = 0.0
    retry = command == "retry"
    job, rows_per_part = (RETRIED, 4) if retry else (JOB, 25)
    committer = committer_for(
        out,
        job,
        sink=SINKS[kind](out),
        rows_per_part=rows_per_part,
        clock=lambda: now,
        choose=everything if retry else None,
    )
    committer.open()
    for i, block in enumerate(work_left(committer, job, random.Random(int(seed)))):
        committer.put(block)
        if i % 5 == 4:  # now and then rows have waited long enough for a segment
            now += 60.0
            committer.flush()
            if committer._mirror is not None:
                committer._mirror.sync()
        print(i, flush=True)
    committer.finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
