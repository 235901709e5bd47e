"""The balance of a run: where every row went, in one line that adds up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.metrics.statistics import RunStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Rows that came in and rows that went out, with the reason for each difference.

    >>> str(Balance(read=40, written=37, failed=3))
    'read 40 = written 37 + failed 3 + filtered 0'
    >>> str(Balance(read=10, made=25, written=35))
    'read 10 + made 25 by fan-out = written 35 + failed 0 + filtered 0'
    """

    read: int = 0
    """Rows that the sources gave in this run, unreadable ones included."""
    made: int = 0
    """Rows that steps with fan-out gave beyond what they took (negative where they gave fewer)."""
    copied: int = 0
    """Rows that went on more than once, since the plan branches and a union brings the branches together."""
    written: int = 0
    """Rows that the sink took in this run, rows with nulls for failed answers included."""
    failed: int = 0
    filtered: int = 0
    other: int = 0
    """Rows read and not carried on: finished by an earlier run, or beyond a limit."""
    branches: int = 1
    """Number of sinks: with none (rows taken in memory) or several (rows written more than once) no sum can be made."""

    @property
    def holds(self) -> bool | None:
        """Whether in equals out; None where there is no single sink to compare with."""
        if self.branches != 1:
            return None
        return self.read + self.made + self.copied == self.written + self.failed + self.filtered + self.other

    def __str__(self) -> str:
        came = f"read {self.read:,}" + (f" + made {self.made:,} by fan-out" if self.made else "")
        came += f" + copied {self.copied:,} by branches" if self.copied else ""
        went = f"written {self.written:,} + failed {self.failed:,} + filtered {self.filtered:,}"
        if self.other:
            went += f" + finished before or beyond a limit {self.other:,}"
        if self.branches == 0:
            return f"{came}; failed {self.failed:,}, filtered {self.filtered:,}"
        if self.holds is None:
            return f"{came}; {self.branches} outputs: {went}"
        return f"{came} {'=' if self.holds else '≠'} {went}"


def balance_of(statistics: RunStatistics) -> Balance:
    """Add up a run's counts. Rows that neither sinks nor steps account for are `other`, and never less than none."""
    steps = [step for stage in statistics.stages for step in stage.steps]
    read = sum(source.rows + source.failed for source in statistics.sources)
    made = sum(s.rows_out + s.filtered + s.failed - s.rows_in for s in steps if s.fans_out)
    written = sum(sink.rows - sink.rows_before for sink in statistics.sinks)
    failed = sum(step.failed for step in steps)
    failed += sum(source.failed for source in statistics.sources) + sum(sink.failed for sink in statistics.sinks)
    filtered = sum(step.filtered for step in steps)
    branches = len(statistics.sinks)
    copied = sum(stage.copied for stage in statistics.stages) if branches == 1 else 0
    left_over = read + made + copied - written - failed - filtered if branches == 1 else 0
    return Balance(
        read=read,
        made=made,
        copied=copied,
        written=written,
        failed=failed,
        filtered=filtered,
        other=max(0, left_over),
        branches=branches,
    )
