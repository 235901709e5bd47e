"""The verdict on ended stages."""

from types import SimpleNamespace

from headrace.engine.balance import verdict
from headrace.engine.task import StepCounts
from headrace.errors import BalanceError, TooManyFailuresError


def stage(*, unwanted=False, fans_out=False, **counts):
    return SimpleNamespace(
        stage=SimpleNamespace(steps=[SimpleNamespace(name="step", fans_out=fans_out)]),
        step_counts=lambda: {"step": StepCounts(**counts)},
        outlet=SimpleNamespace(unwanted=unwanted),
    )


def test_rows_that_all_have_a_place_are_in_order() -> None:
    assert verdict([stage(rows_in=10, rows_out=5, filtered=3, failed=2)], {}) is None


def test_a_lost_row_is_told() -> None:
    error = verdict([stage(rows_in=10, rows_out=9)], {})
    assert isinstance(error, BalanceError)
    assert "got 10 rows and accounts for 9" in str(error)


def test_so_is_a_row_too_many() -> None:
    assert isinstance(verdict([stage(rows_in=10, rows_out=11)], {}), BalanceError)


def test_a_step_that_fans_out_may_give_any_number() -> None:
    assert verdict([stage(rows_in=10, rows_out=40, fans_out=True)], {}) is None


def test_a_stage_cut_off_by_a_limit_need_not_add_up() -> None:
    assert verdict([stage(rows_in=10, rows_out=9, unwanted=True)], {}) is None


def test_a_step_whose_rows_all_failed_is_told_with_its_first_cause() -> None:
    error = verdict([stage(rows_in=3, failed=3)], {"step": "ValueError: no"})
    assert isinstance(error, TooManyFailuresError)
    assert "all 3 rows failed, the first with ValueError: no" in str(error)


def test_a_stage_without_rows_is_in_order() -> None:
    assert verdict([stage()], {}) is None
