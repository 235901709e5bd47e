import itertools
import threading
from contextlib import contextmanager

import pytest

from benchmarks.attribution import Attribution


class Work:
    def outer(self):
        return self.inner() + 1

    def inner(self):
        return 1

    @property
    def size(self):
        return 7

    @contextmanager
    def context(self):
        yield "entered"

    def fails(self):
        raise ValueError


@pytest.fixture
def ticking(monkeypatch):
    """Every look at the clock is a second later; a class of its own for each test."""
    work = type("Work", (Work,), dict(vars(Work)))
    ticks = itertools.count()
    return Attribution(clock=lambda: float(next(ticks))), work


def test_of_calls_inside_one_another_the_outermost_counts(ticking):
    cpu, work = ticking
    cpu.watch("journal", work, "outer")
    cpu.watch("statistics", work, "inner")
    assert work().outer() == 2
    assert (cpu.secs, cpu.calls) == ({"journal": 1.0}, {"journal": 1})
    assert work().inner() == 1
    assert cpu.secs == {"journal": 1.0, "statistics": 1.0}


def test_properties_and_calls_that_raise_are_watched(ticking):
    cpu, work = ticking
    cpu.watch("journal", work, "size", "fails")
    assert work().size == 7
    with pytest.raises(ValueError):
        work().fails()
    assert work().size == 7
    assert cpu.calls == {"journal": 3}


def test_what_happens_inside_a_context_does_not_count(ticking):
    cpu, work = ticking
    cpu.watch_context("statistics", work, "context")
    cpu.watch("journal", work, "inner")
    with work().context() as entered:
        assert entered == "entered"
        work().inner()
    with pytest.raises(ValueError), work().context():
        raise ValueError
    assert (cpu.secs, cpu.calls) == ({"statistics": 6.0, "journal": 1.0}, {"statistics": 6, "journal": 1})


def test_threads_are_counted_apart(ticking):
    cpu, work = ticking
    cpu.watch("journal", work, "outer")
    threads = [threading.Thread(target=work().outer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cpu.calls == {"journal": 4}
