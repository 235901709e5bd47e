"""Files behind fsspec, with its in-memory store in the place of a remote one."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import NoInputError
from headrace.sources import extents
from headrace.sources.binary import BinarySource
from headrace.sources.csv import CSV_PATTERNS, CsvSource
from headrace.sources.json import JSON_PATTERNS, JsonSource
from headrace.sources.listing import FileSet
from headrace.sources.parquet import ParquetSource
from tests.sources.reading import read


@pytest.fixture
def store() -> Iterator[fsspec.AbstractFileSystem]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/bucket", recursive=True)


def test_globs_and_folders(store: fsspec.AbstractFileSystem) -> None:
    store.pipe(
        {
            "/bucket/d/a.csv": b"id\n1\n",
            "/bucket/d/x/b.csv.gz": gzip.compress(b"id\n2\n"),
            "/bucket/d/.hidden.csv": b"id\n9\n",
            "/bucket/d/readme.md": b"no",
        }
    )
    folder = CsvSource(fileset=FileSet.of("memory://bucket/d", patterns=CSV_PATTERNS))
    assert read(folder).column("id") == [1, 2]
    assert folder.passed_over == 1
    assert read(CsvSource(fileset=FileSet.of("memory://bucket/d/*.csv"))).column("id") == [1]
    assert read(CsvSource(fileset=FileSet.of("memory://bucket/**/*.csv.gz"))).column("id") == [2]


def test_missing(store: fsspec.AbstractFileSystem) -> None:
    store.pipe("/bucket/a.csv", b"id\n1\n")
    with pytest.raises(NoInputError, match=r"memory://bucket/b\.csv does not exist"):
        FileSet.of("memory://bucket/b.csv").files()
    with pytest.raises(NoInputError, match="matches no file"):
        FileSet.of("memory://bucket/*.json").files()


def test_json_lines_are_cut(store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "SPLIT_BYTES", 1000)
    monkeypatch.setattr(extents, "CUT_ABOVE_BYTES", 1500)
    store.pipe("/bucket/a.jsonl", b"".join(b'{"id": %d}\n' % i for i in range(1000)))
    out = read(JsonSource(fileset=FileSet.of("memory://bucket/a.jsonl", patterns=JSON_PATTERNS)))
    assert out.splits > 5
    assert out.column("id") == list(range(1000))


def test_parquet_and_bytes(store: fsspec.AbstractFileSystem) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    store.pipe("/bucket/a.parquet", sink.getvalue().to_pybytes())
    fileset = FileSet.of("memory://bucket/a.parquet")
    assert read(ParquetSource(fileset=fileset)).column("id") == [1, 2]
    (row,) = read(BinarySource(fileset=fileset)).rows
    assert row["path"].startswith("memory://")
    assert row["path"].endswith("bucket/a.parquet")
    assert row["bytes"] == sink.getvalue().to_pybytes()


def test_identity_without_reading_where_the_store_has_a_stamp(store: fsspec.AbstractFileSystem) -> None:
    store.pipe("/bucket/a.csv", b"id\n1\n")
    source = CsvSource(fileset=FileSet.of("memory://bucket/a.csv"))
    (split,) = source.splits()
    assert source.version(split) == source.version(split)
    before = source.fingerprint(split)
    store.pipe("/bucket/a.csv", b"id\n2\n")
    after = CsvSource(fileset=FileSet.of("memory://bucket/a.csv"))
    assert after.fingerprint(after.splits()[0]) != before


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_http(web: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,t\n1,x\n2,y\n")
    source = CsvSource(fileset=FileSet.of(f"{web}/a.csv"))
    assert read(source).rows == [{"id": 1, "t": "x"}, {"id": 2, "t": "y"}]
    (split,) = source.splits()
    assert source.fingerprint(split) == source.fingerprint(split)
    with pytest.raises(NoInputError):
        FileSet.of(f"{web}/b.csv").files()
