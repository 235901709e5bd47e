from __future__ import annotations

import numpy as np

from benchmarks.benchmark import Settings
from benchmarks.many_models import EQUAL, OVER, UNEQUAL, fewest_loads, measure


def test_the_fewest_loads_of_cases_that_can_be_counted_by_hand() -> None:
    alone = np.array(["a"] * 50)
    assert fewest_loads(alone, room=1, window_rows=10) == 1
    in_turn = np.array(["a", "b"] * 50)
    assert fewest_loads(in_turn, room=2, window_rows=10) == 2
    assert fewest_loads(in_turn, room=1, window_rows=100) == 2
    # With room for one, each has to be loaded about once in 11 rows, but for one that stays.
    assert 9 <= fewest_loads(in_turn, room=1, window_rows=10) <= 20


def test_orders_by_model_are_measured() -> None:
    found = measure(Settings(quick=True))
    assert found.figures[EQUAL] <= 1.25
    assert found.figures[UNEQUAL] >= 3
    assert found.figures[OVER] == 0
