"""Interruptions: an orderly stop, one message, and every handler back in its place."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from headrace.errors import RunInterrupted
from headrace.runners.interrupts import _leave_at_once, interruptible


@pytest.fixture(autouse=True)
def _excepthook():
    before = sys.excepthook
    yield
    sys.excepthook = before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_says_how_to_go_on(number) -> None:
    stops = []
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with (
        pytest.raises(RunInterrupted, match=rf"interrupted by {number.name}; 3 rows are safe\. Run the same") as caught,
        interruptible(lambda: stops.append(1), finished=lambda: "3 rows are safe"),
    ):
        signal.raise_signal(number)
    assert stops == [1]
    assert caught.value.signal_number == number
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_run_that_leaves_nothing_behind_promises_nothing() -> None:
    with pytest.raises(RunInterrupted) as caught, interruptible(lambda: None):
        raise KeyboardInterrupt
    assert str(caught.value) == "interrupted by SIGINT"


def test_an_interruption_further_in_is_told_once() -> None:
    stops = []
    with pytest.raises(RunInterrupted, match="inner"), interruptible(lambda: stops.append(1)):
        raise RunInterrupted("inner")
    assert stops == []


def test_an_application_s_own_handler_of_sigterm_goes_first() -> None:
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        with interruptible(lambda: None):
            signal.raise_signal(signal.SIGTERM)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_errors_pass_without_a_stop() -> None:
    stops = []
    with pytest.raises(ValueError, match="no"), interruptible(lambda: stops.append(1)):
        raise ValueError("no")
    assert stops == []


def test_threads_but_the_main_one_leave_signals_alone() -> None:
    seen = []

    def work() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with interruptible(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_script_that_does_not_handle_it_ends_with_the_message_and_of_the_signal() -> None:
    code = (
        "import atexit, signal\n"
        "from headrace.runners.interrupts import interruptible\n"
        "atexit.register(print, 'left in order')\n"
        "with interruptible(lambda: None):\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=60)
    assert ended.returncode == -signal.SIGTERM
    assert ended.stderr == "headrace: interrupted by SIGTERM\n"
    assert ended.stdout == "left in order\n"


def test_from_the_first_signal_on_the_next_one_ends_the_process_without_a_traceback() -> None:
    with pytest.raises(RunInterrupted), interruptible(lambda: None):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:  # nothing of ours has run since
            assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is _leave_at_once


def test_one_more_while_the_first_is_on_its_way_up_ends_a_script_likewise() -> None:
    code = (
        "import signal\n"
        "from headrace.runners.interrupts import interruptible\n"
        "try:\n"
        "    with interruptible(lambda: None):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "finally:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=60)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == "headrace: interrupted by SIGINT\n"
