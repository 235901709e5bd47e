from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SourceError
from headrace.sources.storage import ByteStream
from headrace.sources.transcoded import Transcoded


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_characters_are_whole_wherever_the_stream_is_cut(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("žluťoučký 🐎\n".encode("utf-16"))
    with Transcoded(ByteStream(str(path)), str(path), "utf-16") as stream:
        pieces = list(iter(lambda: stream.read(size), b""))
    assert [piece.decode() for piece in pieces]
    assert b"".join(pieces).decode() == "žluťoučký 🐎\n"


def test_another_encoding_than_was_said_is_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"ab\x81c")
    with (
        Transcoded(ByteStream(str(path)), str(path), "cp1252") as stream,
        pytest.raises(SourceError, match=r"a\.csv is not cp1252.*encoding="),
    ):
        stream.read(10)
