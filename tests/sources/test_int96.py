from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import SourceError

NANOS = pa.table({"id": [0, 1, 2], "at": pa.array([0, 10**18 + 1, None], pa.timestamp("ns"))})
FAR = pa.table({"id": [0, 1], "at": pa.array([-62_135_596_800_000_000, 253_402_300_799_999_999], pa.timestamp("us"))})


def put(table: pa.Table, path: Path, *, spark: bool = False) -> None:
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    if spark:  # the writer's name, as long as pyarrow's
        data = path.read_bytes()
        assert b"parquet-cpp-arrow" in data
        path.write_bytes(data.replace(b"parquet-cpp-arrow", b"parquet-mr - Spark"[:17]))


def test_nanoseconds_of_pyarrow(tmp_path: Path) -> None:
    put(NANOS, tmp_path / "a.parquet")
    assert hr.read_parquet(str(tmp_path)).to_arrow() == NANOS


def test_far_times_of_others(tmp_path: Path) -> None:
    put(FAR, tmp_path / "a.parquet", spark=True)
    assert hr.read_parquet(str(tmp_path)).to_arrow() == FAR


def test_far_times_of_pyarrow_are_refused_rather_than_wrapped(tmp_path: Path) -> None:
    put(FAR, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet: column 'at' holds times beyond .* write the file anew"):
        hr.read_parquet(str(tmp_path)).to_arrow()
    assert hr.read_parquet(str(tmp_path), columns=["id"]).to_arrow() == FAR.select(["id"])
