"""Sharing one memory limit out: how much each queue of a run may hold, how many readers and workers there are.

Where the limit is large every figure is what is best for speed, and memory stays far below the limit. Where it is
small, queues shrink in proportion, and then readers and workers become fewer. See docs/design/2026-11-30-memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.metrics.quantities import amount, nbytes_of
from headrace.model.keyed import KeyedModelHandler
from headrace.model.manager import ModelManager
from headrace.plan.nodes import RunInference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.plan.nodes import AnyNode
    from headrace.plan.stages import Stage

OWN_BYTES = 192 * 2**20
"""What a run takes that holds no rows at all: the interpreter, Arrow, numpy."""
READER_BYTES = 48 * 2**20
"""What one reader has in hand: a small file as a whole, what the parser makes of it, and the columns."""
WORKER_BYTES = 128 * 2**20
"""What one worker process takes: its interpreter, a block in, and the pieces that go out."""

CHANNEL_BYTES = 2 * 2**20
"""In a channel: a block or two of the usual size, so that memory does not grow with the input."""
MODEL_INBOX_BYTES = 32 * 2**20
"""In front of a model, whose batches may want many blocks."""
LOADING_INBOX_BYTES = 256 * 2**20
"""The same while the model loads: reading goes on meanwhile, on the cores that loading leaves alone."""
HELD_BYTES = 256 * 2**20
"""What may wait in memory for its turn before reading pauses."""
COMMITTER_BYTES = 96 * 2**20
"""What a sink may hold before it goes to segments."""
BACKLOG_BYTES = 16 * 2**20
"""What may wait in a sink for being encoded before `put` makes its caller wait."""

LEAST_BYTES = OWN_BYTES + 64 * 2**20
UNLIMITED = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The shares of one run.

    >>> Budget.of(8 * 2**30, stages=()).channel_bytes == Budget().channel_bytes
    True
    """

    limit_bytes: int = UNLIMITED
    channel_bytes: int = CHANNEL_BYTES
    model_inbox_bytes: int = MODEL_INBOX_BYTES
    loading_inbox_bytes: int = LOADING_INBOX_BYTES
    held_bytes: int = HELD_BYTES
    committer_bytes: int = COMMITTER_BYTES
    backlog_bytes: int = BACKLOG_BYTES
    readers: int = UNLIMITED
    """Replicas of a reading stage, at most."""
    workers: int = UNLIMITED
    """Worker processes of a stage that gets them when it proves heavy, at most."""

    @classmethod
    def of(cls, limit_bytes: int, *, stages: Sequence[Stage]) -> Budget:
        """Share a limit out among stages.

        Raises:
            PlanError: it is too small for any run.
            ModelTooLargeError: so is a memory_budget, for one of its models.
        """
        if limit_bytes < LEAST_BYTES:
            raise PlanError(
                f"memory_limit is {amount(limit_bytes)}, but a run takes {amount(LEAST_BYTES)} before it holds any row;"
                " pass more, such as memory_limit='1GB'"
            )
        rows_bytes = limit_bytes - OWN_BYTES
        for stage in stages:
            check_models(stage.head, limit_bytes)
        models = sum(models_bytes(stage.head, limit_bytes) or 0 for stage in stages)
        if models and rows_bytes - models < LEAST_BYTES - OWN_BYTES:
            raise PlanError(
                f"memory_limit is {amount(limit_bytes)}, and memory_budget gives {amount(models)} of it to models; a"
                f" run takes {amount(LEAST_BYTES)} beside them: pass a larger memory_limit, or a smaller memory_budget"
            )
        rows_bytes -= models
        rows_bytes -= sum(_asked_bytes(stage) for stage in stages if models_bytes(stage.head, limit_bytes) is None)
        reads = [stage.replicas for stage in stages if stage.kind == "read"]
        heavy = [stage.max_process_replicas for stage in stages if stage.max_process_replicas]
        # Replicas may take a third each for reading and for workers: queues are worth nothing without them.
        readers = _fitting(reads, rows_bytes // 3, READER_BYTES)
        workers = _fitting(heavy, rows_bytes // 3, WORKER_BYTES)
        rows_bytes -= READER_BYTES * sum(min(n, readers) for n in reads)
        rows_bytes -= WORKER_BYTES * sum(min(n, workers) for n in heavy)
        share = min(1.0, max(0, rows_bytes) / _queues_bytes(stages))
        return cls(
            limit_bytes=limit_bytes,
            channel_bytes=int(CHANNEL_BYTES * share),
            model_inbox_bytes=int(MODEL_INBOX_BYTES * share),
            loading_inbox_bytes=int(LOADING_INBOX_BYTES * share),
            held_bytes=int(HELD_BYTES * share),
            committer_bytes=int(COMMITTER_BYTES * share),
            backlog_bytes=int(BACKLOG_BYTES * share),
            readers=readers,
            workers=workers,
        )


def _asked_bytes(stage: Stage) -> int:
    """Return what the worker processes of a stage take that runs in such, or its model, as far as the user says."""
    each, copies = WORKER_BYTES if stage.isolation == "process" else 0, stage.replicas
    if isinstance(stage.head, RunInference):
        each = max(each, nbytes_of(stage.head.hints["min_ram"]) if "min_ram" in stage.head.hints else 0)
        copies = stage.head.copies or (stage.replicas if stage.isolation == "process" else 1)
    return each * copies


def models_bytes(node: AnyNode, limit_bytes: int) -> int | None:
    """Return what the models of a node may take together; None where nothing bounds them.

    Raises:
        PlanError: its memory_budget is no number of bytes.
    """
    budget = node.memory_budget if isinstance(node, RunInference) else None
    if budget is None:
        return None
    try:
        return limit_bytes // 2 if budget.cpu is None else nbytes_of(budget.cpu)
    except ValueError as error:
        raise PlanError(f"memory_budget: {error}") from error


def check_models(node: AnyNode, limit_bytes: int) -> None:
    """Raise where a model is said to take more than all models may.

    Raises:
        ModelTooLargeError: names the model and both sizes.
    """
    budget_bytes = models_bytes(node, limit_bytes)
    if isinstance(node, RunInference) and isinstance(node.spec.handler, KeyedModelHandler):
        sizes = node.spec.handler.sizes()
        manager = ModelManager(budget_bytes, sizes=sizes)
        for name in sizes:
            manager.check(name)


def _fitting(wanted: Sequence[int], room_bytes: int, each_bytes: int) -> int:
    """Return how many replicas each of several stages may have."""
    return max(1, room_bytes // (each_bytes * max(1, len(wanted))))


def _queues_bytes(stages: Sequence[Stage]) -> int:
    """Return what all queues hold when they are full and as large as is best for speed."""
    total = HELD_BYTES
    for stage in stages:
        if stage.kind == "model":
            total += LOADING_INBOX_BYTES
        elif stage.kind not in ("read", "union"):
            total += CHANNEL_BYTES
        if stage.kind == "output":
            total += COMMITTER_BYTES + BACKLOG_BYTES
    return total
