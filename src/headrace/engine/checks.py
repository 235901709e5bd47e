"""What happens before a plan runs: its checks, and beside them the imports that its models will need."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from headrace.engine.identity import answers_identity
from headrace.engine.processes.travel import check_can_travel
from headrace.model.checks import check_spec, run_check
from headrace.model.files import is_local
from headrace.model.handler import ModelHandler
from headrace.model.loading import import_framework
from headrace.model.updates import WatchFilePattern
from headrace.plan.check import check_plan
from headrace.plan.nodes import RunInference
from headrace.plan.side_inputs import broadcasts_of, plan_of

if TYPE_CHECKING:
    from headrace.plan.graph import Plan


def check(plan: Plan) -> None:
    """Find what is wrong with a plan before any data is read; see `check_plan`.

    Meanwhile threads import the frameworks of its models (`ModelHandler.preload`), unless there is no input.
    """
    for broadcast in broadcasts_of(plan).values():
        _check(plan_of(broadcast))
    _check(plan)


def _check(plan: Plan) -> None:
    _preload(plan)
    check_plan(plan, check_spec=check_spec, check_travel=check_can_travel)
    for node in plan.nodes:
        if isinstance(node, RunInference) and (node.cache is not None or node.durability == "row"):
            answers_identity(node.spec, plan.name_of(node), changing=node.updates is not None)
        if isinstance(node, RunInference) and isinstance(node.updates, WatchFilePattern):
            _check_watch(node.spec.handler, node.updates.pattern, plan.name_of(node))


def _check_watch(handler: ModelHandler[Any], pattern: str, stage: str) -> None:
    """Have a handler say whether it would load a model from behind a URL at all."""
    if not is_local(pattern):
        run_check(handler.with_model(pattern), stage)


def _preload(plan: Plan) -> None:
    models = [node for node in plan.nodes if isinstance(node, RunInference) and node.isolation == "thread"]
    given = [node.spec.handler for node in models]
    handlers = [  # what is no handler at all will be told by the check
        one for one in given if isinstance(one, ModelHandler) and type(one).preload is not ModelHandler.preload
    ]
    if not handlers or not any(
        split.size_bytes or split.rows for read in plan.reads() for split in read.source.splits()
    ):
        return
    for handler in handlers:
        threading.Thread(target=import_framework, args=(handler,), name="headrace-preload", daemon=True).start()
