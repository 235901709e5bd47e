"""Rows that a sink cannot take fail alone, whatever stands beside them and however often the run dies."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.commit.committer import Committer
from headrace.engine.commit.failures import FailureLimit, Failures
from headrace.engine.commit.identity import JobIdentity
from headrace.errors import SinkError, TooManyFailuresError
from headrace.records.block import Block, Unit, dense_block
from headrace.records.columns import to_column
from headrace.records.position import END
from headrace.sinks.json import JsonSink
from headrace.sinks.parquet import ParquetSink
from tests.engine.commit.jobs import random_cuts, visible

ODD: dict[str, Any] = {"text": "much", "huge": 2**80 + 1, "set": {1}, "list": [1.5]}
values = st.lists(st.sampled_from([1, 2, None, 7, 2.5, *ODD]), max_size=12).map(tuple)


def blocks_of(units: tuple[tuple[Any, ...], ...]) -> list[Block]:
    blocks = []
    for split, unit in enumerate(units):
        column = to_column([ODD.get(value, value) if isinstance(value, str) else value for value in unit])
        batch = pa.record_batch(
            {"id": pa.array([1_000 * split + i for i in range(len(unit))], pa.int64()), "x": column}
        )
        blocks.append(replace(dense_block(batch, split=split, first=0), end=END))
    return blocks


def committer_for(out: str, units: int, sink: Any = None, **options: Any) -> Committer:
    options.setdefault("fails_as", "write")
    return Committer(
        sink or ParquetSink(out), identity=JobIdentity({}), units=[Unit(i) for i in range(units)], **options
    )


def letters(out: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in visible(out, "_dead_letters/*.jsonl")
        for line in Path(path).read_text().splitlines()
    ]


@settings(max_examples=40, deadline=None)
@given(
    units=st.lists(values, min_size=1, max_size=4).map(tuple),
    kills=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=3),
    seed=st.integers(0, 2**32),
)
def test_numbers_are_written_and_all_else_is_set_aside(
    tmp_path_factory: pytest.TempPathFactory,
    units: tuple[tuple[Any, ...], ...],
    kills: list[tuple[int, bool]],
    seed: int,
) -> None:
    units = ((0,), *units)  # the first row settles what the column is
    out = str(tmp_path_factory.mktemp("odd") / "out")
    rng = random.Random(seed)

    def puts(committer: Committer, count: int | None) -> None:
        committer.open()
        missing = [piece for block in blocks_of(units) for piece in committer.done.missing(block)]
        pieces = [piece for block in missing for piece in random_cuts(block, rng)]
        rng.shuffle(pieces)
        for piece in pieces[:count]:
            committer.put(piece)

    for count, gracefully in kills:
        committer = committer_for(out, len(units))
        puts(committer, count)
        committer.abort() if gracefully else committer._close()
    committer = committer_for(out, len(units))
    puts(committer, None)
    committer.finish()

    good = [1_000 * u + i for u, unit in enumerate(units) for i, v in enumerate(unit) if not isinstance(v, str)]
    odd = [1_000 * u + i for u, unit in enumerate(units) for i, v in enumerate(unit) if isinstance(v, str)]
    assert [i for path in visible(out) for i in pq.read_table(path)["id"].to_pylist()] == good
    assert sorted(letter["row"]["id"] for letter in letters(out)) == odd
    assert {letter["stage"] for letter in letters(out)} <= {"write"}
    assert committer.statistics().dead_letters == len(odd)


def test_the_letter_says_what_does_not_go_with_what(tmp_path: Path) -> None:
    out = str(tmp_path)
    committer = committer_for(out, 2)
    committer.open()
    for block in blocks_of(((1, 2), (3, "text"))):
        committer.put(block)
    committer.finish()
    (letter,) = letters(out)
    assert letter["message"].startswith("column 'x' is string here ('much') and int64 in other rows; ")
    assert letter["row"] == {"id": 1_001, "x": "much"}
    assert committer.statistics().failed == 1


def test_files_of_text_hold_all_kinds_but_what_is_no_value_of_theirs(tmp_path: Path) -> None:
    out = str(tmp_path)
    committer = committer_for(out, 2, JsonSink(out))
    committer.open()
    for block in blocks_of(((1, 2), ("text", "set"))):
        committer.put(block)
    committer.finish()
    assert [json.loads(line)["x"] for path in visible(out) for line in Path(path).read_text().splitlines()] == [
        1,
        2,
        "much",
    ]
    assert [letter["row"]["id"] for letter in letters(out)] == [1_001]


def test_without_a_step_to_fail_in_the_first_such_row_ends_the_run(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), 1, fails_as=None)
    committer.open()
    with pytest.raises(SinkError, match=r"integer beyond 64 bits.*\(row 1 of the input; on_error='dead_letter'"):
        committer.put(blocks_of(((1, "huge"),))[0])
    committer.abort()


def test_rows_that_the_sink_cannot_take_count_for_the_limit(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), 1, failures=Failures(FailureLimit(rows=1)))
    committer.open()
    with pytest.raises(TooManyFailuresError, match=r"2 of 3 rows failed.*2 × SinkError in step 'write'"):
        committer.put(blocks_of(((1, "huge", "text"),))[0])
    committer.abort()


def test_it_is_pointless_when_none_of_the_first_rows_can_be_taken(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), 1)
    committer.open()
    with pytest.raises(TooManyFailuresError, match=r"step 'write': all of the first 120 rows failed.*set"):
        committer.put(blocks_of((("set",) * 120,))[0])
    committer.abort()


def test_one_odd_row_in_front_does_not_make_the_others_odd(tmp_path: Path) -> None:
    committer = committer_for(str(tmp_path), 1)
    committer.open()
    committer.put(blocks_of((("text", None, 1, 2, 2.5),))[0])
    committer.finish()
    assert [letter["row"]["id"] for letter in letters(str(tmp_path))] == [0]
