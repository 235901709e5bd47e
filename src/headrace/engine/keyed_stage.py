"""Model stages with several models: each row goes to the one that its key names."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.engine.gpu_hosts import GpuHosts
from headrace.engine.hosts import Hosts
from headrace.engine.memory import proportional_bytes
from headrace.engine.model_stage import ModelStage, answered_by
from headrace.engine.nvml import GpuMemory
from headrace.engine.placing import takes_first_gpu
from headrace.errors import HeadraceError, ModelError, PlanError, StageError, UnknownColumnError
from headrace.model.batching import Batcher
from headrace.model.checks import run_check
from headrace.model.keyed_batching import KeyedBatcher
from headrace.model.manager import ModelManager
from headrace.model.scales import Scales
from headrace.records.failure import RowFailure, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from headrace.engine.clock import StageClock
    from headrace.engine.notes import Notes
    from headrace.engine.open_blocks import Cut
    from headrace.engine.task import Task
    from headrace.metrics.statistics import Loading, ManagerStatistics, ModelStatistics
    from headrace.model.batch import Batch
    from headrace.model.gpu_budget import GpuShare
    from headrace.model.handler import ModelHandler
    from headrace.model.keyed import KeyedModelHandler
    from headrace.plan.nodes import InferenceSpec
    from headrace.records.block import Block

NO_KEY = "\0"
"""What rows without a key have in its place."""


class KeyedModelStage(ModelStage):
    """Routes rows by key, and has each answered by its model once that is in memory."""

    def __init__(
        self,
        *stage: Any,
        handler: KeyedModelHandler,
        make_model: Callable[[str, InferenceSpec, int | None], Task],
        in_processes: bool,
        budget_bytes: int | None,
        shares: Sequence[GpuShare] = (),
        **settings: Any,
    ) -> None:
        """`make_model` makes the task of one model, of the given name and spec, and the number of its place.

        Where there are `shares` of GPUs, by these numbers, each model belongs to one; else they take turns over them.
        """
        self._handler, self._make_model = handler, make_model
        self._specs: dict[str, InferenceSpec] = {}
        self._own_scales: dict[str, Scales] = {}
        self._hosts: Hosts | GpuHosts
        if shares:
            self._hosts = GpuHosts([self._hosts_on(number, share) for number, share in enumerate(shares)])
        else:
            self._hosts = Hosts(
                ModelManager(budget_bytes, sizes=handler.sizes()),
                self._make_in_turn,
                measure=None if budget_bytes is None else bytes_of_process,
                exclusive=in_processes,
            )
        super().__init__(*stage, shared_task=None, make_process=None, **settings)
        self.state.on_stop(self._hosts.stop)
        if budget_bytes is not None:
            threading.Thread(target=self._hosts.watch, name="headrace-models", daemon=True).start()

    def _make_in_turn(self, name: str) -> Task:
        spec = self._specs[name]
        return self._make_model(name, spec, list(self._specs).index(name) if takes_first_gpu(spec.handler) else None)

    def _hosts_on(self, number: int, share: GpuShare) -> Hosts:
        gpu_bytes = GpuMemory(share.gpu.uuid)

        def measure(task: Task) -> int | None:
            pid, nbytes = getattr(task, "pid", None), bytes_of_process(task)
            if pid is None or nbytes is None:
                return None
            done: ModelStatistics | None = task.statistics()  # type: ignore[attr-defined]
            # The driver knows processes by the numbers that they have outside of a container, PyTorch its own part.
            return share.counted(max(gpu_bytes(pid), done.device_bytes if done else 0), nbytes)

        return Hosts(
            ModelManager(share.gpu_bytes, sizes=self._handler.sizes(), whole=str(share)),
            lambda name: self._make_model(name, self._specs[name], number),
            measure=measure,
            exclusive=True,
        )

    # -- rows in ---------------------------------------------------------------------------------------------------

    def _make_batcher(self, notes: Notes) -> KeyedBatcher:
        limits = self._node.spec.limits
        return KeyedBatcher(
            limits,
            make=lambda key: Batcher(limits, padded=key in self._own_scales and self._own_scales[key].padded),
            residence=self._hosts,
        )

    def _batcher_of(self, key: str | None) -> Batcher:
        assert isinstance(self._batcher, KeyedBatcher)
        assert key is not None
        return self._batcher.of(key)

    def _add_rows(self, number: int, block: Block) -> None:
        assert isinstance(self._batcher, KeyedBatcher)
        column = self._node.spec.key_column
        assert column is not None
        if column not in block.batch.schema.names:
            raise UnknownColumnError(column, block.batch.schema.names, step=self._name)
        rows = rows_by_key(block.batch.column(column), column=column, step=self._name)
        for name in rows:
            if name not in self._specs:
                self._meet(name)
        self._hosts.want(list(rows))
        weights = {name: self._weights_of(name, block.batch, some) for name, some in rows.items()}
        self._batcher.add(number, rows, time.monotonic(), weights)

    def _meet(self, name: str) -> None:
        """Find the handler of a name that no row had before."""
        spec = self._node.spec
        try:
            handler = self._handler_of(name)
        except HeadraceError as error:
            self._specs[name] = spec
            self._hosts.refuse(name, error if isinstance(error, ModelError) else ModelError(str(error)))
            return
        self._specs[name] = replace(spec, handler=handler, model_id=name, key_column=None)
        self._own_scales[name] = Scales(self._specs[name], self._name)

    def _handler_of(self, name: str) -> ModelHandler[Any]:
        try:
            handler = self._handler.handler_of(None if name == NO_KEY else name)
        except HeadraceError:
            raise
        except Exception as error:
            raise PlanError(f"the handler of model {name!r} cannot be made: {told(error)}") from error
        if name not in self._handler.models:
            run_check(handler, self._name)  # the others are checked before the run
        return handler

    def _weights_of(self, name: str, batch: pa.RecordBatch, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
        scales = self._own_scales.get(name)
        if scales is None or not (scales.by_handler or self._node.spec.limits.weight_column is not None):
            return None
        return scales.weights(batch.take(pa.array(rows)))

    def _cut(self, batch: Batch) -> Cut:
        assert isinstance(self._batcher, KeyedBatcher)
        cut = super()._cut(batch)
        assert cut.key is not None
        self._hosts.expect(cut.key)
        self._hosts.fetch(self._batcher.upcoming(), lambda load: self.state.spawn(load, f"{self.stage.name} loads"))
        return cut

    # -- the models ------------------------------------------------------------------------------------------------

    def _ask(self, number: int, cut: Cut, batch: Block, clock: StageClock) -> tuple[Block, float]:
        assert cut.key is not None
        try:
            with self._hosts.lease(cut.key, expected=True) as task:
                self._read_ahead_no_more()
                clock.task = task
                return answered_by(task, batch)
        except ModelError as error:
            return self._refused(batch, error, cut.key), 0.0
        finally:
            clock.task = None

    def _refused(self, batch: Block, error: ModelError, key: str) -> Block:
        """Answer a batch whose model cannot be used: every row fails, with the reason."""
        model_id = None if key == NO_KEY else key
        failures = [
            RowFailure.of(error, stage=self._name, ordinal=row, row=None, model_id=model_id)
            for row in range(batch.num_rows)
        ]
        return batch.derive(batch.batch.slice(0, 0), np.array([], dtype=np.int64), failures)

    def _close_models(self) -> None:
        self._hosts.close()

    # -- numbers ---------------------------------------------------------------------------------------------------

    def _models_done(self) -> ModelStatistics | None:
        done = self._hosts.model_statistics()
        return None if done is None else replace(done, handler=type(self._handler).__name__)

    def manager_statistics(self) -> ManagerStatistics:
        """Return which models are in memory, and how often they changed places."""
        return self._hosts.statistics()

    def loading(self) -> tuple[Loading, ...]:
        """Return which models are being loaded."""
        return self._hosts.loading()

    def tasks(self) -> list[Task]:
        """Return the models in memory."""
        return self._hosts.tasks()


def bytes_of_process(task: Task) -> int | None:
    """Return what the process of a task takes of the machine's memory; None where it has none."""
    pid = getattr(task, "pid", None)
    return None if pid is None else proportional_bytes(pid)


def rows_by_key(keys: pa.Array, *, column: str, step: str) -> dict[str, NDArray[np.int64]]:
    """Return for each key, as text, which rows have it; `NO_KEY` for null.

    >>> rows_by_key(pa.array([7, 8, 7]), column="k", step="s")
    {'7': array([0, 2]), '8': array([1])}

    Raises:
        StageError: the column holds something that is no key.
    """
    try:
        encoded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
        names = [str(value) for value in encoded.dictionary.to_pylist()]
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise StageError(
            f"step {step!r} finds the names of models in column {column!r}, which holds {keys.type}; it has to hold"
            " text or numbers"
        ) from None
    codes = np.asarray(encoded.indices.fill_null(len(names)), dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    rows: dict[str, NDArray[np.int64]] = {}
    for code, some in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        name = NO_KEY if code == len(names) else names[code]
        rows[name] = np.sort(np.concatenate([rows[name], some])) if name in rows else some
    return rows
