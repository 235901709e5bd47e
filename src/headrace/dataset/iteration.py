"""Iterations: rows or batches for the caller's loop, which may be left and gone on with later."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from headrace.engine.bookmark import Cursor, Mark
    from headrace.plan.graph import Plan

ItemT = TypeVar("ItemT")


class Iteration(Iterator[ItemT], Generic[ItemT]):
    """What `iter_rows` and `iter_batches` return: an iterator that can say how far it has come.

    >>> import headrace as hr
    >>> batches = hr.range(5).iter_batches(batch_size=2)
    >>> next(batches)["id"].tolist()
    [0, 1]
    >>> state = batches.state()
    >>> [batch["id"].tolist() for batch in hr.range(5).iter_batches(batch_size=2, state=state)]
    [[2, 3], [4]]
    """

    def __init__(
        self,
        plan: Plan,
        cut: Callable[[Iterator[pa.RecordBatch]], Generator[tuple[ItemT, int], None, None]],
        *,
        state: Mapping[str, Any] | None,
    ) -> None:
        from headrace.engine.bookmark import Cursor, mark_from
        from headrace.plan.rules import optimised

        self._plan = optimised(plan, on_error="fail")
        mark = None if state is None else mark_from(state, self._plan)
        self._cursor = Cursor(mark)
        self._items = cut(_batches(plan, mark, self._cursor))

    def __next__(self) -> ItemT:
        item, rows = next(self._items)
        self._cursor.advance(rows)
        return item

    def close(self) -> None:
        """Stop the run behind the iteration; leaving the iteration to itself does the same."""
        self._items.close()

    def state(self) -> dict[str, Any]:
        """Return how far the iteration has come, for `state=` of the same pipeline: small, and ready for JSON.

        Going on begins with the row behind the last one handed out. A state is bound to the content of the pipeline and
        to the input as it is (names, sizes, times of modification). It names a place: what is before it is passed over,
        but read again where a limit or a shuffle needs it.

        Raises:
            ResumeError: the pipeline has something that cannot be compared with a later one, or would not answer the
                same rows again.
        """
        from headrace.engine.bookmark import state_of

        return state_of(self._plan, self._cursor.mark())


def _batches(plan: Plan, mark: Mark | None, cursor: Cursor) -> Iterator[pa.RecordBatch]:
    """Run the plan behind a mark. Holds no reference to the iteration, so that dropping that ends the run at once."""
    from headrace.runners import local

    for block in local.blocks(plan, collected=None if mark is None else mark.done()):
        rest = cursor.feed(block)
        if rest.num_rows:
            yield rest.batch
