"""What a step asks of those who run it in a worker process."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.engine.task import StepCounts
    from headrace.plan.retry import Retry
    from headrace.plan.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """As much of a step as the parent of its worker must know."""

    name: str
    retry: Retry | None = None
    timeout_secs: float | None = None
    fans_out: bool = False

    @classmethod
    def of(cls, step: Step) -> Terms:
        """Take them from a step."""
        return cls(name=step.name, retry=step.retry, timeout_secs=step.timeout_secs, fans_out=step.fans_out)


def settled(terms: Sequence[Terms], counts: Mapping[str, StepCounts]) -> bool:
    """Say whether all that the first step has given so far is through the others: only the first is amid its rows."""
    steps = [(one, counts[one.name]) for one in terms if one.name in counts]
    return all(
        not one.fans_out
        and mine.rows_in == before.rows_out
        and mine.rows_in == mine.rows_out + mine.filtered + mine.failed
        for (_, before), (one, mine) in pairwise(steps)
    )
