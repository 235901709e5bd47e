from __future__ import annotations

import numpy as np
import pytest

from benchmarks.hot_swap import LOST, MISSING, longest_pause, one_round


def test_a_pause_is_what_comes_beyond_the_usual_time() -> None:
    ends = np.repeat(np.array([0.0, 40.0, *range(60, 80, 2), 86.0, 88.0]), 8)
    assert longest_pause(ends) == (3.0, 2.0)


@pytest.mark.heavy
def test_versions_take_over_while_it_measures() -> None:
    still, changing, taken, wrong = one_round("thread", quick=True)
    assert len(still) > 0
    assert len(changing) > 0
    assert taken > 0
    assert wrong == 0
    assert LOST != MISSING
