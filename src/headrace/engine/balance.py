"""The verdict on stages that have ended: does every row have its place, and did any of them succeed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import BalanceError, HeadraceError, TooManyFailuresError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.engine.stage_run import StageRun


def verdict(stages: Iterable[StageRun], causes: Mapping[str, str]) -> HeadraceError | None:
    """Return the error that the counts of ended stages amount to, if any.

    `causes` tells the first failure of steps, for the message.
    """
    for stage in stages:
        fans_out = {step.name for step in stage.stage.steps if step.fans_out}
        for name, counts in stage.step_counts().items():
            lost = counts.rows_in - counts.rows_out - counts.filtered - counts.failed
            if lost and name not in fans_out and not stage.outlet.unwanted:
                return BalanceError(
                    f"step {name!r} got {counts.rows_in} rows and accounts for {counts.rows_in - lost}; "
                    "this is a bug in Headrace, please report it"
                )
            if counts.failed and counts.failed == counts.rows_in:
                cause = f", the first with {causes[name]}" if name in causes else ""
                return TooManyFailuresError(
                    f"step {name!r}: all {counts.failed} rows failed{cause}. Mend the step or its input and run again"
                )
    return None
