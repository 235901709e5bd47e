from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.commit.sizing import Sizing
from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.sink import MeasuringSink

ROWS = pa.record_batch(
    {"id": np.arange(50_000), "x": np.random.default_rng(0).random(50_000), "kind": ["a", "bb"] * 25_000}
)


class Halving:
    """A sink whose files have 100 bytes and half the bytes of the columns."""

    def encoded_bytes(self, batch: pa.RecordBatch) -> int:
        return 100 + batch.nbytes // 2


def sizing(sink: Any, target: int | None, rows: int | None = None) -> Sizing:
    return Sizing(sink, target_part_bytes=target, rows_per_part=rows)


def test_the_first_rows_say_how_many_columns_make_a_file() -> None:
    asked = sizing(Halving(), 1_100)
    assert asked.wants_rows()
    asked.begin(ROWS)
    assert asked.size.target_bytes == pytest.approx(2_000, rel=0.01)
    assert not asked.wants_rows()


def test_finished_parts_correct_it_and_stunted_ones_do_not() -> None:
    asked = sizing(Halving(), 1_100)
    asked.begin(ROWS)
    asked.observe(nbytes=2_000, written=2_100)
    assert asked.size.target_bytes == pytest.approx(1_000, rel=0.01)
    asked.observe(nbytes=50, written=5_000)
    assert asked.size.target_bytes == pytest.approx(1_000, rel=0.01)


def test_a_target_below_what_any_file_takes_is_a_row_a_file() -> None:
    asked = sizing(Halving(), 1)
    asked.begin(ROWS)
    assert asked.size.target_bytes == 1
    assert asked.size.rows_to_take(100, 800, rows=0, nbytes=0) == 1


def test_nothing_is_measured_where_nothing_was_asked() -> None:
    assert not sizing(Halving(), None).wants_rows()
    before = sizing(Halving(), None, rows=7)
    before.observe(nbytes=1_000, written=10)
    assert before.size == sizing(Halving(), None, rows=7).size


def test_a_sink_that_cannot_measure_learns_from_its_parts() -> None:
    asked = sizing(object(), 1_000)
    assert not asked.wants_rows()
    assert asked.size.target_bytes == 1_000
    asked.observe(nbytes=1_000, written=250)
    assert asked.size.target_bytes == 4_000


@pytest.mark.parametrize("sink", [CsvSink, JsonSink, ParquetSink])
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_what_sinks_measure_is_what_they_write(tmp_path: Any, sink: Any, compression: str) -> None:
    made = sink(str(tmp_path), compression=compression)
    assert isinstance(made, MeasuringSink)
    for batch in (ROWS, ROWS.slice(0, 10), ROWS.slice(0, 0)):
        part = made.open_part(0, batch.schema, str(tmp_path))
        part.write(batch)
        part.prepare()
        (hidden,) = tmp_path.iterdir()
        assert hidden.stat().st_size == pytest.approx(made.encoded_bytes(batch), rel=0.01, abs=16)
        part.discard()
