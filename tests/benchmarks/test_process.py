import subprocess
import sys

import pytest

from benchmarks.process import ProgramFailedError, peak_memory_mib, process_tree_bytes, wall_secs

FAILS = [sys.executable, "-c", "import sys; print('no such model', file=sys.stderr); sys.exit(3)"]


def test_a_program_that_fails_is_no_measurement():
    with pytest.raises(ProgramFailedError, match=r"exit code 3[\s\S]*no such model"):
        wall_secs(FAILS)
    with pytest.raises(ProgramFailedError, match="exit code 3"):
        peak_memory_mib(FAILS)


def test_a_program_runs_to_its_end(tmp_path):
    written = tmp_path / "written"
    assert wall_secs([sys.executable, "-c", f"open({str(written)!r}, 'w').close()"]) > 0
    assert written.exists()


def test_memory_of_children_counts_too():
    holds = "held = bytearray(100 * 2**20); print('held', flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holds!r}], check=True)"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        held = process_tree_bytes(process.pid)
        process.communicate(b"done\n")
    assert held > 100 * 2**20
    assert process_tree_bytes(process.pid) == 0


def test_peak_memory_is_in_mib():
    assert 1 < peak_memory_mib([sys.executable, "-c", "import numpy"]) < 1_000
