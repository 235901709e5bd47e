from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.pace import HAND_ON_SECS, paced


class Work:
    """Items that take their time, and a clock that counts how often it is looked at."""

    def __init__(self, secs: list[float]) -> None:
        self.secs, self.now, self.looks = secs, 0.0, 0

    def clock(self) -> float:
        self.looks += 1
        return self.now

    def runs(self) -> list[list[int]]:
        found = []
        for run in paced(range(len(self.secs)), clock=self.clock):
            taken = []
            for item in run:
                self.now += self.secs[item]  # the loop's body is what takes the time
                taken.append(item)
            found.append(taken)
        return found


@given(st.lists(st.sampled_from([0.0, 1e-6, 1e-3, 0.02, 0.3, 5.0]), max_size=60))
def test_all_items_come_in_order_and_no_run_is_empty(secs: list[float]) -> None:
    runs = Work(secs).runs()
    assert [item for run in runs for item in run] == list(range(len(secs)))
    assert all(runs)


@given(st.floats(1e-5, 10.0))
def test_even_rows_are_handed_on_in_time(secs: float) -> None:
    for run in Work([secs] * 3_000).runs():
        assert len(run) * secs <= HAND_ON_SECS + 2 * secs


def test_slow_rows_are_handed_on_one_by_one() -> None:
    assert Work([1.0] * 5).runs() == [[0], [1], [2], [3], [4]]


def test_rows_that_become_slow_delay_no_more_rows_than_came_before_them() -> None:
    runs = Work([1e-6] * 100 + [10.0] * 300).runs()
    assert len(runs[0]) <= 200
    assert all(len(run) == 1 for run in runs[1:])


def test_fast_rows_stay_together_and_the_clock_is_looked_at_seldom() -> None:
    work = Work([1e-6] * 50_000)
    assert len(work.runs()) == 1
    assert work.looks < 20
