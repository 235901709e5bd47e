"""What may be set for one execution on the embedded engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.engine.budget import UNLIMITED
from headrace.engine.commit.failures import FailureLimit
from headrace.engine.container import available_memory
from headrace.errors import PlanError
from headrace.metrics.quantities import nbytes_of
from headrace.model.cores import available_cores
from headrace.plan.numbers import number, whole_number
from headrace.records.first_rows import HOPELESS_ROWS
from headrace.sinks.patience import OUTAGE_SECS

if TYPE_CHECKING:
    from headrace.engine.commit.dead_letters import LettersFormat
    from headrace.engine.inputs import OnChange
    from headrace.plan.steps import OnError

MEMORY_SHARE = 0.6
"""What a run may take of the memory that is there, if nobody says otherwise."""


STALL_WARNING_SECS = 300.0
"""Time without progress after which the watchdog speaks up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """Options of one execution; none of them changes the result, so none counts for "the same job"."""

    on_error: OnError = "fail"
    """What happens to rows that fail, for steps that do not say otherwise."""
    dead_letters: str | None = None
    """Folder for dead letters; None puts them under `_dead_letters` in each output folder."""
    dead_letters_format: LettersFormat = "json"
    retry_failed: bool = False
    """Run the failed rows of a finished job again, and nothing else."""
    failure_limit: FailureLimit = field(default_factory=FailureLimit)
    on_change: OnChange = "fail"
    """What happens where the input is not what it was when the output was begun."""
    cores: int = 1
    memory_limit_bytes: int = UNLIMITED
    """For this process and its workers together."""
    disk_limit_bytes: int | None = None
    """For finished rows that wait on the disk for their part; None: what there is, down to a reserve."""
    stall_warning_secs: float | None = STALL_WARNING_SECS
    """Time without progress after which a replica is named; None: never."""

    max_outage_secs: float = OUTAGE_SECS
    """How long a store that is busy or out of reach is asked again."""

    @property
    def hopeless_rows(self) -> float:
        """Failed rows without a success after which a step ends the run; a retry gives its verdict on each row."""
        return math.inf if self.retry_failed else HOPELESS_ROWS

    def aside(self) -> ExecutionOptions:
        """Return the options for the rows of a side input: all of them are wanted."""
        return replace(
            self,
            on_error="fail",
            dead_letters=None,
            retry_failed=False,
            failure_limit=FailureLimit(),
            on_change="fail",
        )

    @classmethod
    def of(
        cls,
        *,
        on_error: OnError = "fail",
        dead_letters: str | None = None,
        dead_letters_format: LettersFormat = "json",
        max_failed_rows: int | None = None,
        max_failed_ratio: float | None = None,
        retry_failed: bool = False,
        on_change: OnChange = "fail",
        num_cpus: int | None = None,
        memory_limit: int | str | None = None,
        disk_limit: int | str | None = None,
        stall_warning_secs: float | None = STALL_WARNING_SECS,
        max_outage_secs: float = OUTAGE_SECS,
    ) -> ExecutionOptions:
        """Make options, counting the cores and the memory that this process may use where none are named.

        Raises:
            PlanError: `memory_limit` or `disk_limit` is no number of bytes, or one of the others is not above 0.
        """
        return cls(
            on_error=on_error,
            dead_letters=dead_letters,
            dead_letters_format=dead_letters_format,
            retry_failed=retry_failed,
            on_change=on_change,
            failure_limit=FailureLimit(rows=max_failed_rows, ratio=max_failed_ratio),
            cores=whole_number("num_cpus", num_cpus, of="cores", optional=True) or available_cores(),
            memory_limit_bytes=_bytes("memory_limit", memory_limit) or int(MEMORY_SHARE * available_memory()),
            disk_limit_bytes=_bytes("disk_limit", disk_limit),
            stall_warning_secs=number("stall_warning_secs", stall_warning_secs, above=0, optional=True),
            max_outage_secs=number("max_outage_secs", max_outage_secs),
        )


def _bytes(name: str, given: int | str | None) -> int | None:
    if given is None:
        return None
    try:
        return nbytes_of(given)
    except ValueError as error:
        raise PlanError(f"{name}: {error}") from error
