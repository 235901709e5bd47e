"""The disk fills up, or may no longer be written, in the middle of a run: it says so, and the next run goes on."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.field.running import SRC, rows_in, write_script

# A disk of its own, in a mount namespace of its own, so that nobody needs to be root and nothing has to be unmounted.
PRIVATE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc"]
# Modes of files count, as they do not for root.
HUMBLE = "setpriv --inh-caps -all --bounding-set -dac_override,-dac_read_search"

SCRIPT = """
    import os, sys, time
    import headrace as hr

    FORMAT, CLOSED_AT = sys.argv[1], int(os.environ.get("CLOSED_AT", 10**9))

    class Answer(hr.ModelHandler):
        def load_model(self):
            return None
        def run_inference(self, batch, model):
            time.sleep(0.002 * len(batch))
            with open("calls.log", "a") as log:
                log.writelines(f"{row['id']}\\n" for row in batch)
            if any(row["id"] >= CLOSED_AT for row in batch):
                for folder in ("out", "out/_dead_letters", "out/.headrace/staging", "out/.headrace/segments"):
                    if os.path.isdir(folder):
                        os.chmod(folder, 0o555)
            return [row["text"][::-1] for row in batch]

    def picky(row):
        if row["id"] % 50 == 7:
            raise ValueError("no")
        return row

    try:
        answered = hr.read_json("in.jsonl").map(picky).run_inference(Answer(), max_batch_size=10, version="1")
        job = getattr(answered, "write_" + FORMAT)("out", rows_per_part=60)
        job.run(on_error="dead_letter")
    except hr.HeadraceError as error:
        sys.exit(f"{type(error).__name__}: {error}")
"""
ROWS = 300
GOOD = [i for i in range(ROWS) if i % 50 != 7]


@pytest.fixture(autouse=True)
def _private_disks(folder: Path) -> None:
    tried = subprocess.run(
        [*PRIVATE, f"mkdir -p out; mount -t tmpfs none out; {HUMBLE} true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"this machine lets nobody mount a disk of his own: {tried.stderr.strip()}")
    write_script(SCRIPT)
    draw = random.Random(0)
    with open("in.jsonl", "w") as file:
        for i in range(ROWS):
            file.write(json.dumps({"id": i, "text": f"{draw.getrandbits(2400):0600x}"}) + "\n")


def on_disk(size: str, *, format: str, mend: str, **env: str) -> tuple[str, str]:
    """Run the script on a disk of its own, mend the disk, and run it again; return what the two runs said.

    What was in the output between the two lies in `before`, and at the end in `after`; the rows that the model was asked
    for by the second run alone are in calls.log.
    """
    run = f"{HUMBLE} {sys.executable} script.py {format}"
    steps = [
        f"mount -t tmpfs -o size={size} none out",
        f"{run} >first 2>&1 && exit 3",
        "cp -r out before; rm -f calls.log",
        mend,
        f"CLOSED_AT=1000000 {run} >second 2>&1",
        "cp -r out after",
    ]
    path = {"PYTHONPATH": SRC, "PATH": os.environ["PATH"]}
    subprocess.run([*PRIVATE, "\n".join(steps)], env={**path, **env}, timeout=100, check=True)
    return Path("first").read_text(), Path("second").read_text()


def check_whole(folder: str, *, finished: bool) -> None:
    found = [row["id"] for row in rows_in(folder)]
    assert found == GOOD[: len(found)]
    failed = [row["row"]["id"] for row in rows_in(f"{folder}/_dead_letters")]
    bad = [i for i in range(ROWS) if i % 50 == 7]
    assert failed == bad[: len(failed)]
    if finished:
        assert (len(found), len(failed)) == (len(GOOD), len(bad))


def check_both() -> None:
    """All was whole in between, nothing is missing at the end, and what was in the output was not done again."""
    check_whole("before", finished=False)
    check_whole("after", finished=True)
    assert not {int(line) for line in Path("calls.log").read_text().split()} & {row["id"] for row in rows_in("before")}


FORMATS = ["json", pytest.param("parquet", marks=pytest.mark.heavy), pytest.param("csv", marks=pytest.mark.heavy)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "size", ["64k", *(pytest.param(s, marks=pytest.mark.heavy) for s in ("16k", "128k", "200k", "300k"))]
)
def test_the_disk_is_full(size: str, format: str) -> None:
    first, second = on_disk(size, format=format, mend="mount -o remount,size=64m out")
    assert "SinkError: cannot write" in first
    assert re.search("the disk is full|make sure that the disk has room", first)
    assert "run the same command again" in first
    assert second == ""
    check_both()


@pytest.mark.parametrize("format", FORMATS)
def test_the_output_may_no_longer_be_written(format: str) -> None:
    first, second = on_disk("64m", format=format, mend="chmod -R u+w out", CLOSED_AT="150")
    assert "SinkError: cannot write" in first
    assert "permission denied; give this user the right to write there" in first
    assert second == ""
    assert rows_in("before")
    check_both()
