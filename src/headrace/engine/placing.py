"""From what the model steps of a plan ask to a plan whose models have their places on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine import nvml
from headrace.engine.budget import LEAST_BYTES, models_bytes
from headrace.engine.same_model import same_model
from headrace.errors import PlanError
from headrace.metrics.quantities import nbytes_of
from headrace.model.gpu_budget import gpu_shares
from headrace.model.inventory import Inventory
from headrace.model.keyed import KeyedModelHandler
from headrace.model.placement import Ask, Placed, plan_placement
from headrace.plan.nodes import RunInference
from headrace.plan.rules import with_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.model.gpu_budget import GpuShare
    from headrace.model.handler import ModelHandler
    from headrace.plan.graph import Plan


def place_models(
    plan: Plan, *, memory_limit_bytes: int, probe: Callable[[], Inventory] | None = None
) -> tuple[Plan, Mapping[str, Placed]]:
    """Return a plan with as many copies of each model as have a place, and the places by step.

    `probe` looks at the machine; it is called only where a step can make use of a GPU.

    Raises:
        PlanError: the machine has not what the steps ask for.
    """
    nodes = [node for node in plan.nodes if isinstance(node, RunInference)]
    first = {plan.name_of(node): plan.name_of(_sharing(nodes, node)) for node in nodes}
    asks = [ask_of(plan.name_of(node), node) for node in nodes if first[plan.name_of(node)] == plan.name_of(node)]
    asks = [ask for ask in asks if ask.processes or ask.num_gpus is not None or ask.min_ram_bytes]
    if not asks:
        return plan, {}
    looks = any(ask.processes or ask.num_gpus for ask in asks)
    inventory = (probe or nvml.inventory)() if looks else Inventory()
    placed = plan_placement(asks, inventory, memory_bytes=memory_limit_bytes - LEAST_BYTES)
    whole = {step: placed[found] for step, found in first.items() if found in placed}
    for name, node in zip(first, nodes, strict=True):
        if shares := shares_of(node, whole.get(name), memory_limit_bytes=memory_limit_bytes):
            whole[name] = Placed(places=tuple((share.gpu,) for share in shares), asked=False)
    gpus = {
        name: len(whole[name].places) for name, node in zip(first, nodes, strict=True) if node.hints.get("num_gpus")
    }
    return (with_copies(plan, gpus) if gpus else plan), whole


def places_told(plan: Plan, *, memory_limit_bytes: int) -> tuple[Plan, Mapping[str, str]]:
    """Do as `place_models`, for people, who may look at a plan on another machine than the one that will run it."""
    try:
        plan, placed = place_models(plan, memory_limit_bytes=memory_limit_bytes)
    except PlanError as error:
        nodes = [node for node in plan.nodes if isinstance(node, RunInference) and node.hints]
        return plan, {plan.name_of(node): f"nothing on this machine: {error}" for node in nodes}
    return plan, {step: str(one) for step, one in placed.items()}


def ask_of(step: str, node: RunInference) -> Ask:
    """Return what one step asks."""
    keyed = isinstance(node.spec.handler, KeyedModelHandler)
    num_gpus = node.hints.get("num_gpus")
    copies = node.copies
    if copies is None and not num_gpus and not keyed:
        copies = node.concurrency if node.isolation == "process" else 1
    return Ask(
        step=step,
        num_gpus=num_gpus,
        accelerator=node.hints.get("accelerator"),
        min_ram_bytes=nbytes_of(node.hints["min_ram"]) if "min_ram" in node.hints else 0,
        copies=copies,
        processes=node.isolation == "process" and (keyed or takes_first_gpu(node.spec.handler)),
    )


def shares_of(node: RunInference, placed: Placed | None, *, memory_limit_bytes: int) -> tuple[GpuShare, ...]:
    """Return what the models of a keyed step may take of each GPU, by the numbers of its places; none without GPUs.

    Raises:
        PlanError: its memory_budget cannot be kept here.
    """
    handler, budget = node.spec.handler, node.memory_budget
    if budget is None or budget.gpu is None or not isinstance(handler, KeyedModelHandler):
        return ()
    gpus = [place[0] for place in placed.places] if placed is not None else []
    if budget.gpu == "auto" and not (handler.models and all(map(takes_first_gpu, handler.models.values()))):
        return ()
    return gpu_shares(budget.gpu, gpus, cpu_bytes=models_bytes(node, memory_limit_bytes) or memory_limit_bytes)


def takes_first_gpu(handler: ModelHandler[Any]) -> bool:
    """Whether a handler left to itself takes the first GPU that its process sees, so that another may be first there.

    One that names its devices, or spreads its model over several (`device_map`), is left alone.
    """
    if "device_map" in (getattr(handler, "model_kwargs", None) or {}):
        return False
    return getattr(handler, "device", None) == "auto" or getattr(handler, "providers", "none") is None


def _sharing(nodes: list[RunInference], node: RunInference) -> RunInference:
    """Return the first step whose copies a step uses; mostly its own."""
    if node.copies is None or node.updates is not None:
        return node
    alike = (
        one
        for one in nodes
        if one.copies is not None
        and one.updates is None
        and one.hints == node.hints
        and one.on_error == node.on_error
        and same_model(node, one)
    )
    return node if node.spec.retry is not None else next(alike, node)
