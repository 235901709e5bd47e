import pytest

from headrace.engine.processes.crashes import describe_exit, last_frames

DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007f1 (most recent call first):
  File "threading.py", line 320 in wait

Current thread 0x00007f2 (most recent call first):
  File "ctypes/__init__.py", line 519 in string_at
  File "model.py", line 3 in run
  File "a.py", line 1 in a
  File "b.py", line 1 in b
  File "c.py", line 1 in c
  File "d.py", line 1 in d

Extension modules: numpy, pyarrow.lib (total: 2)
"""


@pytest.mark.parametrize(
    ("returncode", "words"),
    [(1, "status 1"), (-9, "signal 9"), (-11, "SIGSEGV"), (-6, "SIGABRT"), (-63, "signal 63"), (-15, "SIGTERM")],
)
def test_an_exit_status_in_words(returncode, words):
    assert words in describe_exit(returncode)


def test_the_innermost_frames_of_the_thread_that_crashed():
    frames = last_frames(DUMP, limit=2).split("\n")
    assert frames == ['File "ctypes/__init__.py", line 519 in string_at', 'File "model.py", line 3 in run']


@pytest.mark.parametrize("dump", ["", "Fatal Python error: Aborted\n\n<no Python frame>\n"])
def test_without_frames_nothing_is_said(dump):
    assert last_frames(dump) == ""


def test_a_kill_for_want_of_memory_is_told_as_such():
    assert "out-of-memory killer" in describe_exit(-9, out_of_memory=True)
    assert "signal 9" not in describe_exit(-9, out_of_memory=True)
