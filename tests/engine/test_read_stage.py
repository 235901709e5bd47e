"""The last block of a split covers it up to its end."""

import pyarrow as pa

from headrace.engine.read_stage import coalesced, up_to_end
from headrace.records.block import Origin, dense_block
from headrace.records.position import END, START


def blocks(count: int):
    return [dense_block(pa.record_batch({"x": [i]}), split=0, first=i) for i in range(count)]


def test_only_the_last_block_reaches_the_end() -> None:
    assert [b.end for b in up_to_end(blocks(3))] == [(1,), (2,), END]


def test_a_split_without_blocks_is_covered_by_one_without_rows() -> None:
    (only,) = up_to_end([])
    assert (only.start, only.end, only.num_rows) == (START, END, 0)


def test_a_giant_row_does_not_wait_for_the_next_one(monkeypatch) -> None:
    monkeypatch.setattr("headrace.engine.read_stage.GIANT_BYTES", 100)
    made = []

    def blocks():
        for first, text in enumerate(["a", "b" * 1000, "c"]):
            made.append(text[0])
            yield dense_block(pa.record_batch({"x": [text]}), split=0, first=first)

    seen = []
    for block in up_to_end(blocks()):
        seen.append((block.num_rows, block.start, block.end))
        if block.nbytes > 100:
            assert made == ["a", "b"]
    assert seen == [(1, (0,), (1,)), (1, (1,), (2,)), (1, (2,), END)]


def test_the_end_of_a_split_whose_last_row_is_a_giant(monkeypatch) -> None:
    monkeypatch.setattr("headrace.engine.read_stage.GIANT_BYTES", 100)
    block = dense_block(pa.record_batch({"x": ["b" * 1000]}), split=0, first=0)
    giant, rest = up_to_end([block])
    assert (giant.end, rest.start, rest.end, rest.num_rows) == ((1,), (1,), END, 0)
    assert rest.batch.schema == block.batch.schema


def tiny(number: int, rows: int = 1, first: int = 0):
    batch = pa.record_batch({"x": [number] * rows})
    return dense_block(batch, split=0, first=first, origin=Origin(f"{number}.csv", first))


def test_tiny_blocks_become_one_that_still_knows_the_file_of_each_row() -> None:
    (block,) = coalesced((tiny(i, rows=2, first=2 * i) for i in range(1000)), clock=lambda: 0.0)
    assert (block.num_rows, block.start, block.end, block.ordinals) == (2000, (0,), (2000,), None)
    assert block.origin.place_of(777) == ("388.csv", 1)


def test_blocks_of_some_size_and_other_columns_stay_alone() -> None:
    large = dense_block(pa.record_batch({"x": list(range(20_000))}), split=0, first=2)
    other = dense_block(pa.record_batch({"y": [1]}), split=0, first=20_002)
    found = list(coalesced([tiny(0), tiny(1, first=1), large, other], clock=lambda: 0.0))
    assert [(b.num_rows, b.start) for b in found] == [(2, (0,)), (20_000, (2,)), (1, (20_002,))]


def test_tiny_blocks_that_come_slowly_are_handed_on() -> None:
    now = iter(range(100))
    assert len(list(coalesced((tiny(i, first=i) for i in range(6)), clock=lambda: next(now)))) == 6
