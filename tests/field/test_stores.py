"""The command line with an output in S3: the machine goes away, another goes on, and files come in later."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.commit.status import read_status
from tests.field.running import end_of, headrace, start, until, write_script
from tests.s3 import Store, serving

pytestmark = pytest.mark.heavy
OUT = "s3://bucket/out"
COMMAND = ("infer", "python:slow:Slow", "names*.csv", "-o", OUT, "--format", "json", "--max-batch-size", "1")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving(monkeypatch) as store:
        yield store


def names(store: Store) -> list[str]:
    parts = [store.get(name) for name in store.names() if name.startswith("out/part-")]
    return [json.loads(line)["name"] for part in parts for line in part.splitlines()]


def calls() -> Counter[str]:
    return Counter(Path("calls.log").read_text().split())


def test_another_machine_goes_on_where_one_was_killed(store: Store) -> None:
    write_script(
        """
        import time
        import headrace as hr

        class Slow(hr.ModelHandler):
            def load_model(self):
                return None
            def run_inference(self, batch, model, inference_args=None):
                time.sleep(0.05)  # a model at work
                with open("calls.log", "a") as log:
                    log.writelines(row["name"] + "\\n" for row in batch)
                return [row["name"].upper() for row in batch]
        """,
        "slow.py",
    )
    everybody = [f"n{i:03d}" for i in range(150)]
    Path("names.csv").write_text("name\n" + "".join(name + "\n" for name in everybody))
    for machine in ("one", "two"):
        Path(machine).mkdir()
    killed = start("-m", "headrace", *COMMAND, TMPDIR=str(Path("one").absolute()))
    until(lambda: read_status(OUT).waiting_rows > 20, killed)
    killed.kill()
    assert end_of(killed).code == -9
    safe = read_status(OUT).waiting_rows

    ended = headrace(*COMMAND, TMPDIR=str(Path("two").absolute()))
    assert ended.code == 0, ended
    assert names(store) == everybody
    assert f"{safe} of the rows from earlier runs" in ended.out
    assert sum(calls().values()) <= 2 * 150 - safe, "what was in the store was not made again"
    assert list(Path("two").iterdir()) == [], "nothing is left on the machine"

    Path("names-late.csv").write_text("name\nlate\n")
    assert headrace(*COMMAND).code == 0
    assert names(store) == [*everybody, "late"]
    assert calls()["n000"] <= 2
    told = headrace("status", OUT).out
    assert told.startswith(f"{OUT}: finished\n  151 rows in 2 parts, ")
    assert "  input: 2 done\n" in told
