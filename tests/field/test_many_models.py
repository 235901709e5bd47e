"""Two models that do not fit together, asked in turn; looked at from outside."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.field.running import end_of, rows_in, start, write_script

MB = 1_000_000

SCRIPT = """
    import json, os, sys, time
    import headrace as hr

    class Lang(hr.ModelHandler):
        def __init__(self, name, megabytes):
            self.name, self.megabytes = name, megabytes

        def note(self, what):
            with open("events.jsonl", "a") as log:  # one write: lines of several processes do not mix
                log.write(json.dumps({"what": what, "name": self.name, "pid": os.getpid(), "at": time.monotonic()}) + "\\n")

        def load_model(self):
            self.note("loads")
            self.ballast = []
            for _ in range(self.megabytes // 10):  # as a framework reads a file: piece by piece
                self.ballast.append(bytearray(b"x") * 10_000_000)
                time.sleep(0.02)
            return self.name

        def unload(self, model):
            self.note("leaves")

        def run_inference(self, batch, model):
            self.note("begins")
            time.sleep(0.01)
            self.note("ends")
            return [f"{model}:{row['id']}" for row in batch]

    items = [{"id": i, "lang": "ab"[i % 2]} for i in range(400)]
    models = {"a": Lang("a", 200), "b": Lang("b", 200)}
    if "c" in sys.argv[2]:
        items += [{"id": 400 + i, "lang": "c"} for i in range(3)]
        models["c"] = Lang("c", 1500)
    if "declared" in sys.argv[2]:
        models["c"].model_bytes = 1_500_000_000
    ds = hr.from_items(items).run_inference(
        hr.KeyedModelHandler(models, key="lang"), max_batch_size=16, concurrency=4,
        memory_budget=hr.MemoryBudget(cpu=sys.argv[1]),
    )
    ds.write_json("out").run(on_error="dead_letter", memory_limit="4GB")
"""


def most_bytes_of_models(process: subprocess.Popen[str]) -> int:
    """Look at a job's worker processes until it ends; return the most memory that they had together."""
    most = 0
    while process.poll() is None:
        together = 0
        for child in psutil.Process(process.pid).children(recursive=True) if psutil.pid_exists(process.pid) else []:
            try:
                together += child.memory_full_info().pss
            except (psutil.Error, OSError):
                continue  # it has ended meanwhile
        most = max(most, together)
        time.sleep(0.02)
    return most


def events() -> dict[str, list[dict[str, Any]]]:
    by_pid: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in Path("events.jsonl").read_text().splitlines():
        event = json.loads(line)
        by_pid[f"{event['name']} {event['pid']}"].append(event)
    return by_pid


def run(budget_mb: int, third: str = "") -> int:
    write_script(SCRIPT)
    process = start("script.py", f"{budget_mb}MB", third)
    most = most_bytes_of_models(process)
    ended = end_of(process)
    assert ended.code == 0, ended.err
    return most


def check_answers(*, unanswered: int = 0) -> None:
    assert [(row["id"], row["prediction"]) for row in rows_in()] == [(i, f"{'ab'[i % 2]}:{i}") for i in range(400)]
    files = Path("out/_dead_letters").glob("*")
    letters = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [(letter["row"]["id"], letter["error_type"]) for letter in letters] == [
        (400 + i, "ModelTooLargeError") for i in range(unanswered)
    ]
    for name, happened in events().items():
        if name.startswith("c"):
            continue  # its load was ended
        what = [event["what"] for event in happened]
        assert what[0] == "loads"
        assert "leaves" not in what[:-1], "nobody is thrown out and used again"
        for begins, ends in zip(what[1:-1:2], what[2::2], strict=False):
            assert (begins, ends) == ("begins", "ends"), "nobody is thrown out at work"


@pytest.mark.skipif(sys.platform != "linux", reason="psutil tells shared pages apart on Linux only")
def test_with_room_for_one_they_take_turns_seldom_and_the_budget_holds() -> None:
    most = run(400, "c")
    check_answers(unanswered=3)
    assert most <= 1.05 * 400 * MB
    good = [name for name in events() if not name.startswith("c")]
    assert len(good) <= 4, "each is loaded about once, rather than for each of 400 rows"
    spans = sorted((e[0]["at"], e[-1]["at"]) for name, e in events().items() if not name.startswith("c"))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans)), "never both in memory"


def test_with_room_for_both_each_is_loaded_once() -> None:
    run(800)
    check_answers()
    assert sorted(name[0] for name in events()) == ["a", "b"]


def test_one_that_is_said_to_be_too_large_is_told_before_anything_runs() -> None:
    write_script(SCRIPT)
    ended = end_of(start("script.py", "400MB", "c declared"))
    assert ended.code == 1
    assert "model 'c' is said to take 1.5 GB, and the memory budget for all models is 400.0 MB" in ended.err
    assert not Path("events.jsonl").exists()
