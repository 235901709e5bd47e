import pytest

from headrace.testing import ManualClock


def test_time_stands_still_until_it_is_told_to_go_on():
    clock = ManualClock(10.0)
    assert (clock(), clock()) == (10.0, 10.0)
    clock.advance(0.5)
    clock.advance(0.0)
    assert clock() == 10.5


def test_time_does_not_run_backwards():
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)
