import random

import pytest

from benchmarks.accelerators import ACCELERATORS, Accelerator
from benchmarks.batch_size import OVER, SLOWER, best_size, learnt, measure, seconds_a_row
from benchmarks.benchmark import Settings
from headrace.model.cost import ENGINE_SECS

STEADY = Accelerator(name="steady", fixed_secs=0.1, row_secs=0.001, limit_rows=300, noise=0)


def test_a_batch_costs_by_the_rule_and_in_tiles() -> None:
    assert STEADY.seconds(10) == pytest.approx(0.11)
    tiled = Accelerator(name="tiled", fixed_secs=0, row_secs=1, tile_rows=8)
    assert [tiled.seconds(rows) for rows in (1, 8, 9)] == [8, 8, 16]
    assert STEADY.measured_seconds(10, first=False, luck=random.Random(0)) == pytest.approx(0.11)


def test_the_best_size_is_the_largest_that_fits_and_stays_short() -> None:
    seconds, rows = best_size(STEADY)
    assert 290 <= rows <= 300
    assert seconds == pytest.approx((STEADY.seconds(rows) + ENGINE_SECS) / rows)


def test_what_is_learnt_is_judged_by_the_true_cost() -> None:
    found, failures = learnt(STEADY, random.Random(0))
    assert 280 <= found <= 300
    assert 1 <= failures <= 10
    assert seconds_a_row(STEADY, 1) > 50 * seconds_a_row(STEADY, found)


def test_every_accelerator_is_measured() -> None:
    found = measure(Settings(quick=True))
    assert len(found.runs) == len(ACCELERATORS)
    assert found.figures[SLOWER] <= 1.05
    assert found.figures[OVER] <= 0
