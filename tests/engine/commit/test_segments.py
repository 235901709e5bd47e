from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.commit.segments import Segments
from headrace.records.block import Block, Origin, Unit
from headrace.records.columns import empty_columns
from headrace.records.failure import RowFailure
from headrace.records.tensors import stacked_tensor_array

FAILURE = RowFailure(stage="map_1", ordinal=6, row='{"x": 1}', error_type="E", message="no", file="a.csv", position=6)


def block(start: tuple[int, ...], end: tuple[int, ...], **columns: object) -> Block:
    batch = pa.record_batch(columns or {"x": [1, 2]})
    ordinals = np.full(batch.num_rows, start[0])
    return Block(
        batch=batch,
        unit=Unit(3, (1,)),
        start=start,
        end=end,
        ordinals=ordinals,
        failures=(FAILURE,),
        origin=Origin("a.csv", 2),
        errors=1,
    )


def same(left: Block, right: Block) -> bool:
    fields = ("unit", "start", "end", "failures", "origin", "errors")
    equal = all(getattr(left, f) == getattr(right, f) for f in fields)
    return equal and left.batch.equals(right.batch) and list(left.ordinal_array()) == list(right.ordinal_array())


def test_blocks_come_back_as_they_were(tmp_path: Path) -> None:
    blocks = [
        block((5,), (5, 1)),
        block(
            (5, 1), (9,), d=pa.array(["a", "b", None]).dictionary_encode(), t=stacked_tensor_array(np.ones((3, 2, 2)))
        ),
        Block(batch=pa.record_batch({"x": pa.array([], pa.int64())}), unit=Unit(3, (1,)), start=(9,), end=(12,)),
        Block(batch=empty_columns(4), unit=Unit(3, (1,)), start=(12,), end=(16,)),
    ]
    segments = Segments(str(tmp_path))
    saved = segments.append(blocks)
    assert all(same(segments.load(s), b) for s, b in zip(saved, blocks, strict=True))
    segments.close()
    found = [b for b, _ in Segments(str(tmp_path)).recover()]
    assert len(found) == len(blocks)
    assert all(same(f, b) for f, b in zip(found, blocks, strict=True))


@pytest.mark.parametrize("left", [1, 10, 100, 500])
def test_a_torn_tail_is_cut_wherever_it_ends(tmp_path: Path, left: int) -> None:
    segments = Segments(str(tmp_path))
    segments.append([block((0,), (1,))])
    size = os.path.getsize(tmp_path / "segment-000000.bin")
    segments.append([block((1,), (2,))])
    segments.close()
    path = tmp_path / "segment-000000.bin"
    os.truncate(path, size + left)
    assert [b.start for b, _ in Segments(str(tmp_path)).recover()] == [(0,)]
    assert path.stat().st_size == size


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    segments = Segments(str(tmp_path))
    segments.append([block((0,), (1,))])
    segments.close()
    path = tmp_path / "segment-000000.bin"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert list(Segments(str(tmp_path)).recover()) == []


def test_halves_of_children_are_not_recovered(tmp_path: Path) -> None:
    segments = Segments(str(tmp_path))
    segments.append([block((0,), (1, 2))])
    segments.close()
    assert list(Segments(str(tmp_path)).recover()) == []


def test_files_go_when_nobody_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.commit.segments.ROLL_BYTES", 1)
    segments = Segments(str(tmp_path))
    (first,) = segments.append([block((0,), (1,))])
    segments.append([block((1,), (2,))])
    assert len(os.listdir(tmp_path)) == 2
    segments.share(first)
    segments.release(first)
    assert len(os.listdir(tmp_path)) == 2
    segments.release(first)
    assert os.listdir(tmp_path) == ["segment-000001.bin"]
    segments.remove_all()
    assert os.listdir(tmp_path) == []
