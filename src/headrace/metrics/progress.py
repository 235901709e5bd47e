"""What a running job says of itself: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from headrace.metrics.bottleneck import share_of_run
from headrace.metrics.quantities import amount, count, duration, percent
from headrace.metrics.report import stall_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from headrace.metrics.statistics import RunStatistics, StageStatistics

ProgressMode: TypeAlias = Literal["auto", "rich", "plain", "none"]

LINE_SECS = 5.0
"""Pause between two plain lines; a job that ends sooner prints none."""
FRAME_SECS = 0.25
LOAD_SECS = 1.0
"""Loads of models that take less are not worth a word."""
NARROW_COLUMNS = 72
"""Terminals with fewer columns get a smaller table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, as far as can be told."""

    rows: int
    """Rows of the input that are through all steps."""
    rows_per_sec: float
    share: float | None
    """Share of the input that is through, by bytes or else by splits; None when its size is unknown."""
    eta_secs: float | None


def progress_of(statistics: RunStatistics) -> Progress:
    """Work out speed and time left from a snapshot.

    Splits that an earlier run finished count as read for the share, not for the speed.

    >>> from headrace.metrics.statistics import RunStatistics, SourceStatistics
    >>> half = SourceStatistics(name="read", rows=500, splits=4, splits_read=2, bytes_total=100, bytes_read=50)
    >>> progress_of(RunStatistics(elapsed_secs=10.0, sources=(half,)))
    Progress(rows=500, rows_per_sec=50.0, share=0.5, eta_secs=10.0)
    """
    through = _share_through(statistics)
    rows = round(through * sum(source.rows for source in statistics.sources))
    elapsed = statistics.elapsed_secs
    read, found = _share_read(statistics), _share_found(statistics)
    fresh = (read - found) * through if read is not None else None
    share = found + fresh if fresh is not None else None
    eta = elapsed * (1 - share) / fresh if fresh and share is not None else None
    return Progress(rows=rows, rows_per_sec=rows / elapsed if elapsed > 0 else 0.0, share=share, eta_secs=eta)


def line_of(statistics: RunStatistics) -> str:
    """Describe a snapshot in one plain line.

    >>> from headrace.metrics.statistics import RunStatistics, SourceStatistics, StageStatistics
    >>> read = SourceStatistics(name="read", rows=500, splits=4, splits_read=2, bytes_total=100, bytes_read=50)
    >>> print(line_of(RunStatistics(elapsed_secs=10.0, sources=(read,), stages=(StageStatistics(name="m", busy=1.0),))))
    10.0 s  50 %  500 rows  50 rows/s  10.0 s left  m busy 100 %
    """
    now = progress_of(statistics)
    parts = [duration(statistics.elapsed_secs)]
    parts += [percent(now.share)] if now.share is not None else []
    parts += [count(now.rows, "row"), f"{now.rows_per_sec:,.0f} rows/s"]
    parts += [f"{duration(now.eta_secs)} left"] if now.eta_secs is not None else []
    parts += [_stage_cell(stage, statistics.elapsed_secs) for stage in statistics.stages]
    failed = _failed(statistics)
    parts += [f"{failed:,} failed"] if failed else []
    parts += loads_of(statistics)
    parts += [stall_text(stall) for stall in statistics.stalls if not stall.over]
    return "  ".join(parts)


def loads_of(statistics: RunStatistics) -> list[str]:
    """Say which models are being loaded, if that takes a moment.

    >>> from headrace.metrics.statistics import Loading, RunStatistics, StageStatistics
    >>> loads = (Loading(model="net.onnx", secs=12.3), Loading(model="fast", secs=0.1))
    >>> loads_of(RunStatistics(stages=(StageStatistics(name="infer", loading=loads),)))
    ['infer loads net.onnx, 12.3 s so far']
    """
    return [
        f"{stage.name} loads {load.model}, {duration(load.secs)} so far"
        for stage in statistics.stages
        for load in stage.loading
        if load.secs >= LOAD_SECS
    ]


@contextmanager
def show_progress(
    snapshot: Callable[[], RunStatistics], *, stream: TextIO, mode: ProgressMode = "auto"
) -> Iterator[None]:
    """Show `snapshot()` on `stream` while the block runs; from a thread of its own.

    "auto" is "rich" on a terminal (but a dumb one) and "plain" elsewhere. However the block ends, the thread ends with
    it and the terminal is as it was. A stream that was closed by its reader ends the showing, never the run.
    """
    if mode == "auto":
        # On a terminal that cannot move its cursor rich would show nothing at all.
        mode = "rich" if stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown") else "plain"
    if mode == "none":
        yield
        return
    stop = threading.Event()
    show = _show_live if mode == "rich" else _show_lines
    thread = threading.Thread(target=show, args=(snapshot, stream, stop), name="headrace-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show_lines(snapshot: Callable[[], RunStatistics], stream: TextIO, stop: threading.Event) -> None:
    while not stop.wait(LINE_SECS):
        try:
            print(line_of(snapshot()), file=stream, flush=True)
        except (OSError, ValueError):  # the reader of a pipe went away, or the stream was closed
            return


def _show_live(snapshot: Callable[[], RunStatistics], stream: TextIO, stop: threading.Event) -> None:
    # Jobs that end at once should not flash a table, nor pay for the import.
    if stop.wait(FRAME_SECS):
        return
    from rich.console import Console
    from rich.live import Live

    # What users' code prints goes above the table, except where stdout is a pipe or file: it stays what it is.
    redirect = sys.stdout.isatty()
    live = Live(console=Console(file=stream), auto_refresh=False, transient=True, redirect_stdout=redirect)
    try:
        with live:
            while not stop.wait(FRAME_SECS):
                live.update(table_of(snapshot(), columns=live.console.width), refresh=True)
    except (OSError, ValueError):
        return


def table_of(statistics: RunStatistics, *, columns: int = 80) -> Table:
    """Draw a snapshot for a terminal of so many columns: one row a stage, and the whole below."""
    from rich import box
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    narrow = columns < NARROW_COLUMNS
    now = progress_of(statistics)
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("stage", no_wrap=True, overflow="ellipsis")
    for name in ("rows", "busy", *(() if narrow else ("starved", "blocked", "queue")), "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in statistics.stages:
        busy, *waiting = (
            percent(share_of_run(stage, share, statistics.elapsed_secs))
            for share in (stage.busy, stage.starved, stage.blocked)
        )
        waiting = [] if narrow else [*waiting, percent(stage.queue_fill)]
        batch = f"{stage.model.mean_batch_rows:,.0f}" if stage.model else ""
        table.add_row(stage.name, _rows_of(stage, statistics), busy, *waiting, batch)
    summary = [f"{count(now.rows, 'row')}", f"{now.rows_per_sec:,.0f} rows/s"]
    summary += [f"{duration(now.eta_secs)} left"] if now.eta_secs is not None else []
    summary += [amount(statistics.peak_memory_bytes)] if statistics.peak_memory_bytes and not narrow else []
    failed = _failed(statistics)
    summary += [f"[red]{failed:,} failed[/red]"] if failed else []
    bar = ProgressBar(total=1.0, completed=now.share or 0.0, pulse=now.share is None, width=min(30, columns))
    outer = Table.grid()
    outer.add_row(table)
    for text in loads_of(statistics):
        outer.add_row(Text(text))
    for stall in statistics.stalls:
        if not stall.over:
            outer.add_row(Text(stall_text(stall), style="yellow"))
    if narrow:
        outer.add_row(bar)
        outer.add_row("  ".join(summary))
    else:
        whole = Table.grid(padding=(0, 2))
        whole.add_row(bar, *summary)
        outer.add_row(whole)
    return outer


def _rows_of(stage: StageStatistics, statistics: RunStatistics) -> str:
    """Count what a stage has let through; a reader has no steps, and is told from others where there is but one."""
    if stage.steps:
        return f"{max(step.rows_out for step in stage.steps):,}"
    readers = [one.name for one in statistics.stages if not one.steps]
    return f"{statistics.sources[0].rows:,}" if len(statistics.sources) == 1 and readers == [stage.name] else ""


def _stage_cell(stage: StageStatistics, elapsed_secs: float) -> str:
    batch = f", batches of {stage.model.mean_batch_rows:,.0f}" if stage.model and stage.model.batches else ""
    return f"{stage.name} busy {percent(share_of_run(stage, stage.busy, elapsed_secs))}{batch}"


def _share_read(statistics: RunStatistics) -> float | None:
    total = sum(source.bytes_total for source in statistics.sources)
    found = sum(source.splits_found_finished for source in statistics.sources)
    # What an earlier run has finished is not read again, so that its bytes are not among those read.
    if total and not found:
        return min(1.0, sum(source.bytes_read for source in statistics.sources) / total)
    splits = sum(source.splits for source in statistics.sources)
    done = sum(source.splits_read for source in statistics.sources) + found
    return min(1.0, done / splits) if splits else None


def _share_through(statistics: RunStatistics) -> float:
    """Return the share of the rows read that is through all steps; the others are in work or wait in queues.

    Branches are taken as if their steps followed one another, which errs on the side of more to come.
    """
    share, offered = 1.0, sum(source.rows for source in statistics.sources)
    for step in (step for stage in statistics.stages for step in stage.steps):
        # A model takes rows in long before it answers them; only of fan-out the rows that went in can be told.
        settled = step.rows_in if step.fans_out else step.rows_out + step.filtered + step.failed
        share *= min(1.0, settled / offered) if offered else 1.0
        offered = step.rows_out
    return share


def _share_found(statistics: RunStatistics) -> float:
    splits = sum(source.splits for source in statistics.sources)
    return sum(source.splits_found_finished for source in statistics.sources) / splits if splits else 0.0


def _failed(statistics: RunStatistics) -> int:
    steps = [step for stage in statistics.stages for step in stage.steps]
    return sum(step.failed for step in steps) + sum(source.failed for source in statistics.sources)
