from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import SinkError
from headrace.records.columns import empty_columns
from headrace.sinks.csv import CsvSink


def text_of(tmp_path: Path, batch: pa.RecordBatch) -> str:
    part = CsvSink(str(tmp_path)).open_part(0, batch.schema, str(tmp_path))
    part.write(batch)
    CsvSink(str(tmp_path)).publish(part.prepare())
    return (tmp_path / "part-00000.csv").read_text()


def test_null_and_empty_text_differ(tmp_path: Path) -> None:
    batch = pa.record_batch({"s": ["", None, "NA"], "i": [1, 2, None]})
    assert text_of(tmp_path, batch) == '"s","i"\n"",1\n,2\n"NA",\n'


@pytest.mark.parametrize(
    ("values", "lines"), [([1, None], ['"1"', '""']), ([1, 2], ["1", "2"]), (["a", None], ['"a"', '""'])]
)
def test_a_single_column_has_no_empty_lines(tmp_path: Path, values: list[object], lines: list[str]) -> None:
    assert text_of(tmp_path, pa.record_batch({"x": values})).splitlines()[1:] == lines


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        (pa.array([True]), "true"),
        (pa.array([2**63 - 1]), "9223372036854775807"),
        (pa.array([float("nan")]), "nan"),
        (pa.array([b"\x00\xff"]), '"AP8="'),
        (pa.array([{"a": [1, None]}]), '"{""a"": [1, null]}"'),
        (pa.array([dt.date(2024, 2, 29)]), "2024-02-29"),
        (pa.array([dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)]), "2024-02-29 12:00:00.000000Z"),
        (pa.array([dt.timedelta(milliseconds=1500)]), "1.500000"),
        (pa.array(["m:1"]).dictionary_encode(), '"m:1"'),
    ],
)
def test_cells(tmp_path: Path, column: pa.Array, cell: str) -> None:
    assert text_of(tmp_path, pa.record_batch({"x": column})).splitlines()[1] == cell


def test_rows_without_columns_are_refused(tmp_path: Path) -> None:
    part = CsvSink(str(tmp_path)).open_part(0, pa.schema([]), str(tmp_path))
    with pytest.raises(SinkError, match="no columns"):
        part.write(empty_columns(3))
    part.discard()
