"""Runs that write to S3 and are killed, at every step that matters there and at random; each goes on on an empty disk."""

from __future__ import annotations

import io
import json
import random
import signal
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from headrace.engine.commit.crash import IN_STORES
from headrace.engine.commit.status import read_status
from headrace.sinks.store import Store as Objects
from tests.engine.commit.crashing_job import JOB
from tests.engine.commit.test_crashes import start
from tests.s3 import Store, serving

pytestmark = pytest.mark.heavy
OUT = "s3://bucket/out"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving(monkeypatch) as store:
        yield store


def rows(store: Store) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for name in store.names():
        if name.startswith("out/part-"):
            table = pq.read_table(io.BytesIO(store.get(name)))
            found += zip(table["id"].to_pylist(), table["child"].to_pylist(), strict=True)
    return found


def check_what_is_visible(store: Store) -> None:
    shown = rows(store)
    assert shown == JOB.rows()[: len(shown)]


def run_until_done(store: Store) -> None:
    process = start("parquet", OUT, seed=1)
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert rows(store) == JOB.rows()
    letters = [store.get(name) for name in store.names() if name.startswith("out/_dead_letters/")]
    failed = sorted(json.loads(line)["row"]["id"] for data in letters for line in data.splitlines())
    assert failed == JOB.failed()
    assert read_status(OUT).state == "finished"
    assert read_status(OUT).rows == len(JOB.rows())
    hidden = [name for name in store.names() if name.startswith("out/.headrace/")]
    assert all(name.startswith("out/.headrace/log/") for name in hidden)


@pytest.mark.parametrize(
    "point", [*IN_STORES, "part.prepared", "journal.before", "part.published", "rewrite.replaced", "finish.marked"]
)
def test_death_at_a_step(store: Store, point: str) -> None:
    crashed = start("parquet", OUT, seed=0, crash_at=point)
    crashed.communicate(timeout=100)
    assert crashed.returncode == -signal.SIGKILL
    check_what_is_visible(store)
    run_until_done(store)


def test_kills_at_random_moments(store: Store) -> None:
    rng = random.Random(1)
    for seed in range(4):
        process = start("parquet", OUT, seed)
        assert process.stdout is not None
        for _ in range(rng.randint(1, 8)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=100)
        check_what_is_visible(store)
    run_until_done(store)


def test_an_object_is_created_once(store: Store) -> None:
    objects = Objects(OUT)
    assert objects.create("log/0.json", b"ours")
    assert objects.create("log/0.json", b"ours"), "a lost answer is no lost race"
    assert not objects.create("log/0.json", b"theirs")
    assert objects.get("log/0.json") == b"ours"
