from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import NoInputError, SourceError
from headrace.sources.storage import ByteStream, byte_ranges, unreadable


def test_ranges(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(100)))
    assert b"".join(map(bytes, byte_ranges(str(path), 10, 20, None, chunk_bytes=3))) == bytes(range(10, 20))
    with ByteStream(str(path), start=90) as stream:
        assert bytes(stream.view(5)) == bytes(range(90, 95))
        assert stream.read(100) == bytes(range(95, 100))
        assert stream.read(1) == b""
    with ByteStream(str(path), start=200) as stream:
        assert stream.read(1) == b""


def test_views_compare_like_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbf")
    with ByteStream(str(path)) as stream:
        assert stream.view(10) == b"\xef\xbb\xbf"


def test_pipes_are_read(tmp_path: Path) -> None:
    import os
    import threading

    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"id\n1\n"))
    writer.start()
    with ByteStream(str(path)) as stream:
        assert stream.read_all() == b"id\n1\n"
    writer.join()


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(NoInputError, match="does not exist"), ByteStream(str(tmp_path / "a")):
        pass


def test_each_cause_is_named() -> None:
    assert "permission denied" in str(unreadable("a", PermissionError(13, "x")))
    assert "not gzip" in str(unreadable("a.gz", OSError("zlib")))
    assert str(unreadable("a", OSError("disk"))).startswith("cannot read a: disk; it may be damaged")
    own = SourceError("own")
    assert unreadable("a", own) is own
