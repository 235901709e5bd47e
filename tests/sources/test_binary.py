from __future__ import annotations

from pathlib import Path

from headrace.sources.binary import BinarySource
from headrace.sources.listing import FileSet
from tests.sources.reading import read, read_from


def test_files_are_rows(tmp_path: Path) -> None:
    for i in range(150):
        (tmp_path / f"{i:03}.bin").write_bytes(bytes([i]))
    (tmp_path / "notes.txt").write_text("no")
    source = BinarySource(fileset=FileSet.of(tmp_path, patterns=["*.BIN"]))
    out = read(source)
    assert [r["bytes"][0] for r in out.rows] == list(range(150))
    assert out.rows[7]["path"] == str(tmp_path / "007.bin")
    assert source.passed_over == 1
    assert read(source, columns=["path"]).rows[0] == {"path": str(tmp_path / "000.bin")}
    assert len(read_from(source, source.splits()[0], 70)) == 80


def test_compressed_files_keep_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"not gzip")
    assert read(BinarySource(fileset=FileSet.of(tmp_path))).column("bytes") == [b"not gzip"]


def test_a_file_that_vanishes_fails_alone(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    source = BinarySource(fileset=FileSet.of(tmp_path))
    splits = source.splits()
    (tmp_path / "b").unlink()
    (block,) = source.read(splits[0], columns=None)
    assert block.batch.to_pydict()["bytes"] == [b"a", b"c"]
    assert block.ordinal_array().tolist() == [0, 2]
    assert block.failures[0].file == str(tmp_path / "b")


def test_unreadable_files_fail_alone(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    source = BinarySource(fileset=FileSet.of(tmp_path))
    source.splits()
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    out = read(source)
    assert out.column("bytes") == [b"b"]
    assert str(tmp_path / "a") in out.failures[0].message


def test_identity_depends_on_names_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    source = BinarySource(fileset=FileSet.of(tmp_path))
    before = source.fingerprint(source.splits()[0])
    (tmp_path / "a").rename(tmp_path / "b")
    source = BinarySource(fileset=FileSet.of(tmp_path))
    assert source.fingerprint(source.splits()[0]) != before
