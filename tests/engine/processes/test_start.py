import os
import subprocess
import sys

from headrace.engine.processes.start import THREAD_VARIABLES, thread_environment


def test_libraries_get_their_share_of_the_cores(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert thread_environment(3) == dict.fromkeys(THREAD_VARIABLES, "3")
    assert set(thread_environment(0).values()) == {"1"}


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert "OMP_NUM_THREADS" not in thread_environment(1)


def test_a_process_whose_parent_is_gone_already_ends_at_once():
    code = "from headrace.engine.processes.start import die_with_parent; die_with_parent(1); print('still here')"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
