"""How often models are swapped where 20 share the room for 3; simulated, so that no clock is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bars import Bar
from benchmarks.benchmark import Benchmark, Measurement, Settings, say
from headrace.model.batching import Batcher
from headrace.model.keyed_batching import KeyedBatcher
from headrace.model.manager import ModelManager, Verdict
from headrace.plan.nodes import BatchLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MODELS, ROOM, WINDOW_ROWS, BLOCK_ROWS = 20, 3, 1_000, 10
ROWS, QUICK_ROWS = 100_000, 6_000

EQUAL = "loads beside the fewest that any order within the window can do with"
UNEQUAL = "fewer loads than in order of arrival, models of unequal size"
OVER = "bytes over the budget"


def measure(settings: Settings) -> Measurement:
    """Route the same rows by Zipf's law in both ways, with models of equal and of unequal size."""
    rows = QUICK_ROWS if settings.quick else ROWS
    keys = zipf_keys(np.random.default_rng(1), rows)
    equal = dict.fromkeys(names(), 100)
    unequal = {name: 40 + 60 * (number * 7 % 5) for number, name in enumerate(names())}
    mean = sum(unequal.values()) // len(unequal)
    least = fewest_loads(keys, room=ROOM, window_rows=WINDOW_ROWS + BLOCK_ROWS - 1)
    ours, over = ordered_loads(keys, equal, ROOM * 100)
    arrival = arrival_loads(keys, equal, ROOM * 100)
    say(f"  equal models: {ours:,} loads, at least {least:,} in any order; {arrival:,} in order of arrival")
    ours_unequal, over_unequal = ordered_loads(keys, unequal, ROOM * mean)
    arrival_unequal = arrival_loads(keys, unequal, ROOM * mean)
    say(f"  unequal models: {ours_unequal:,} loads; {arrival_unequal:,} in order of arrival")
    return Measurement(
        runs={
            "loads, equal models": [ours],
            "loads, equal models, at least": [least],
            "loads, equal models, in order of arrival": [arrival],
            "loads, unequal models": [ours_unequal],
            "loads, unequal models, in order of arrival": [arrival_unequal],
        },
        figures={EQUAL: ours / least, UNEQUAL: arrival_unequal / ours_unequal, OVER: max(over, over_unequal)},
    )


def names() -> list[str]:
    """Name the models, that with the most rows first."""
    return [f"model {number}" for number in range(MODELS)]


def zipf_keys(luck: np.random.Generator, rows: int) -> NDArray[np.str_]:
    """Draw a key for each row: the n-th model's share goes with n to the power of -1.1."""
    shares = np.arange(1, MODELS + 1) ** -1.1
    return np.array(names())[luck.choice(MODELS, size=rows, p=shares / shares.sum())]


def ordered_loads(keys: NDArray[np.str_], sizes: Mapping[str, int], budget_bytes: int) -> tuple[int, int]:
    """Return how often models are loaded by batcher and manager, and by how much the budget is exceeded."""
    limits = BatchLimits(max_batch_size=64, sort_window_rows=WINDOW_ROWS)
    manager = ModelManager(budget_bytes, sizes=dict(sizes))
    batcher = KeyedBatcher(limits, make=lambda _: Batcher(limits), residence=manager)
    at = answered = 0
    while answered < len(keys):
        while batcher.has_room and at < len(keys):
            block = keys[at : at + BLOCK_ROWS]
            batcher.add(at, {str(key): np.flatnonzero(block == key) for key in np.unique(block)}, now=0.0)
            manager.want(map(str, block))
            at += len(block)
        batch = batcher.take(0.0, flush=at >= len(keys))
        if batch is not None:
            assert batch.key is not None
            _use(manager, batch.key)
            answered += batch.rows
    return manager.statistics().loads, max(0, manager.statistics().peak_bytes - budget_bytes)


def arrival_loads(keys: NDArray[np.str_], sizes: Mapping[str, int], budget_bytes: int) -> int:
    """Return how often models are loaded where rows are answered as they come, and the least recently used leaves."""
    manager = ModelManager(budget_bytes, sizes=dict(sizes))
    for key in keys:
        _use(manager, str(key))
    return manager.statistics().loads


def _use(manager: ModelManager, name: str) -> None:
    """Have a model loaded, lease it, and give it back, as one thread does."""
    while (decision := manager.ask(name)).verdict is Verdict.WAIT:
        for gone in decision.leave:
            manager.left(gone)
    if decision.verdict is Verdict.LOAD:
        manager.loaded(name, lease=True)
    manager.release(name)


def fewest_loads(keys: NDArray[np.str_], *, room: int, window_rows: int) -> int:
    """Return a number of loads below which nobody can go, who knows all rows to come and has room for so many models.

    Only rows less than a window behind the oldest that waits may be answered. So a model that stays while the oldest
    row moves on from a to b answers rows of [a, b + window): with L stays of length `s` in all, L × window + s has to
    cover its rows, but for the L - 1 widest gaps between them. All stays together are no longer than room × rows. What
    a further load of a model saves becomes less with each; so the fewest are found by taking the best again and again.
    """
    needed, savings, loads = 0, [], 0
    for key in np.unique(keys):
        places = np.flatnonzero(keys == key)
        span = int(places[-1] - places[0])
        needed += max(0, span - window_rows)
        left = max(0, span - window_rows)
        loads += 1
        for gap in np.sort(np.diff(places))[::-1]:
            if left <= 0:
                break
            saved = min(left, window_rows + int(gap))
            savings.append(saved)
            left -= saved
    for saved in sorted(savings, reverse=True):
        if needed <= room * len(keys):
            break
        needed -= saved
        loads += 1
    return loads


BENCHMARK = Benchmark(
    name="many-models",
    about="how often models are swapped, 20 in the room of 3, rows by Zipf(1.1), window of 1,000 rows; simulated",
    bars=(
        Bar(figure=EQUAL, unit="x", relation="<=", bound=1.25),
        Bar(figure=UNEQUAL, unit="x", relation=">=", bound=3),
        Bar(figure=OVER, unit="bytes", relation="<=", bound=0),
    ),
    measure=measure,
)
