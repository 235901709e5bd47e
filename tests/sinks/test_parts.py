"""What all file sinks do alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from headrace.errors import ResumeError, SinkError
from headrace.records.columns import empty_columns
from headrace.records.tensors import object_array, stacked_tensor_array
from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.sink import Sink

SINKS = [CsvSink, JsonSink, ParquetSink]


def write(sink: Any, *batches: pa.RecordBatch, number: int = 0) -> Path:
    """Write one part, publish it, and return its path."""
    staging = Path(sink.path) / ".staging"
    staging.mkdir(parents=True, exist_ok=True)
    part = sink.open_part(number, batches[0].schema, str(staging))
    for batch in batches:
        part.write(batch)
    receipt = part.prepare()
    visible = {p.name for p in Path(sink.path).iterdir()}
    sink.publish(receipt)
    sink.publish(receipt)  # idempotent
    (name,) = {p.name for p in Path(sink.path).iterdir()} - visible
    assert os.listdir(staging) == []
    return Path(sink.path) / name


def read(path: Path) -> pa.Table:
    readers = {".csv": pyarrow.csv.read_csv, ".jsonl": pyarrow.json.read_json, ".parquet": pq.read_table}
    return readers[path.suffix](path)


@pytest.mark.parametrize("sink", SINKS)
def test_part_is_whole_and_only_then_visible(tmp_path: Path, sink: type) -> None:
    assert isinstance(sink(str(tmp_path)), Sink)
    batches = [pa.record_batch({"id": [i, 2**60 + i], "x": [0.1, None], "s": ['a\n"b", c', ""]}) for i in range(3)]
    path = write(sink(str(tmp_path)), *batches)
    assert path.stem == "part-00000"
    table = read(path)
    assert table["id"].to_pylist() == [0, 2**60, 1, 2**60 + 1, 2, 2**60 + 2]
    assert table["x"].to_pylist() == [0.1, None] * 3
    assert table["s"].to_pylist() == ['a\n"b", c', ""] * 3


@pytest.mark.parametrize("sink", SINKS)
def test_discarded_part_leaves_nothing(tmp_path: Path, sink: type) -> None:
    part = sink(str(tmp_path)).open_part(0, pa.schema({"id": pa.int64()}), str(tmp_path))
    part.write(pa.record_batch({"id": [1]}))
    part.discard()
    part.discard()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("sink", SINKS)
def test_python_objects_are_refused_with_the_remedy(sink: type) -> None:
    for things in (object_array([{1, 2}]), pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), object_array([{1}]))):
        batch = pa.record_batch({"id": [1], "thing": things})
        (why,) = sink("out").misfits(batch).values()
        assert "column 'thing' holds Python objects (set)" in why
        assert "drop(" in why


def test_arrays_of_different_kinds_are_for_files_of_text(tmp_path: Path) -> None:
    pictures = object_array([np.zeros((1, 2), "uint8"), None, np.ones((1, 1, 2), "uint16")])
    batch = pa.record_batch({"image": pictures})
    for sink, expected in (
        (JsonSink, '{"image": [[0, 0]]}\n{"image": null}\n{"image": [[[1, 1]]]}\n'),
        (CsvSink, '"image"\n"[[0, 0]]"\n""\n"[[[1, 1]]]"\n'),
    ):
        sink("out").check(batch.schema)
        assert write(sink(str(tmp_path / sink.__name__)), batch).read_text() == expected
    with pytest.raises(SinkError, match="arrays of different dtypes.*mode= and size= of read_images"):
        ParquetSink("out").check(batch.schema)


@pytest.mark.parametrize("sink", SINKS)
def test_doubled_names_are_refused(sink: type) -> None:
    with pytest.raises(SinkError, match="column 'id' appears twice"):
        sink("out").check(pa.schema([("id", pa.int64()), ("id", pa.string())]))


@pytest.mark.parametrize("sink", SINKS)
def test_a_part_that_vanished_before_it_was_published(tmp_path: Path, sink: type) -> None:
    part = sink(str(tmp_path)).open_part(0, pa.schema({"id": pa.int64()}), str(tmp_path))
    receipt = part.prepare()
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    with pytest.raises(ResumeError, match=r"part-00000.*is missing"):
        sink(str(tmp_path)).publish(receipt)


@pytest.mark.parametrize("sink", SINKS)
def test_staging_that_cannot_be_written(tmp_path: Path, sink: type) -> None:
    with pytest.raises(SinkError, match="cannot write .*part-00000"):
        part = sink(str(tmp_path)).open_part(0, pa.schema({"id": pa.int64()}), str(tmp_path / "no-such-folder"))
        part.write(pa.record_batch({"id": [1]}))
        part.prepare()


def test_tensors_are_nested_lists(tmp_path: Path) -> None:
    stack = np.arange(8).reshape(2, 2, 2)
    for column in (stacked_tensor_array(stack), pa.FixedShapeTensorArray.from_numpy_ndarray(stack)):
        batch = pa.record_batch({"m": column})
        assert read(write(ParquetSink(str(tmp_path)), batch, number=1))["m"].to_pylist() == stack.tolist()
        assert read(write(JsonSink(str(tmp_path)), batch, number=1))["m"].to_pylist() == stack.tolist()
        assert read(write(CsvSink(str(tmp_path)), batch, number=1))["m"].to_pylist() == [
            "[[0, 1], [2, 3]]",
            "[[4, 5], [6, 7]]",
        ]
        for path in tmp_path.glob("part-*"):
            path.unlink()


@pytest.mark.parametrize("sink", [CsvSink, ParquetSink])
def test_rewriting_adds_late_columns_and_keeps_every_row(tmp_path: Path, sink: type) -> None:
    old = pa.record_batch({'id, or "key"': [1, None], "s": ['two\nlines, "quoted"', None]})
    path = write(sink(str(tmp_path)), old)
    wide = pa.schema([('id, or "key"', pa.float64()), ("s", pa.string()), ("late", pa.string()), ("later", pa.int64())])
    receipt = f'{{"name": "{path.name}", "hidden": "", "nbytes": 0}}'
    for _ in range(2):  # a crash may make it happen twice
        sink(str(tmp_path)).rewrite(receipt, wide, str(tmp_path / ".staging"))
        table = read(path)
        assert table.column_names == wide.names
        assert table.column(0).to_pylist() == [1.0, None]
        assert table["s"].to_pylist() == ['two\nlines, "quoted"', None] or sink is CsvSink
        assert table["late"].to_pylist() == [None, None]
    if sink is CsvSink:
        assert path.read_text() == '"id, or ""key""","s","late","later"\n1,"two\nlines, ""quoted""",,\n,,,\n'


def test_parquet_writes_dictionary_columns_of_batches_that_differ(tmp_path: Path) -> None:
    batches = [
        pa.record_batch({"m": pa.array(values).dictionary_encode()}) for values in (["a", "b"], ["c", None, "a"])
    ]
    assert read(write(ParquetSink(str(tmp_path)), *batches))["m"].to_pylist() == ["a", "b", "c", None, "a"]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_parquet_compression(tmp_path: Path, compression: str) -> None:
    path = write(ParquetSink(str(tmp_path), compression=compression), pa.record_batch({"x": list(range(1000))}))
    found = pq.read_metadata(path).row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


@pytest.mark.parametrize(
    ("cell", "packed"), [(np.random.default_rng(0).bytes(2**20) * 33, False), (b"a" * 2**25, True)]
)
def test_parquet_packs_a_giant_where_that_makes_less_of_it(tmp_path: Path, cell: bytes, packed: bool) -> None:
    path = write(ParquetSink(str(tmp_path)), pa.record_batch({"id": [1], "cell": [cell + b"."]}))
    assert (pq.read_metadata(path).row_group(0).column(1).compression == "SNAPPY") is packed
    assert pq.read_table(path)["cell"].to_pylist() == [cell + b"."]


def test_parquet_compression_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="zsdt"):
        ParquetSink(str(tmp_path), compression="zsdt").check(pa.schema({"x": pa.int64()}))


def test_parquet_names_the_column_that_it_cannot_hold() -> None:
    with pytest.raises(SinkError, match="column 'empty'"):
        ParquetSink("out").check(pa.schema({"x": pa.int64(), "empty": pa.struct([])}))


def test_parquet_rows_are_gathered_into_row_groups(tmp_path: Path) -> None:
    batches = [pa.record_batch({"x": np.arange(100) + i}) for i in range(50)]
    assert pq.read_metadata(write(ParquetSink(str(tmp_path)), *batches)).num_row_groups == 1


def test_parquet_refuses_rows_without_columns(tmp_path: Path) -> None:
    part = ParquetSink(str(tmp_path)).open_part(0, pa.schema([]), str(tmp_path))
    with pytest.raises(SinkError, match="no columns, which Parquet cannot hold"):
        part.write(empty_columns(3))
    part.discard()
