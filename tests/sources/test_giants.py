from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.giants import CsvRecordEnd, LineEnd
from headrace.sources.pieces import csv_record_end, first_record_end

CELL = st.text(alphabet='a1,"\n\r ', max_size=6)


def end_by_chunks(data: bytes, head: int, size: int) -> int:
    """Return where the first record ends, having seen the data in chunks; the length of it all where it does not."""
    seeker, at = CsvRecordEnd(data[:head], delimiter=44), head
    while at < len(data):
        if end := seeker.find(data[at : at + size]):
            return at + end
        at += size
    return len(data)


@given(rows=st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1, max_size=5), size=st.integers(1, 5))
def test_csv_in_chunks_ends_where_the_whole_does(rows: list[list[str]], size: int) -> None:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    data = text.getvalue().encode()
    whole = first_record_end(data)
    for head in range(whole):
        if not csv_record_end(data[:head]):
            assert end_by_chunks(data, head, size) == whole


@given(text=st.text(alphabet='a,"\n', max_size=30), size=st.integers(1, 4))
def test_whatever_the_quotes(text: str, size: int) -> None:
    data = text.encode()
    assert end_by_chunks(data, 0, size) == first_record_end(data)


def test_lines() -> None:
    seeker = LineEnd()
    assert [seeker.find(chunk) for chunk in (b"ab", b"c\nd\n", b"")] == [0, 2, 0]
