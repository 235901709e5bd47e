"""Attempts: calls made again, with the pauses that the retry says."""

import pytest

from headrace.model.attempts import Attempts
from headrace.plan.retry import Retry


class Flaky:
    def __init__(self, failures: int, error: Exception) -> None:
        self.left, self.error = failures, error
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return self.calls


def test_pauses_come_between_the_calls() -> None:
    pauses: list[float] = []
    attempts = Attempts(Retry(4, backoff_secs=1), pause=pauses.append, luck=lambda: 0.0)
    assert attempts.call(Flaky(3, OSError())) == 4
    assert pauses == [0.5, 1.0, 2.0]
    assert (attempts.made, attempts.repeated) == (4, 3)


def test_the_last_error_is_the_one_that_is_raised_and_the_next_call_begins_anew() -> None:
    attempts = Attempts(Retry(2), pause=lambda secs: None)
    with pytest.raises(OSError, match="busy"):
        attempts.call(Flaky(9, OSError("busy")))
    assert attempts.made == 2
    assert attempts.call(Flaky(0, OSError())) == 1
    assert (attempts.made, attempts.repeated) == (1, 1)


def test_what_is_not_worth_it_is_called_once() -> None:
    attempts = Attempts(Retry(5, on=OSError), pause=lambda secs: None)
    flaky = Flaky(1, ValueError())
    with pytest.raises(ValueError):
        attempts.call(flaky)
    assert flaky.calls == 1


def test_a_pause_that_raises_ends_the_attempts() -> None:
    def stopping(secs: float) -> None:
        raise KeyboardInterrupt

    flaky = Flaky(9, OSError())
    with pytest.raises(KeyboardInterrupt):
        Attempts(Retry(5), pause=stopping).call(flaky)
    assert flaky.calls == 1
