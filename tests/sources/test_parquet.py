from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import SchemaError, SourceError, UnknownColumnError
from headrace.records.giants import GIANT_BYTES
from headrace.records.tensors import object_array
from headrace.sources import extents
from headrace.sources import parquet as parquet_module
from headrace.sources.assembly import Added
from headrace.sources.listing import FileSet
from headrace.sources.parquet import PARQUET_PATTERNS, ParquetSource, let_go_of_pages
from tests.sources.reading import read, read_from


def source(*paths: Path, **options: Any) -> ParquetSource:
    return ParquetSource(fileset=FileSet.of(paths, patterns=PARQUET_PATTERNS), **options)


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of ten row groups that is cut as if it were large."""
    for module in (extents, parquet_module):
        monkeypatch.setattr(module, "SPLIT_BYTES", 20_000)
        monkeypatch.setattr(module, "CUT_ABOVE_BYTES", 30_000)
    path = tmp_path / "big.parquet"
    noise = np.random.default_rng(0).integers(0, 2**60, 10_000)
    pq.write_table(pa.table({"id": range(10_000), "x": noise}), path, row_group_size=1000)
    return path


def test_row_groups_are_splits(big: Path) -> None:
    out = read(source(big))
    assert 3 < out.splits <= 10
    assert out.column("id") == list(range(10_000))


def test_reading_from_the_middle(big: Path) -> None:
    one = source(big)
    split = one.splits()[1]
    whole = read_from(one, split, 0)
    for start in (1, 999, 1000, len(whole) - 1, len(whole)):
        assert read_from(one, split, start) == whole[start:]


def test_identity_of_row_groups(big: Path) -> None:
    one = source(big)
    digests = [one.fingerprint(s) for s in one.splits()]
    assert len(set(digests)) == len(digests)
    assert len({one.version(s) for s in one.splits()}) == len(digests)
    assert [source(big).fingerprint(s) for s in source(big).splits()] == digests


def test_projection(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1], "b": [{"x": 1, "y": "z"}], "c": ["t"]}), path)
    assert read(source(path), columns=["c", "b"]).rows == [{"b": {"x": 1, "y": "z"}, "c": "t"}]
    assert read(source(path), columns=[]).rows == [{}]
    with pytest.raises(UnknownColumnError):
        source(path, columns=("d",)).schema()


def test_no_rows_but_columns(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())}), path)
    assert source(path).schema() == pa.schema({"id": pa.int64(), "text": pa.string()})
    assert read(source(path)).rows == []


def test_files_are_unified(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "x": pa.nulls(1)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1.5], "id": pa.array([2], pa.int32())}), tmp_path / "b.parquet")
    assert read(source(tmp_path)).rows == [{"id": 1, "x": None}, {"id": 2, "x": 1.5}]
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(SchemaError, match=r"'id' is int64 in .*a\.parquet and string in .*c\.parquet"):
        source(tmp_path).schema()


def test_partitions_and_paths(tmp_path: Path) -> None:
    for year in (2024, 2025):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        pq.write_table(pa.table({"id": [year]}), folder / "a.parquet")
    out = read(source(tmp_path, added=Added(partitioning="hive", include_path="file")))
    assert out.column("year") == [2024, 2025]
    assert out.column("file") == [str(tmp_path / "year=2024/a.parquet"), str(tmp_path / "year=2025/a.parquet")]


def test_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for content in (b"PAR1 or not", b"x" * 1000):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=r"a\.parquet"):
            source(path).schema()


def test_zero_bytes_are_zero_rows(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "b.parquet")
    assert read(source(tmp_path)).rows == [{"id": 1}]
    assert read(source(tmp_path / "a.parquet")).rows == []


def test_damaged_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(100_000)}), path)
    data = bytearray(path.read_bytes())
    data[8:5000] = b"\xff" * 4992
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.parquet"):
        read(source(path))


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"o": object_array([{1}])}), path)
    with pytest.raises(SourceError, match="column 'o' holds pickled Python objects"):
        source(path).schema()


def test_what_is_left_behind_a_giant_is_read_before_that_is_sent_on(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    cells = ["x" * 100] * 60 + ["y" * (GIANT_BYTES + 1)] + ["z" * 100] * 40
    pq.write_table(pa.table({"x": cells}), path, use_dictionary=False)
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(10, use_threads=False)
        found = let_go_of_pages(batches, file.metadata.row_group(0).total_byte_size)
        rows = 0
        for batch in found:
            assert batch["x"].to_pylist() == cells[rows : rows + batch.num_rows]
            rows += batch.num_rows
            if batch.nbytes > GIANT_BYTES:
                assert next(batches, None) is None
        assert rows == len(cells)


def test_of_many_giants_one_at_a_time_is_read() -> None:
    read_so_far: list[int] = []

    def batches() -> Any:
        for number in range(4):
            read_so_far.append(number)
            yield pa.record_batch({"x": ["y" * (GIANT_BYTES + 1)]})

    for number, _ in enumerate(let_go_of_pages(batches(), 4 * GIANT_BYTES)):
        assert len(read_so_far) <= min(4, number + 2)
