"""The plan's checks with what only the engine and the models know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.processes.travel import check_can_travel
from headrace.model.checks import check_spec
from headrace.plan.check import check_plan

if TYPE_CHECKING:
    from headrace.plan.graph import Plan


def check(plan: Plan) -> None:
    """Find what is wrong with a plan before any data is read; see `check_plan`."""
    check_plan(plan, check_spec=check_spec, check_travel=check_can_travel)
