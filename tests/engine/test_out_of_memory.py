"""Workers that the kernel kills for want of memory, in a control group made for the test."""

import json
import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

LIMIT_BYTES = 550 * 2**20

JOB = """
import os, sys, time
from pathlib import Path

Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))  # this process, and all that it starts

import headrace as hr
import json

folder, what = Path(sys.argv[2]), sys.argv[3]

def wait_for_two(what):
    # Two processes want and hold their memory at one time; the second may never come, since it was killed.
    (folder / f"{what}-{os.getpid()}").touch()
    given_up = time.monotonic() + 5
    while len(list(folder.glob(f"{what}-*"))) < 2 and time.monotonic() < given_up:
        time.sleep(0.01)

class Hungry(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        ids = [row["id"] for row in batch]
        if what == "together":
            wait_for_two("here")
            held = b"x" * (300 * 2**20)
            wait_for_two("held")
            del held
        elif 5 in ids:
            held = b"x" * (900 * 2**20)
        return ids

copies = 2 if what == "together" else 1
ds = hr.range(8).run_inference(Hungry(), batch_size=2, isolation="process", concurrency=copies)
result = ds.write_json(str(folder / "out")).run(on_error="dead_letter", num_cpus=2, memory_limit="10GB")
print(json.dumps(result.to_dict()))
"""


@pytest.fixture
def group():
    """A control group with little memory; of version 1 or 2, whichever there is."""
    one, two = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    if (one / "memory.limit_in_bytes").exists():
        top, name, swap = one, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
    elif "memory" in _text(two / "cgroup.subtree_control"):
        top, name, swap = two, "memory.max", "memory.swap.max"
    else:
        pytest.skip("no control group with a memory limit can be made here")
    path = top / f"headrace-test-{uuid.uuid4().hex}"
    try:
        path.mkdir()
        (path / name).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    if (path / swap).exists():
        (path / swap).write_text("0" if top == two else str(LIMIT_BYTES))
    yield path
    path.rmdir()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def run(group: Path, folder: Path, what: str) -> dict:
    script = folder / "job.py"
    script.write_text(textwrap.dedent(JOB))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, str(script), str(group), str(folder), what],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "killed by the kernel's out-of-memory killer" in done.stderr
    return json.loads(done.stdout)


def test_two_that_do_not_fit_together_become_one_and_no_row_is_lost(group, tmp_path) -> None:
    report = run(group, tmp_path, "together")
    stage = report["statistics"]["stages"][-1]
    assert stage["out_of_memory"] >= 1
    assert (report["balance"]["written"], report["balance"]["failed"]) == (8, 0)


def test_a_row_that_needs_more_than_there_is_is_set_aside_with_that_reason(group, tmp_path) -> None:
    report = run(group, tmp_path, "alone")
    assert (report["balance"]["written"], report["balance"]["failed"]) == (7, 1)
    (path,) = (tmp_path / "out" / "_dead_letters").glob("*.jsonl")
    (letter,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (letter["row"], letter["error_type"]) == ({"id": 5}, "RowCrash")
    assert "out-of-memory killer" in letter["message"]
