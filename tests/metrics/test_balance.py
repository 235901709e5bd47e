from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metrics.balance import Balance, balance_of
from headrace.metrics.statistics import RunStatistics, SinkStatistics, SourceStatistics, StageStatistics, StepStatistics


def run(read: int, *steps: StepStatistics, written: int, sinks: int = 1) -> RunStatistics:
    return RunStatistics(
        sources=(SourceStatistics(name="read", rows=read),),
        stages=(StageStatistics(name="stage", steps=steps),),
        sinks=(SinkStatistics(name="write", rows=written),) * sinks,
    )


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_what_steps_account_for_adds_up(passed: int, filtered: int, failed: int) -> None:
    read = passed + filtered + failed
    step = StepStatistics(name="s", rows_in=read, rows_out=passed, filtered=filtered, failed=failed)
    balance = balance_of(run(read, step, written=passed))
    assert balance.holds is True
    assert balance.other == 0


@given(st.integers(0, 100), st.integers(0, 100))
def test_more_written_than_read_never_holds(read: int, surplus: int) -> None:
    assert balance_of(run(read, written=read + surplus)).holds is (surplus == 0)


def test_fan_out_is_counted_apart() -> None:
    step = StepStatistics(name="words", rows_in=10, rows_out=33, failed=1, fans_out=True)
    balance = balance_of(run(10, step, written=33))
    assert str(balance) == "read 10 + made 24 by fan-out = written 33 + failed 1 + filtered 0"


def test_rows_finished_before_are_named() -> None:
    balance = balance_of(run(40, written=10))
    assert balance.holds
    assert str(balance).endswith("+ finished before or beyond a limit 30")


def test_branches_make_no_equation() -> None:
    balance = balance_of(run(40, written=40, sinks=2))
    assert balance.holds is None
    assert str(balance) == "read 40; 2 outputs: written 80 + failed 0 + filtered 0"


def test_rows_that_cannot_be_read_are_read_and_failed() -> None:
    statistics = RunStatistics(
        sources=(SourceStatistics(name="read", rows=7, failed=3),), sinks=(SinkStatistics(name="write", rows=7),)
    )
    assert str(balance_of(statistics)) == "read 10 = written 7 + failed 3 + filtered 0"


@pytest.mark.parametrize(("read", "sign"), [(3, "="), (2, "≠")])
def test_the_sign_tells_whether_it_holds(read: int, sign: str) -> None:
    assert f" {sign} " in str(Balance(read=read, written=3))
