import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.commit.entries import Totals
from headrace.engine.commit.failures import ENOUGH_ROWS, FailureLimit, Failures
from headrace.errors import TooManyFailuresError
from headrace.records.failure import RowFailure


def failure(ordinal: int = 0, kind: str = "ValueError", stage: str = "map") -> RowFailure:
    return RowFailure(stage=stage, ordinal=ordinal, row="{}", error_type=kind, message=f"{kind} of {ordinal}")


def stops(failures: Failures, *, at_end: bool = False) -> bool:
    try:
        failures.check(at_end=at_end)
    except TooManyFailuresError:
        return True
    return False


@given(limit=st.integers(0, 5), before=st.integers(0, 4), failed=st.integers(0, 8), nulled=st.integers(0, 3))
def test_rows_of_earlier_runs_and_nulled_rows_count(limit: int, before: int, failed: int, nulled: int) -> None:
    failures = Failures(FailureLimit(rows=limit))
    failures.begin(Totals(rows=100, dead_letters=before), finished=True)
    failures.add([failure(i) for i in range(failed)], rows=10, nulled=nulled)
    assert stops(failures) == (before + failed + nulled > limit)


@given(rows=st.integers(0, 2 * ENOUGH_ROWS), failed=st.integers(0, 300), filtered=st.integers(0, 5000))
def test_a_ratio_counts_from_a_number_of_rows_on_and_at_the_end(rows: int, failed: int, filtered: int) -> None:
    failures = Failures(FailureLimit(ratio=0.1), filtered=lambda: filtered)
    failures.add([failure(i) for i in range(failed)], rows=rows)
    too_many = failed > 0.1 * (rows + failed + filtered)
    assert stops(failures) == (too_many and rows + failed >= ENOUGH_ROWS)
    assert stops(failures, at_end=True) == too_many


def test_no_limit_stops_nothing() -> None:
    failures = Failures(FailureLimit())
    failures.add([failure(i) for i in range(5_000)])
    assert not stops(failures, at_end=True)


def test_the_commonest_causes_are_told_with_their_numbers() -> None:
    failures = Failures(FailureLimit(rows=4))
    failures.add([failure(i) for i in range(3)] + [failure(i, "KeyError", "filter") for i in range(2)], rows=15)
    with pytest.raises(
        TooManyFailuresError,
        match=r"5 of 20 rows failed, more than max_failed_rows=4 allows: 3 × ValueError in step 'map' \(such as: "
        r"ValueError of 0\); 2 × KeyError in step 'filter'",
    ):
        failures.check()
