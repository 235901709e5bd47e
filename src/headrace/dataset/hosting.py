"""Where a model lives, and how many copies of it there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.plan.numbers import number, whole_number

if TYPE_CHECKING:
    from headrace.plan.steps import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """What was asked for, put together."""

    isolation: Isolation
    concurrency: int
    copies: int | None = None
    """None: one in this process, or, in processes, one for each batch in flight."""
    idle_timeout_secs: float | None = None


def hosting(
    *,
    isolation: Any,
    concurrency: Any,
    model_copies: Any,
    large_model: Any,
    idle_timeout_secs: Any,
    gives_back: bool,
    several: bool,
    changing: bool = False,
    num_gpus: float | None = None,
    at_once: int = 1,
) -> Hosting:
    """Decide; `gives_back` where a process has to be ended or to give memory back, `several` where models take turns,
    `changing` where newer versions of one take over. What has `num_gpus` is in processes, since the environment of a
    process says which GPUs it sees; how many copies there are is then found when it is known how many GPUs.
    `at_once` batches suit one model in this process.

    >>> hosting(isolation="auto", concurrency=4, model_copies=None, large_model=True, idle_timeout_secs=None,
    ...         gives_back=False, several=False)
    Hosting(isolation='process', concurrency=4, copies=1, idle_timeout_secs=None)

    Raises:
        PlanError: what was asked for does not go together.
    """
    if isolation not in ("auto", "thread", "process"):
        raise PlanError(f"isolation is {isolation!r}; a model runs in a 'thread' or in a 'process', or use 'auto'")
    concurrency = whole_number("concurrency", concurrency, of="batches in flight", optional=True)
    if not isinstance(large_model, bool):
        raise PlanError(f"large_model is {large_model!r}; True is for one copy of the model in a process of its own")
    idle = number("idle_timeout_secs", idle_timeout_secs, above=0, optional=True)
    copies = None if model_copies is None else whole_number("model_copies", model_copies, of="copies of the model")
    given = "large_model" if large_model else "model_copies" if copies is not None else "idle_timeout_secs"
    if changing and idle is not None:
        raise PlanError("idle_timeout_secs= is for a model that stays; leave it out, or watch= and updates=")
    if several and (large_model or copies is not None or idle is not None):
        raise PlanError(
            f"{given}= is for one model; models that a KeyedModelHandler routes rows to have a memory_budget"
        )
    if large_model and isolation == "thread":
        raise PlanError("large_model=True gives the model a process of its own; leave isolation='thread' out")
    if num_gpus is not None and isolation == "thread":
        raise PlanError("num_gpus= gives each copy of the model a process of its own; leave isolation='thread' out")
    if num_gpus is not None and several:
        raise PlanError(
            "num_gpus= is for one model; those that a KeyedModelHandler routes rows to take turns over all GPUs when"
            " each has a process of its own (isolation='process', or a memory_budget=)"
        )
    if isolation == "auto":
        # A thread that hangs cannot be ended, nor does one give its memory back.
        isolation = "process" if gives_back or large_model or idle is not None or num_gpus is not None else "thread"
    if concurrency is None:
        plain = copies is None and idle is None and not (several or changing)
        concurrency = at_once if isolation == "thread" and plain else 1
    if copies is None and (large_model or (idle is not None and not num_gpus)):
        copies = 1 if large_model or isolation == "thread" else concurrency
    return Hosting(
        isolation=isolation,
        concurrency=max(concurrency, copies or 1),
        copies=copies,
        idle_timeout_secs=idle,
    )
