from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.batch import Batch
from headrace.model.batching import LINGER_SECS, Batcher
from headrace.model.keyed_batching import KeyedBatcher
from headrace.model.manager import ModelManager, Verdict
from headrace.plan.nodes import BatchLimits


class Residents:
    """Says who is in memory, and that one of them has to leave for anybody else once it is full."""

    def __init__(self, *names: str, room: int = 1) -> None:
        self.names, self.room = list(names), room

    def is_ready(self, name: str) -> bool:
        return name in self.names

    def has_place(self, name: str) -> bool:
        return not self.victims(name)

    def victims(self, name: str) -> tuple[str, ...]:
        return () if name in self.names or len(self.names) < self.room else (self.names[0],)


def keyed(residents: Residents | ModelManager, *, padded: bool = False, **limits: object) -> KeyedBatcher:
    bounds = BatchLimits(**limits)  # type: ignore[arg-type]
    return KeyedBatcher(bounds, make=lambda _: Batcher(bounds, padded=padded), residence=residents)


def rows_by_key(keys: str) -> dict[str, np.ndarray]:
    return {key: np.flatnonzero(np.array(list(keys)) == key) for key in sorted(set(keys))}


def taken(batch: Batch | None) -> tuple[str | None, list[tuple[int, list[int]]]]:
    assert batch is not None
    return batch.key, [(piece.source, np.asarray(piece.rows).tolist()) for piece in batch.pieces]


def test_a_batch_has_rows_of_one_key_from_any_blocks() -> None:
    batcher = keyed(Residents("a", "b", room=2), max_batch_size=3)
    batcher.add(7, rows_by_key("abab"), 0.0)
    batcher.add(8, rows_by_key("bba"), 0.0)
    assert taken(batcher.take(0.0)) == ("a", [(7, [0, 2]), (8, [2])])
    assert taken(batcher.take(0.0)) == ("b", [(7, [1, 3]), (8, [0])])
    assert batcher.take(0.0) is None
    assert taken(batcher.take(0.0, flush=True)) == ("b", [(8, [1])])
    assert batcher.waiting_rows == 0


def test_a_model_that_others_would_leave_for_waits_until_the_window_is_full() -> None:
    batcher = keyed(Residents("a"), max_batch_size=2, sort_window_rows=10)
    batcher.add(0, rows_by_key("bbaaa"), 0.0)
    assert taken(batcher.take(0.0)) == ("a", [(0, [2, 3])])
    assert batcher.take(0.0) is None
    assert batcher.has_room
    batcher.add(1, rows_by_key("ccccc"), 0.0)
    assert not batcher.has_room
    assert taken(batcher.take(0.0)) == ("a", [(0, [4])]), "it is about to leave, so that its rows go before"
    assert taken(batcher.take(0.0)) == ("b", [(0, [0, 1])])


def test_it_waits_for_nobody_where_there_is_room() -> None:
    batcher = keyed(Residents("a", room=2), max_batch_size=2)
    batcher.add(0, rows_by_key("bb"), 0.0)
    assert taken(batcher.take(0.0)) == ("b", [(0, [0, 1])])


def test_it_waits_no_longer_when_no_row_comes_for_a_moment() -> None:
    batcher = keyed(Residents("a"))
    assert batcher.wait_until(0.0) is None
    batcher.add(0, rows_by_key("b"), 1.0)
    assert batcher.take(1.0) is None
    assert batcher.wait_until(1.0) == 1.0 + LINGER_SECS
    batcher.add(1, rows_by_key("c"), 1.05)
    assert batcher.take(1.0 + LINGER_SECS) is None, "rows still come"
    assert taken(batcher.take(1.05 + LINGER_SECS)) == ("b", [(0, [0])])


def test_a_time_limit_swaps_models_for_the_row_whose_time_is_up() -> None:
    batcher = keyed(Residents("a"), max_batch_duration_secs=2.0, min_batch_size=4)
    batcher.add(0, rows_by_key("b"), 0.0)
    batcher.add(1, rows_by_key("aa"), 1.0)
    assert batcher.wait_until(1.0) == 2.0
    assert batcher.take(1.9) is None
    assert taken(batcher.take(2.0)) == ("a", [(1, [0, 1])]), "it would have to leave"
    assert taken(batcher.take(2.0)) == ("b", [(0, [0])])


def test_each_key_learns_its_own_size() -> None:
    batcher = keyed(Residents("a", "b", room=2))
    batcher.add(0, rows_by_key("ab"), 0.0)
    batcher.of("a").observe(64, 0.001)
    assert batcher.of("a").target_rows > batcher.of("b").target_rows
    assert batcher.statistics().target_rows == batcher.of("a").target_rows


def test_rows_of_like_length_go_together_within_their_key() -> None:
    batcher = keyed(Residents("a", "b", room=2), padded=True, max_batch_weight=20)
    weights = {"a": np.array([2.0, 9.0, 2.0]), "b": np.array([5.0])}
    batcher.add(0, {"a": np.array([0, 1, 3]), "b": np.array([2])}, 0.0, weights)
    assert taken(batcher.take(0.0, flush=True)) == ("a", [(0, [0, 3])])


WINDOW = 12


@given(
    st.lists(st.text("abcde", min_size=1, max_size=6), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 5),
    st.booleans(),
)
def test_each_row_goes_once_and_none_is_overtaken_by_more_than_a_window(
    blocks: list[str], room: int, most: int, padded: bool
) -> None:
    manager = ModelManager(room, sizes=dict.fromkeys("abcde", 1))
    batcher = keyed(manager, padded=padded, max_batch_size=most, sort_window_rows=WINDOW)
    keys, first_of = "".join(blocks), np.cumsum([0, *map(len, blocks)]).tolist()
    went: list[int] = []
    added = 0
    while len(went) < len(keys):
        while added < len(blocks) and batcher.has_room:
            batcher.add(added, rows_by_key(blocks[added]), 0.0)
            added += 1
        batch = batcher.take(0.0, flush=added == len(blocks))
        assert (batch is not None) or batcher.has_room
        if batch is None:
            continue
        rows = [first_of[piece.source] + int(row) for piece in batch.pieces for row in piece.rows]
        assert {keys[row] for row in rows} == {batch.key}
        assert batch.rows == len(rows) <= most
        waiting = set(range(first_of[added])) - set(went)
        assert max(rows) < min(waiting) + WINDOW + 6, "a block is the least that can be added"
        went += rows
        lease(manager, batch.key)
    assert sorted(went) == list(range(len(keys)))
    assert batcher.waiting_rows == 0


def lease(manager: ModelManager, name: str | None) -> None:
    assert name is not None
    while (decision := manager.ask(name)).verdict is Verdict.WAIT:
        for gone in decision.leave:
            manager.left(gone)
    if decision.verdict is Verdict.LOAD:
        manager.loaded(name, lease=True)
    manager.release(name)


@pytest.mark.parametrize("rows", [40])
def test_two_models_in_turn_with_room_for_one_are_loaded_once_each(rows: int) -> None:
    manager = ModelManager(1_000, sizes={"a": 600, "b": 600})
    batcher = keyed(manager, max_batch_size=4)
    batcher.add(0, rows_by_key("ab" * (rows // 2)), 0.0)
    order = []
    while (batch := batcher.take(0.0, flush=True)) is not None:
        order.append(batch.key)
        lease(manager, batch.key)
    assert "".join(filter(None, order)) == "aaaaabbbbb"
    assert manager.statistics().loads == 2
