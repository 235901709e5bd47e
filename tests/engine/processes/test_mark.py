"""Marks: written by one process, read by another that maps the same file."""

import os

import pytest

from headrace.engine.processes.mark import Mark, MarkedCalls
from headrace.engine.processes.shared_files import anonymous_file
from headrace.engine.processes.suspects import Sentence
from headrace.errors import RowCrash
from headrace.model.calls import Call


@pytest.fixture
def marks():
    fd = anonymous_file("mark")
    pair = Mark(fd), Mark(fd)
    os.close(fd)
    yield pair
    for mark in pair:
        mark.close()
        mark.close()


def test_what_one_writes_the_other_reads(marks) -> None:
    ours, theirs = marks
    assert ours.read() == (0, None)
    MarkedCalls(theirs).begin(1, 2**62, 3, 4)
    assert ours.read() == (1, Call(1, 2**62, 3, 4))


def test_a_mark_outlives_its_writer(marks) -> None:
    ours, theirs = marks
    child = os.fork()
    if child == 0:
        MarkedCalls(theirs).begin(0, 7, 0, 1)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert ours.read() == (1, Call(0, 7, 0, 1))


def test_calls_leave_their_marks_and_those_refused_do_not(marks) -> None:
    ours, theirs = marks
    calls = MarkedCalls(theirs)
    calls.begin(0, 5, 0, 1)
    assert ours.read() == (1, Call(0, 5, 0, 1))
    calls.end()
    assert ours.read() == (2, None)
    calls.resume()
    assert ours.read() == (3, Call(0, 5, 0, 1))
    calls.end()
    calls.refuse({Call(0, 6, 0, 1): Sentence(message="killed", timed_out=False, attempt=2)})
    with pytest.raises(RowCrash, match="killed"):
        calls.begin(0, 6, 0, 1)
    assert ours.read() == (4, None)
    calls.begin(0, 7, 0, 1)
