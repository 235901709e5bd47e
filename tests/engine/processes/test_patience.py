"""Patience: time counts for one call at a time, from when it is seen."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.processes.patience import LOOK_SECS, Patience
from headrace.model.calls import Call


@given(looks=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 10)), min_size=1))
def test_it_is_over_only_after_the_same_mark_was_seen_for_longer_than_the_limit(looks) -> None:
    patience, now, changes, since = Patience({0: 5.0}), 0.0, 0, None
    for more, later in looks:
        now += later
        changes += more
        if since is None or more:
            since = now
        assert patience.is_over(changes, Call(0, changes, 0, 1), now) is (now - since > 5.0)


def test_there_is_no_limit_between_calls_nor_for_other_steps() -> None:
    patience = Patience({0: 5.0})
    assert not any(patience.is_over(1, None, now) for now in (0.0, 100.0))
    assert not any(patience.is_over(2, Call(1, 0, 0, 1), now) for now in (100.0, 200.0))


def test_short_limits_are_looked_after_more_often() -> None:
    assert Patience({}).look_secs == LOOK_SECS
    assert Patience({0: 1.0, 1: 100.0}).look_secs == 0.2
