"""The numpy job with all that serves journal and statistics watched. ROWS OUT

Prints CPU seconds as JSON: of the whole run, of either, and of writing the parts' data to the disk, which the system
would do a little later by itself.
"""

from __future__ import annotations

import json
import os
import sys
import time

import headrace as hr
from benchmarks.attribution import Attribution
from benchmarks.programs.headrace_numpy import transform
from headrace.engine import execution, identity, output_stage
from headrace.engine.clock import StageClock
from headrace.engine.commit import arrivals, committer, done, flusher, holdings, home, journal, opening, segments
from headrace.engine.execution import Execution
from headrace.engine.input_plan import InputPlan
from headrace.engine.stage_run import StageRun
from headrace.metrics import progress
from headrace.metrics.report import Report
from headrace.model.latency import Latencies
from headrace.sinks import folder


def watch_journal(cpu: Attribution) -> None:
    """Watch what makes a run go on where it was: identity, order, journal, segments, and what waits for the disk."""
    cpu.watch("journal", identity, "identity_of")
    cpu.watch("journal", InputPlan, "settle", "record", "note")
    cpu.watch("journal", committer, "open_output")
    cpu.watch("journal", opening, "sync")
    names, data = cpu.watched("journal", folder.sync), cpu.watched("data", folder.sync)
    folder.sync = lambda path: (names if os.path.isdir(path) else data)(path)
    cpu.watch("journal", home.Home, "inspect", "claim", "clear_work", "release")
    cpu.watch("journal", flusher.Flusher, "flush")
    cpu.watch("journal", arrivals.Arrivals, "add", "missing")
    cpu.watch("journal", done.Done, "missing")
    cpu.watch("journal", holdings.Holdings, "take", "split", "release", "release_memory", "save", "make_room")
    cpu.watch("journal", segments.Segments, "append", "load", "release", "recover", "trim", "remove_all")
    cpu.watch("journal", journal.Journal, "__init__", "begin", "commit", "mark_published", "finish", "close")
    cpu.watch("journal", journal.Journal, "record_splits", "splits", "parts", "letters", "totals", "frontier")


def watch_statistics(cpu: Attribution) -> None:
    """Watch what is counted and shown while a run goes on, and the report."""
    cpu.watch_context("statistics", StageClock, "running", "starving", "blocking")
    cpu.watch("statistics", StageRun, "step_counts", "statistics")
    cpu.watch("statistics", Execution, "statistics")
    cpu.watch("statistics", execution, "verdict")
    cpu.watch("statistics", output_stage, "verdict")
    cpu.watch("statistics", committer.Committer, "statistics")
    cpu.watch("statistics", Latencies, "add")
    cpu.watch("statistics", progress, "line_of")
    cpu.watch("statistics", Report, "__str__")


def main() -> None:
    """Run it once, with progress shown and the report made."""
    cpu = Attribution()
    watch_journal(cpu)
    watch_statistics(cpu)
    began = time.process_time()
    job = hr.range(int(sys.argv[1])).map_batches(transform, batch_format="numpy").write_parquet(sys.argv[2])
    print(job.run(progress="plain").report(), file=sys.stderr)
    whole = time.process_time() - began
    print(json.dumps({"whole": whole, **cpu.secs, "calls": cpu.calls}))


if __name__ == "__main__":
    main()
