"""Folders for the files of one run: gone with it, also where it was killed."""

import os
import subprocess
import sys

import pytest

from headrace.engine.scratch_folder import ScratchFolder


@pytest.fixture(autouse=True)
def _temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_two_at_a_time_leave_each_other_alone(tmp_path):
    first, second = ScratchFolder(), ScratchFolder()
    (first.path / "file").write_text("mine")
    second.close()
    assert (first.path / "file").read_text() == "mine"
    first.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    script = """
import os, signal
from headrace.engine.scratch_folder import ScratchFolder
(ScratchFolder().path / "file").write_text("left")
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", script], env=env, timeout=60, check=False)
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == 2
    folder = ScratchFolder()
    assert {path.name for path in tmp_path.iterdir()} == {folder.path.name, folder.path.name + ".lock"}
    folder.close()
