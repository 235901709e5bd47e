"""What all kinds of steps have in common: the function made once a replica, the counts, the failures."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from headrace.engine.attended import Attended
from headrace.engine.failing import fail_row, stage_error
from headrace.engine.side_data import opened
from headrace.engine.task import StepCounts
from headrace.engine.user_batches import no_rows
from headrace.errors import HeadraceError
from headrace.model.attempts import Attempts
from headrace.model.calls import resting
from headrace.records.columns import empty_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from headrace.model.calls import Calls
    from headrace.plan.steps import OnError, Step
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure
    from headrace.records.first_rows import FirstRows


class StepRunner:
    """One step in one replica: holds its function and its counts."""

    afresh = True
    """Whether the next block to come is the first since the stage took a new one."""

    def __init__(
        self,
        step: Step,
        on_error: OnError,
        *,
        number: int,
        first_rows: FirstRows,
        calls: Calls | None,
        pause: Callable[[float], None],
    ) -> None:
        self.step = step
        self.on_error = on_error
        self.counts = StepCounts()
        self._first_rows = first_rows
        self.sound = 0
        """Rows that have succeeded, up to the block at work."""
        self._made = self._make(step)
        self._call = partial(self._made, **self._side_inputs(step)) if step.side_inputs else self._made
        attempts = None if step.retry is None else Attempts(step.retry, pause=resting(calls, pause))
        self.attended = Attended(self._call, attempts=attempts, calls=calls, step=number)
        self.function = self._call if attempts is None and calls is None else self._attended()

    def _make(self, step: Step) -> Callable[..., Any]:
        if not inspect.isclass(step.function):
            return step.function
        with self._named("could not be set up"):
            instance: Any = step.function(*step.args, **dict(step.kwargs))
            setup = getattr(instance, "setup", None)
            if setup is not None:
                setup()
        return cast("Callable[..., Any]", instance)

    def _side_inputs(self, step: Step) -> dict[str, Any]:
        with self._named("could not get its side inputs"):
            return opened(step.side_inputs)

    def _attended(self) -> Callable[..., Any]:
        return self.attended

    def close(self) -> None:
        if inspect.isclass(self.step.function):
            close = getattr(self._made, "close", None)
            if close is not None:
                with self._named("could not be closed"):
                    close()

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except HeadraceError:
            raise
        except Exception as error:
            raise stage_error(self.step.name, error, what) from error

    def counted(self, block: Block) -> Iterator[Block]:
        """Run one block, keeping the counts; blocks without rows pass without a call."""
        counts = self.counts
        if block.num_rows == 0:
            yield self.empty(block)
            return
        counts.rows_in += block.num_rows
        self.attended.enter(block, afresh=self.afresh)
        self.afresh = False
        started = time.perf_counter()
        pieces = self.run(block)
        del block
        for piece in pieces:
            self.attended.away()
            counts.seconds += time.perf_counter() - started
            counts.rows_out += piece.num_rows
            counts.failed += sum(failure.stage == self.step.name for failure in piece.failures)
            counts.retried = self.attended.repeated
            yield piece
            del piece
            started = time.perf_counter()
            self.attended.back()
        self.attended.away()
        counts.seconds += time.perf_counter() - started
        if (tallies := getattr(self._made, "agreement_tallies", None)) is not None:
            counts.tallies = Counter(tallies)
        self.sound = counts.rows_in - counts.failed

    def empty(self, block: Block) -> Block:
        """Return an empty block with the columns that the step would give, as far as they are known."""
        return block.with_batch(self.nothing())

    def nothing(self) -> pa.RecordBatch:
        """Return a batch of no rows."""
        schema = self.step.output_schema
        return empty_columns(0) if schema is None else no_rows(schema)

    def run(self, block: Block) -> Iterator[Block]:
        raise NotImplementedError

    def failure(self, block: Block, row: int, error: Exception, values: Any, *, sound: int) -> RowFailure:
        """Turn a failed row into a dead letter, or end the run; `sound` rows of the block have succeeded before it."""
        self._first_rows.failed(error)
        if self.on_error != "fail" and self._first_rows.hopeless(succeeded=self.sound + sound):
            raise self._first_rows.stop(self.step.name) from error
        attempt = self.attended.attempts_of(error)
        return fail_row(self.step.name, block, row, error, values, on_error=self.on_error, attempt=attempt)
