"""Parts of the size that was asked for, in rows and in bytes of the files, whatever they hold and however they are packed."""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import RunError
from tests.field.running import rows_in

WORDS = ["mill", "wheel", "race", "water", "stone", "grain", "žluťoučký", "kůň"]


@cache
def table(rows: int) -> pa.Table:
    draw, numbers = random.Random(7), np.random.default_rng(7)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(rows)]
    return pa.table(
        {
            "id": range(rows),
            "score": numbers.random(rows),
            "text": texts,
            "vector": list(numbers.random((rows, 3))),
            "kind": draw.choices(WORDS, k=rows),
        }
    )


def dataset(rows: int) -> hr.Dataset:
    return hr.from_arrow(table(rows))


def write(ds: hr.Dataset, kind: str, **options: Any) -> None:
    getattr(ds, f"write_{kind}")("out", **options).run()


def sizes() -> list[int]:
    return [p.stat().st_size for p in sorted(Path("out").glob("part-*"))]


@pytest.mark.parametrize("target", [20_000, 200_000])
@pytest.mark.parametrize(
    ("kind", "compression"),
    [("csv", "none"), ("csv", "gzip"), ("json", "none"), ("json", "zstd"), ("parquet", "snappy"), ("parquet", "zstd")],
)
def test_files_are_as_large_as_asked(kind: str, compression: str, target: int) -> None:
    write(dataset(20_000), kind, target_part_bytes=target, compression=compression)
    whole = sizes()[:-1]
    assert len(whole) >= 2
    assert all(0.8 * target <= size <= 1.2 * target for size in whole), whole
    assert hr.read_parquet("out").count() == 20_000 if kind == "parquet" else True


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_target_of_next_to_nothing_is_a_row_a_file(kind: str) -> None:
    write(dataset(5), kind, target_part_bytes=1)
    assert len(sizes()) == 5


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_rows_a_part_are_exact_after_an_interruption_too(kind: str) -> None:
    def stops(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 777 and not os.path.exists("again"):
            raise ValueError("stop")
        return row

    job = hr.range(1_000).map(stops, version="1")
    with pytest.raises(RunError, match="stop"):
        write(job, kind, rows_per_part=100)
    Path("again").touch()
    write(job, kind, rows_per_part=100)
    assert len(sizes()) == 10
    for part in range(10):
        name = {"csv": "csv", "json": "jsonl", "parquet": "parquet"}[kind]
        assert getattr(hr, f"read_{kind}")(f"out/part-0000{part}.{name}").count() == 100
    assert [row["id"] for row in rows_in()] == list(range(1_000))


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_bytes_a_part_hold_after_an_interruption_too(kind: str) -> None:
    def stops(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 15_000 and not os.path.exists("again"):
            raise ValueError("stop")
        return row

    job = dataset(20_000).map(stops, version="1")
    with pytest.raises(RunError, match="stop"):
        write(job, kind, target_part_bytes=100_000)
    before = len(sizes())
    Path("again").touch()
    write(job, kind, target_part_bytes=100_000)
    found = sizes()
    odd = [i for i, size in enumerate(found[:-1]) if not 80_000 <= size <= 120_000]
    assert set(odd) <= {before - 1}, found  # where the first run ended
