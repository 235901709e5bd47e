"""What a run leaves in the caller's hands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.metrics.report import Report
    from headrace.metrics.statistics import RunStatistics


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run that did not fail; rows may still stand in the dead letters."""

    statistics: RunStatistics

    def __repr__(self) -> str:
        return f"<RunResult: {self.report().balance()}; report() tells more>"

    def report(self) -> Report:
        """Return the report: print it, or ask for `to_dict()`."""
        from headrace.metrics.report import Report

        return Report(self.statistics)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return self.report().to_dict()

    @property
    def rows_written(self) -> int:
        """Rows written by this run, over all sinks."""
        return sum(sink.rows - sink.rows_before for sink in self.statistics.sinks)

    @property
    def failed(self) -> int:
        """Rows set aside by this run."""
        return sum(sink.dead_letters - sink.dead_letters_before for sink in self.statistics.sinks)
