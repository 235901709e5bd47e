"""The input changes while a run reads it: no row is made up silently, and the next run says what happened."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import HeadraceError, NoInputError, ResumeError, SourceError
from headrace.sources.csv import CsvSource
from headrace.sources.json import JsonSource
from headrace.sources.parquet import ParquetSource
from tests.field.running import rows_in

SOURCES: dict[str, Any] = {"csv": CsvSource, "json": JsonSource, "parquet": ParquetSource}
ROWS, FILES = 60, 3


def write(path: str | Path, first: int) -> None:
    """Write a file that is large enough for a split of its own."""
    kind = str(path).rsplit(".", 1)[-1]
    rows = [{"id": first + i, "text": f"{first + i:08d}" * 25_000} for i in range(ROWS)]
    if kind == "json":
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "csv":
        pyarrow.csv.write_csv(pa.Table.from_pylist(rows), path)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path, compression="none", use_dictionary=False)


def cut_between_rows(path: Path) -> None:
    data = path.read_bytes()
    os.truncate(path, data.find(b"\n", len(data) // 2) + 1 or len(data) // 2)


def replace(path: Path) -> None:
    new = path.with_stem("new")
    write(new, 900_000)
    os.replace(new, path)


@pytest.fixture(params=["csv", *(pytest.param(kind, marks=pytest.mark.heavy) for kind in ("json", "parquet"))])
def kind(request: pytest.FixtureRequest) -> str:
    for number in range(FILES):
        write(f"part-{number}.{request.param}", 1_000 * number)
    return request.param


@pytest.fixture
def meanwhile(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[Path], object]], None]]:
    """Let something happen to the last file once the first one is being read."""

    def plan(change: Callable[[Path], object]) -> None:
        read = SOURCES[kind].read
        todo = [change]

        def reading(self: Any, split: Any, **options: Any) -> Any:
            for number, block in enumerate(read(self, split, **options)):
                if split.number == 0 and number == 0 and todo:
                    todo.pop()(Path(f"part-{FILES - 1}.{kind}"))
                yield block

        monkeypatch.setattr(SOURCES[kind], "read", reading)

    yield plan
    monkeypatch.undo()


def job(kind: str) -> Any:
    return getattr(hr, f"read_{kind}")(f"part-*.{kind}").write_json("out")


def check_next_run(kind: str) -> None:
    """The next run either says what changed, or goes on with what has been read, and then all of it is sound."""
    refused = None
    try:
        job(kind).run(num_cpus=1)
    except HeadraceError as error:
        refused = str(error)
    if refused is not None:
        assert "part-2" in refused
        return
    rows = rows_in()
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["text"] == f"{row['id']:08d}" * 25_000 for row in rows)


@pytest.mark.parametrize("change", [replace, cut_between_rows, Path.touch], ids=["replaced", "cut", "touched"])
def test_a_file_that_changes_is_named(kind: str, change: Callable[[Path], object], meanwhile: Any) -> None:
    meanwhile(change)
    with pytest.raises(SourceError, match=f"part-2.{kind}") as caught:
        job(kind).run(num_cpus=1)
    if (kind, change) == ("parquet", cut_between_rows):
        assert "is truncated" in str(caught.value)
    else:
        assert "changed while it was being read" in str(caught.value)
        assert "run the same command again" in str(caught.value)
    check_next_run(kind)


def edit(path: Path) -> None:
    """Change one byte of what has been read, and nothing of the file's size."""
    with open(path, "r+b") as file:
        file.seek(2_000_000)
        file.write(b"#")


@pytest.mark.parametrize("change", [Path.touch, edit])
def test_a_file_that_is_touched_while_it_is_read_is_what_it_was(
    kind: str, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SOURCES[kind].read
    path = Path(f"part-0.{kind}")

    def reading(self: Any, split: Any, **options: Any) -> Any:
        yield from read(self, split, **options)
        if split.label == str(path):
            before = path.stat().st_mtime_ns
            change(path)
            os.utime(path, ns=(before + 1, before + 1))  # times may be coarse

    monkeypatch.setattr(SOURCES[kind], "read", reading)
    if change is edit:
        with pytest.raises(SourceError, match=f"part-0.{kind} changed while it was being read"):
            job(kind).run(num_cpus=1)
    else:
        assert job(kind).run(num_cpus=1).rows_written == ROWS * FILES


def test_a_file_that_goes_is_named(kind: str, meanwhile: Any) -> None:
    meanwhile(Path.unlink)
    with pytest.raises(NoInputError, match=f"part-2.{kind} does not exist"):
        job(kind).run(num_cpus=1)
    # Where nothing was finished there is no job to go on with, and the next run is of the files that are there.
    began = Path("out").exists()
    if began:
        with pytest.raises(ResumeError, match="part-2.* was removed"):
            job(kind).run()
    else:
        assert job(kind).run().rows_written == 2 * ROWS


def test_a_file_that_was_read_may_go(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = SOURCES[kind].read

    def reading(self: Any, split: Any, **options: Any) -> Any:
        yield from read(self, split, **options)
        if split.number == FILES - 1:
            Path(f"part-0.{kind}").unlink()

    monkeypatch.setattr(SOURCES[kind], "read", reading)
    assert job(kind).run(num_cpus=1).rows_written == ROWS * FILES
