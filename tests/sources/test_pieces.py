from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.pieces import csv_record_end, cut_unclosed, first_record_end, is_utf8, pieces

CELL = st.text(alphabet='a1,"\n\r ', max_size=6)
RECORDS = st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1, max_size=12)


class Bytes:
    """A stream in memory that hands out fewer bytes than asked for."""

    def __init__(self, data: bytes, at_most: int = 2**30) -> None:
        self._file, self._at_most = io.BytesIO(data), at_most

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self._at_most))

    def view(self, size: int) -> memoryview:
        return memoryview(self.read(size))


def as_csv(records: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(records)
    return text.getvalue().encode()


def parsed(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


@given(records=RECORDS, size=st.integers(1, 9), short=st.integers(1, 5))
def test_pieces_of_csv_are_whole_records(records: list[list[str]], size: int, short: int) -> None:
    data = as_csv(records)
    found = list(pieces(Bytes(data, short), delimiter=44, piece_bytes=size))
    assert b"".join(piece.data for piece in found) == data
    assert [row for piece in found for row in parsed(bytes(piece.data))] == records
    offset = 0
    for piece in found:
        assert piece.offset == offset
        offset += len(piece.data)


@given(text=st.text(alphabet='a,"\n', max_size=40))
def test_quotes_in_the_middle_of_a_cell_are_characters(text: str) -> None:
    """Whatever the text, cutting where `csv_record_end` says gives the rows that the whole gives."""
    data = text.encode()
    end = csv_record_end(data)
    assert parsed(data[:end]) + parsed(data[end:]) == parsed(data)


@given(records=RECORDS)
def test_first_record(records: list[list[str]]) -> None:
    data = as_csv(records)
    assert parsed(data[: first_record_end(data)]) == records[:1]


def test_first_record_longer_than_the_head() -> None:
    data = as_csv([["x" * 100_000, "y\nz"], ["1", "2"]])
    assert parsed(data[: first_record_end(data)]) == [["x" * 100_000, "y\nz"]]


def test_stray_quotes_do_not_turn_the_rest_inside_out() -> None:
    data = b'5" pipe,1\n"a\nb",2\n'
    assert csv_record_end(data[:-1]) == len(b'5" pipe,1\n')


def test_unclosed_quote_is_cut_off() -> None:
    good, bad = cut_unclosed(b'1,2\n3,"x\n4,5\n')
    assert (bytes(good), bad) == (b"1,2\n", b'3,"x\n4,5\n')
    assert cut_unclosed(b'1,5" pipe\n')[1] == b""
    assert cut_unclosed(b'1,"2"\n')[1] == b""


def test_a_small_stream_is_one_piece() -> None:
    found = list(pieces(Bytes(b"a\nb\nc"), whole_bytes=100, piece_bytes=2))
    assert [(bytes(p.data), p.last) for p in found] == [(b"a\nb\nc", True)]


def test_a_stream_beyond_whole_bytes_is_cut() -> None:
    data = b"a\n" * 20 + b"c"
    found = list(pieces(Bytes(data), whole_bytes=3, piece_bytes=2))
    assert b"".join(p.data for p in found) == data
    assert len(found) > 1


def test_one_long_line_is_a_line() -> None:
    data = b"x" * 5000 + b"\ny\n"
    found = list(pieces(Bytes(data), piece_bytes=16))
    assert bytes(found[0].data) == b"x" * 5000 + b"\n"
    assert b"".join(p.data for p in found) == data


@given(
    lengths=st.lists(st.integers(0, 120), min_size=1, max_size=8),
    size=st.integers(1, 30),
    quoted=st.booleans(),
    final=st.booleans(),
)
def test_a_record_beyond_the_limit_is_told_and_passed_over_alone(
    lengths: list[int], size: int, quoted: bool, final: bool
) -> None:
    limit = 20
    records = [b'"' + b"a\n" * (n // 2) + b'"\n' if quoted else b"b" * n + b"\n" for n in lengths]
    data = b"".join(records) if final else b"".join(records)[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sources.pieces.MAX_RECORD_BYTES", limit)
        found = list(pieces(Bytes(data), delimiter=44 if quoted else None, piece_bytes=size))
    kept = b"".join(bytes(p.data) for p in found if not p.too_long)
    long = [p for p in found if p.too_long]
    # A record is found too long only when a look at it ends inside it, so that the limit is one of memory, not of form.
    starts = {sum(map(len, records[:i])): record for i, record in enumerate(records)}
    passed = [starts[p.offset] for p in long]
    assert all(len(record) >= limit for record in passed)
    assert all(len(record) < 90 for record in records if record not in passed)
    offsets = {p.offset for p in long}  # by place, since records may be alike
    expected = [record for at, record in starts.items() if at not in offsets]
    assert kept.rstrip(b"\n") == b"".join(expected).rstrip(b"\n")


@given(data=st.binary(max_size=40))
def test_is_utf8(data: bytes) -> None:
    try:
        data.decode()
        expected = True
    except UnicodeDecodeError:
        expected = False
    assert is_utf8(data) == expected
