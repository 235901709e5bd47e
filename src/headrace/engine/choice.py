"""Which failed rows a retry can run again: those that nothing else was made of, in a plan that finds them again."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from headrace.engine.commit.retrying import RetriedRow
from headrace.errors import ResumeError
from headrace.metrics.quantities import count
from headrace.plan.graph import nodes_behind
from headrace.plan.nodes import Limit, Shuffle, upstreams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.engine.commit.failed import FailedRow
    from headrace.plan.graph import Plan
    from headrace.plan.nodes import AnyNode, Write
    from headrace.records.block import Unit

_log = logging.getLogger("headrace.retry")


class Choice:
    """Chooses among the failed rows of one output.

    An input row is run again whole. So it stays failed where other rows that were made of it have been written already,
    and where a limit or a shuffle counts rows between it and the output.
    """

    def __init__(self, plan: Plan, output: Write, units: Iterable[Unit]) -> None:
        self._output = output
        lanes = Counter(unit.split for unit in units)
        self._several_ways = {split for split, ways in lanes.items() if ways > 1}
        self._counted = _counted(plan, output)
        self._names = {plan.name_of(node) for node in plan.nodes}

    def __call__(self, failed: Sequence[FailedRow]) -> list[RetriedRow]:
        """Return the rows to run again; the others are told in the log.

        Raises:
            ResumeError: none of them can be.
        """
        reasons: dict[tuple[int, int], str] = {}
        for row in failed:
            if (why := self._why_not(row)) is not None:
                reasons[row.split, row.ordinal] = why
        chosen = {
            (row.split, row.ordinal): RetriedRow(
                split=row.split, ordinal=row.ordinal, place=row.place, attempt=row.attempt
            )
            for row in failed
            if (row.split, row.ordinal) not in reasons
        }
        if reasons:
            told = "; ".join(f"{count(n, 'row')}: {why}" for why, n in Counter(reasons.values()).most_common())
            if not chosen:
                raise ResumeError(f"{self._output.sink.name}: no failed row can be run again ({told})")
            _log.warning("%s: some failed rows cannot be run again (%s)", self._output.sink.name, told)
        return list(chosen.values())

    def _why_not(self, row: FailedRow) -> str | None:
        if row.siblings:
            return "other rows that were made of the same input row are written already"
        if row.split in self._several_ways:
            return "its input reaches the output by several ways"
        if row.stage in self._counted:
            return f"step {self._counted[row.stage]!r} counts or mixes rows"
        if self._counted and row.stage not in self._names:
            some = next(iter(self._counted.values()))
            return f"step {some!r} counts or mixes rows, and no step is called {row.stage!r} as the failed one was"
        return None


def _counted(plan: Plan, output: Write) -> dict[str, str]:
    """Return, for the steps in front of a limit or shuffle and those behind a shuffle, the name of that step."""
    found: dict[str, str] = {}
    behind = nodes_behind(plan, output)
    for node in behind:
        if isinstance(node, (Limit, Shuffle)):
            found.update((plan.name_of(before), plan.name_of(node)) for before in _before(node))
        if isinstance(node, Shuffle):
            found.update((plan.name_of(n), plan.name_of(node)) for n in [*behind, output] if node in _before(n))
    return found


def _before(node: AnyNode) -> list[AnyNode]:
    """Return the nodes that a node's rows come through."""
    found: dict[int, AnyNode] = {}
    stack: list[AnyNode] = list(upstreams(node))
    while stack:
        at = stack.pop()
        if id(at) not in found:
            found[id(at)] = at
            stack.extend(upstreams(at))
    return list(found.values())
