"""Plans: order, names, branches and units."""

import pytest

from headrace.errors import PlanError
from headrace.plan.graph import AUTOMATIC, Plan, UnitMap
from headrace.plan.nodes import Collect, Limit, Read, Shuffle, Union
from headrace.records.block import Unit


def read(name="read"):
    return Read(name=name, source=object())


def test_nodes_come_after_what_they_read_from() -> None:
    r = read()
    limit = Limit(name="limit", upstream=r, rows=1)
    out = Collect(name="collect", upstream=limit)
    assert Plan([out]).nodes == (r, limit, out)


def test_a_name_given_twice_is_an_error() -> None:
    r = read()
    limit = Limit(name="mine", upstream=Limit(name="mine", upstream=r, rows=2), rows=1)
    with pytest.raises(PlanError, match="'mine' appears twice"):
        Plan([Collect(name="c", upstream=limit)])


def test_automatic_names_are_numbered_and_keep_clear_of_given_ones() -> None:
    node = read()
    for name in ("limit" + AUTOMATIC, "limit_2", "limit" + AUTOMATIC, "limit" + AUTOMATIC):
        node = Limit(name=name, upstream=node, rows=1)
    plan = Plan([Collect(name="c", upstream=node)])
    names = [plan.name_of(n) for n in plan.nodes]
    assert len(set(names)) == len(names)
    assert "limit_2" in names
    assert "limit" in names


def test_a_plan_needs_an_output() -> None:
    with pytest.raises(PlanError, match="nothing to run"):
        Plan([])


def test_units_are_numbered_over_all_sources_and_told_apart_by_lane() -> None:
    a, b = read("a"), read("b")
    both = Union(name="u", upstreams=(a, b, a))
    plan = Plan([Collect(name="c", upstream=both)])
    units = UnitMap(plan, {id(a): 2, id(b): 1})
    assert units.at(both) == [Unit(0, (0,)), Unit(0, (2,)), Unit(1, (0,)), Unit(1, (2,)), Unit(2, (1,))]


def test_a_shuffle_makes_one_unit_of_its_own() -> None:
    a = read()
    shuffle = Shuffle(name="s", upstream=a, seed=0, buffer_rows=10)
    plan = Plan([Collect(name="c", upstream=shuffle)])
    units = UnitMap(plan, {id(a): 3})
    assert units.at(shuffle) == [Unit(3)]


def test_two_consumers_of_a_node_are_a_branch() -> None:
    a = read()
    one, two = Collect(name="1", upstream=a), Collect(name="2", upstream=a)
    assert Plan([one, two]).consumers[id(a)] == (one, two)


def test_a_unions_inputs_follow_one_another_whatever_output_comes_first() -> None:
    a, b = read("a"), read("b")
    both = Union(name="u", upstreams=(a, b))
    plan = Plan([Collect(name="b_alone", upstream=b), Collect(name="c", upstream=both)])
    units = UnitMap(plan, {id(a): 1, id(b): 2})
    assert units.at(both) == [Unit(0, (0,)), Unit(1, (1,)), Unit(2, (1,))]


def test_what_comes_in_twice_stands_where_it_came_in_first() -> None:
    a, b, c = read("a"), read("b"), read("c")
    left = Union(name="left", upstreams=(a, b))
    both = Union(name="u", upstreams=(left, Union(name="right", upstreams=(b, c))))
    plan = Plan([Collect(name="c_alone", upstream=c), Collect(name="all", upstream=both)])
    base = UnitMap(plan, {id(a): 1, id(b): 1, id(c): 1}).base
    assert [base[id(n)] for n in (a, b, c)] == [0, 1, 2]


def test_opposite_orders_are_refused() -> None:
    a, b = read("a"), read("b")
    unions = Union(name="u", upstreams=(a, b)), Union(name="v", upstreams=(b, a))
    plan = Plan([Collect(name=f"to_{union.name}", upstream=union) for union in unions])
    with pytest.raises(PlanError, match=r"put a, b into opposite orders; run their jobs one after another"):
        UnitMap(plan, {id(a): 1, id(b): 1})
