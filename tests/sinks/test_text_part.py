from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import zstandard

import headrace as hr
from headrace.errors import SinkError
from headrace.sinks.csv import CsvSink
from headrace.sinks.json import JsonSink

ROWS = [{"id": i, "text": f'line\n"{i}"'} for i in range(25)]


@pytest.mark.parametrize("compression", ["gzip", "zstd", "bz2"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_packed_parts_are_input_again(tmp_path: Path, kind: str, compression: str) -> None:
    out = str(tmp_path / "out")
    getattr(hr.from_items(ROWS), f"write_{kind}")(out, compression=compression, rows_per_part=10).run()
    suffix = {"gzip": "gz", "zstd": "zst", "bz2": "bz2"}[compression]
    ending = {"csv": "csv", "json": "jsonl"}[kind]
    assert sorted(p.name for p in Path(out).glob("part-*")) == [f"part-0000{i}.{ending}.{suffix}" for i in range(3)]
    assert getattr(hr, f"read_{kind}")(out).take(99) == ROWS


def test_other_programs_unpack_them(tmp_path: Path) -> None:
    for compression, unpack in (("gzip", gzip.decompress), ("zstd", zstandard.ZstdDecompressor().stream_reader)):
        out = tmp_path / compression
        hr.from_items([{"id": 1}]).write_json(str(out), compression=compression).run()
        packed: Any = unpack(next(out.glob("part-*")).read_bytes())
        assert (packed if isinstance(packed, bytes) else packed.read()) == b'{"id": 1}\n'


def test_late_columns_are_written_into_packed_parts(tmp_path: Path) -> None:
    rows = [{"id": 0, "text": 'a\n"b"'}] * 3 + [{"id": 1, "text": "", "late": 7}]
    hr.from_items(rows[:3]).write_csv(str(tmp_path / "first")).run()
    ds = hr.range(4).map(lambda row: rows[row["id"]])
    ds.write_csv(str(tmp_path / "out"), compression="gzip", rows_per_part=1).run(num_cpus=1)
    assert hr.read_csv(str(tmp_path / "out")).take() == [
        *({**row, "late": None} for row in rows[:3]),
        rows[3],
    ]


@pytest.mark.parametrize("sink", [CsvSink, JsonSink])
def test_a_compression_that_does_not_exist(sink: type) -> None:
    with pytest.raises(SinkError, match=r"no compression 'gzp'; did you mean 'gzip'\?"):
        sink("out", compression="gzp")


@pytest.mark.parametrize("compression", ["gzip", "zstd", "bz2"])
def test_packed_parts_are_put_together_and_overwritten_as_others(tmp_path: Path, compression: str) -> None:
    out = str(tmp_path / "out")
    for kind in ("csv", "json"):
        write = getattr(hr.from_items(ROWS), f"write_{kind}")
        job = write(out, compression=compression, rows_per_part=10, if_exists="overwrite")
        job.run()
        job.compact()
        assert len(list(Path(out).glob("part-*"))) == 1
        assert getattr(hr, f"read_{kind}")(out).take(99) == ROWS
