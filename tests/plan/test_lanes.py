"""Where a step's rows come by several ways, its failures are recorded on one."""

from headrace.plan.graph import Plan
from headrace.plan.lanes import first_lanes
from headrace.plan.nodes import Collect, Limit, Node, Read, Reshuffle, Shuffle, Union


def lanes(node: Node) -> dict[str, tuple[int, ...]]:
    end = Collect(name="end", upstream=node)
    return dict(first_lanes(Plan([end]), end))


def test_the_first_way_counts() -> None:
    read = Read(name="read", source=object())  # type: ignore[arg-type]
    left = Reshuffle(name="left", upstream=read)
    inner = Union(name="inner", upstreams=(left, read))
    outer = Union(name="outer", upstreams=(inner, Reshuffle(name="right", upstream=read)))
    assert lanes(outer) == {"end": (), "outer": (), "inner": (0,), "left": (0, 0), "right": (1,), "read": (0, 0)}


def test_a_way_that_a_limit_cuts_off_is_the_last_choice() -> None:
    read = Read(name="read", source=object())  # type: ignore[arg-type]
    limit = Limit(name="limit", upstream=read, rows=1)
    assert lanes(Union(name="u", upstreams=(limit, read)))["read"] == (1,)
    assert lanes(limit)["read"] == ()


def test_behind_a_shuffle_the_lanes_before_it_are_forgotten() -> None:
    read = Read(name="read", source=object())  # type: ignore[arg-type]
    before = Union(name="before", upstreams=(read, read))
    shuffle = Shuffle(name="shuffle", upstream=before, seed=0, buffer_rows=2)
    other = Read(name="other", source=object())  # type: ignore[arg-type]
    found = lanes(Union(name="u", upstreams=(other, shuffle)))
    assert (found["shuffle"], found["before"], found["read"], found["other"]) == ((1,), (1,), (1,), (0,))
