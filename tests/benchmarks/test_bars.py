import math

import pytest

from benchmarks.bars import Bar


@pytest.mark.parametrize(
    ("relation", "value", "holds"),
    [("<=", 1.05, True), ("<=", 1.0501, False), (">=", 1.05, True), (">=", 1.04, False)],
)
def test_a_bar_holds_up_to_and_at_its_bound(relation, value, holds):
    assert Bar(figure="f", unit="x", relation=relation, bound=1.05).holds(value) is holds


@pytest.mark.parametrize("relation", ["<=", ">="])
def test_a_figure_that_is_not_a_number_holds_no_bar(relation):
    assert not Bar(figure="f", unit="x", relation=relation, bound=1).holds(math.nan)
