"""Objects that are replaced while a run reads them by several requests: no rows of two versions pass for one input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import headrace as hr
from headrace.errors import SourceError
from headrace.sources import extents, seen
from headrace.sources.json import JsonSource
from tests.stores import FlakyFileSystem, flaky_store

URL = "flaky://bucket/in.jsonl"
ROWS = 400


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FlakyFileSystem]]:
    """A store whose objects are cut, and looked at, though they are small."""
    monkeypatch.setattr(extents, "CUT_ABOVE_BYTES", 20_000)
    monkeypatch.setattr(extents, "SPLIT_BYTES", 10_000)
    monkeypatch.setattr(seen, "ONE_REQUEST_BYTES", 10_000)
    with flaky_store(monkeypatch) as store:
        put(0)
        yield store


def put(first: int, rows: int = ROWS) -> None:
    lines = "".join(json.dumps({"id": first + i, "text": "x" * 100}) + "\n" for i in range(rows))
    fsspec.filesystem("flaky").pipe_file(URL, lines.encode())


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen once a split has been read."""

    def plan(change: Callable[[], None]) -> None:
        read, todo = JsonSource.read, [change]

        def reading(self: Any, split: Any, **options: Any) -> Any:
            yield from read(self, split, **options)
            if todo:
                todo.pop()()

        monkeypatch.setattr(JsonSource, "read", reading)

    return plan


def run(out: Path) -> hr.RunResult:
    return hr.read_json(URL).write_json(out).run(num_cpus=1)


@pytest.mark.parametrize("rows", [ROWS, ROWS + 7, ROWS - 7])
def test_an_object_that_is_replaced_between_two_pieces_is_named(
    store: type[FlakyFileSystem], meanwhile: Any, tmp_path: Path, rows: int
) -> None:
    meanwhile(lambda: put(100_000, rows))
    with pytest.raises(SourceError, match=r"bucket/in\.jsonl changed while it was being read; let nobody write"):
        run(tmp_path / "out")


def test_an_object_of_another_size_than_listed_is_named(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    look = seen.SeenObjects.look
    monkeypatch.setattr(seen.SeenObjects, "look", lambda *given: (put(0, ROWS + 50), look(*given)))
    with pytest.raises(SourceError, match="changed while it was being read"):
        run(tmp_path / "out")


def test_an_object_that_stays_is_read(store: type[FlakyFileSystem], tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    assert result.rows_written == ROWS
    assert result.statistics.sources[0].splits > 2


def test_small_objects_are_not_asked_for(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(seen, "ONE_REQUEST_BYTES", 10**9)
    monkeypatch.setattr(seen.SeenObjects, "_state", lambda *_: pytest.fail("asked"))
    assert run(tmp_path / "out").rows_written == ROWS


@pytest.mark.parametrize("fault", ["silent", "failing"])
def test_a_store_that_does_not_say_is_believed(
    store: type[FlakyFileSystem], meanwhile: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    def info(self: Any, path: str, **_: Any) -> dict[str, Any]:
        if fault == "failing":
            raise ConnectionError("no answer")
        return {"name": path, "size": 1, "type": "file"}

    job = hr.read_json(URL).write_json(tmp_path / "out")
    job.explain()  # it is listed before
    meanwhile(lambda: monkeypatch.setattr(FlakyFileSystem, "info", info))
    assert job.run(num_cpus=1).rows_written == ROWS
