from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources import memory, numbers
from headrace.sources.memory import MemorySource
from headrace.sources.numbers import NumberSource
from tests.sources.reading import read, read_from


@given(rows=st.integers(0, 300), chunk=st.integers(1, 50))
def test_tables_come_back_whole(rows: int, chunk: int) -> None:
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "t": ["x" * 50] * rows})
    table = pa.Table.from_batches(table.to_batches(max_chunksize=chunk), schema=table.schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "SPLIT_BYTES", 4000)
        patch.setattr(memory, "BLOCK_BYTES", 900)
        source = MemorySource(table=table)
        assert read(source).rows == table.to_pylist()
        assert read(source, columns=["id"]).column("id") == list(range(rows))
        if rows:
            split = source.splits()[-1]
            whole = read_from(source, split, 0)
            assert read_from(source, split, len(whole) // 2) == whole[len(whole) // 2 :]


def test_rows_without_columns() -> None:
    assert read(MemorySource(table=pa.table({}), rows=3)).rows == [{}, {}, {}]
    assert read(MemorySource(table=pa.table({"a": [1, 2]})), columns=[]).rows == [{}, {}]


def test_nothing() -> None:
    source = MemorySource(table=pa.table({}), rows=0)
    assert source.splits() == []


def test_identity() -> None:
    a, b = MemorySource(table=pa.table({"x": [1, 2]})), MemorySource(table=pa.table({"x": [1, 3]}))
    same = MemorySource(table=pa.table({"x": [0, 1, 2]}).slice(1))
    assert a.fingerprint(a.splits()[0]) == same.fingerprint(same.splits()[0])
    assert a.fingerprint(a.splits()[0]) != b.fingerprint(b.splits()[0])


@given(stop=st.integers(0, 100), split_rows=st.integers(1, 40), block_rows=st.integers(1, 20))
def test_numbers(stop: int, split_rows: int, block_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "SPLIT_ROWS", split_rows)
        patch.setattr(numbers, "BLOCK_ROWS", block_rows)
        source = NumberSource(stop=stop)
        assert read(source).rows == [{"id": i} for i in range(stop)]
        for split in source.splits():
            whole = read_from(source, split, 0)
            for start in range(len(whole)):
                assert read_from(source, split, start) == whole[start:]


def test_numbers_without_their_column() -> None:
    assert read(NumberSource(stop=3), columns=[]).rows == [{}, {}, {}]
