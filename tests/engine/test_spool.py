"""Rows in a mapped file."""

import pyarrow as pa
import pytest

from headrace.engine.commit.disk_budget import DiskBudget
from headrace.engine.spool import Spool
from headrace.errors import SinkError
from headrace.records.types import TypeQuarrelError


def table_of(folder, *batches, empty=None):
    spool = Spool(folder)
    for batch in batches:
        spool.add(batch)
    table = spool.finish(empty=empty)
    assert [path.name for path in folder.iterdir()] == [table.path.rpartition("/")[2]]
    return table.load()


def test_rows_come_back_in_their_order_block_by_block(tmp_path):
    table = table_of(tmp_path, *(pa.record_batch({"x": [i, i + 1]}) for i in range(0, 10, 2)))
    assert table["x"].to_pylist() == list(range(10))
    assert table["x"].num_chunks == 5


def test_columns_that_change_are_united_in_order(tmp_path):
    batches = [pa.record_batch({"x": [1]}), pa.record_batch({"x": [2.5], "y": ["a"]}), pa.record_batch({"x": [3]})]
    table = table_of(tmp_path, *batches)
    assert table.to_pydict() == {"x": [1.0, 2.5, 3.0], "y": [None, "a", None]}


def test_what_is_discarded_counts_on_the_disk_no_longer(tmp_path):
    budget = DiskBudget(2_000, reserve_bytes=0)
    for _ in range(3):
        spool = Spool(tmp_path, budget)
        spool.add(pa.record_batch({"x": pa.array(range(200), pa.int64())}))
        with pytest.raises(SinkError, match="disk_limit=2,000"):
            spool.add(pa.record_batch({"x": pa.array(range(200), pa.int64())}))
        spool.discard()


def test_columns_that_quarrel_are_told(tmp_path):
    spool = Spool(tmp_path)
    spool.add(pa.record_batch({"x": [1]}))
    spool.add(pa.record_batch({"x": ["a"]}))
    with pytest.raises(TypeQuarrelError, match="'x' is int64 and string"):
        spool.finish()


def test_dictionaries_may_differ_from_block_to_block(tmp_path):
    batches = [pa.record_batch({"x": pa.array([name]).dictionary_encode()}) for name in ("a", "b", "a")]
    assert table_of(tmp_path, *batches)["x"].to_pylist() == ["a", "b", "a"]


def test_without_rows_columns_are_what_is_known(tmp_path):
    schema = pa.schema({"x": pa.int64()})
    assert table_of(tmp_path, empty=schema).schema == schema


def test_a_discarded_spool_leaves_no_file(tmp_path):
    spool = Spool(tmp_path)
    spool.add(pa.record_batch({"x": [1]}))
    table = spool.finish().load()
    spool.discard()
    assert list(tmp_path.iterdir()) == []
    assert table["x"].to_pylist() == [1]
