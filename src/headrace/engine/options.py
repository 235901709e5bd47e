"""What may be set for one execution on the embedded engine."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.engine.commit.failures import FailureLimit

if TYPE_CHECKING:
    from headrace.engine.commit.dead_letters import LettersFormat
    from headrace.plan.steps import OnError

CHANNEL_BYTES = 4 * 2**20
"""Byte budget of a channel: a block or two of the usual size, so that memory does not grow with the input."""

MODEL_INBOX_BYTES = 32 * 2**20
"""Byte budget in front of a model, whose batches may want many blocks."""

LOADING_INBOX_BYTES = 128 * 2**20
"""The same while the model loads: reading goes on meanwhile, on the cores that loading leaves alone."""

HELD_BYTES = 256 * 2**20
"""Bytes that may wait in memory for their turn before reading pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """Options of one execution; none of them changes the result, so none counts for "the same job"."""

    on_error: OnError = "fail"
    """What happens to rows that fail, for steps that do not say otherwise."""
    dead_letters: str | None = None
    """Folder for dead letters; None puts them under `_dead_letters` in each output folder."""
    dead_letters_format: LettersFormat = "json"
    failure_limit: FailureLimit = field(default_factory=FailureLimit)
    cores: int = 1

    @classmethod
    def of(
        cls,
        *,
        on_error: OnError = "fail",
        dead_letters: str | None = None,
        dead_letters_format: LettersFormat = "json",
        max_failed_rows: int | None = None,
        max_failed_ratio: float | None = None,
        num_cpus: int | None = None,
    ) -> ExecutionOptions:
        """Make options, counting the cores that this process may use when none are named."""
        return cls(
            on_error=on_error,
            dead_letters=dead_letters,
            dead_letters_format=dead_letters_format,
            failure_limit=FailureLimit(rows=max_failed_rows, ratio=max_failed_ratio),
            cores=num_cpus or available_cores(),
        )


def available_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
