"""Parsing pieces: small blocks are quicker, and never another result."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources import csv_parser
from headrace.sources.csv_parser import CsvParser

TYPES = {"n": pa.int64(), "text": pa.string()}
TEXT = st.text(alphabet='ab\n\r",; 1', max_size=12)


def parsed(data: bytes, block_bytes: int) -> tuple[list[dict[str, object]], list[int], list[int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_parser, "BLOCK_BYTES", block_bytes)
        found = CsvParser(names=list(TYPES), types=TYPES, wanted=list(TYPES)).parse(data)
    rows = pa.Table.from_batches(found.batches).to_pylist()
    return rows, [at for at, _ in found.ragged], sorted(found.misfits)


def as_csv(rows: list[tuple[object, ...]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@given(st.lists(st.tuples(st.integers(0, 99), TEXT), min_size=1, max_size=30), st.integers(8, 200))
def test_blocks_change_nothing(rows: list[tuple[int, str]], block_bytes: int) -> None:
    data = as_csv(list(rows))
    assert parsed(data, block_bytes) == parsed(data, len(data) + 1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 99), TEXT),
            st.tuples(st.just("x"), TEXT),
            st.tuples(TEXT),
            st.tuples(st.integers(0, 9), TEXT, TEXT),
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(8, 100),
)
def test_nor_where_rows_fail(rows: list[tuple[object, ...]], block_bytes: int) -> None:
    data = as_csv(rows)
    assert parsed(data, block_bytes) == parsed(data, len(data) + 1)


@given(st.text(alphabet='1,"\n', min_size=1, max_size=60), st.integers(4, 40))
def test_nor_where_quotes_stand_anywhere(text: str, block_bytes: int) -> None:
    data = text.encode()
    assert parsed(data, block_bytes) == parsed(data, len(data) + 1)


def test_whole_rows_come_in_several_batches() -> None:
    data = as_csv([(i, "some text") for i in range(1000)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_parser, "BLOCK_BYTES", 4096)
        batches = CsvParser(names=list(TYPES), types=TYPES, wanted=["n"]).parse(data).batches
    assert len(batches) > 2
    assert [v for batch in batches for v in batch.column(0).to_pylist()] == list(range(1000))


def test_a_line_break_in_quotes_at_the_edge_of_a_block() -> None:
    data = b"".join(b'%d,"a\n%d,b"\n' % (i, i) for i in range(500))
    rows, ragged, misfits = parsed(data, 64)
    assert [row["n"] for row in rows] == list(range(500))
    assert rows[3]["text"] == "a\n3,b"
    assert not ragged
    assert not misfits
