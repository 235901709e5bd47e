"""Tiny files are parsed many at once, and nobody can tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.records.block import Block
from headrace.records.columns import to_rows
from headrace.sources.packs import Pack

LINES = st.sampled_from(
    ['{"id": 1, "x": "a"}', '{"id": 2}', "", "  ", '{"id": "no"}', "{broken", '{"id": 3, "y": 1}', "[1]"]
)
RECORDS = st.sampled_from(["1,a", '2,"b\nb"', '3,"c ""d"""', "", "x,y", "1,2,3", "007,e", '5,"f'])


def seen(blocks: list[Block]) -> tuple[list[Any], list[Any]]:
    """Return each row with its file and place, and each failure with its own."""
    rows = [
        (block.origin.place_of(int(ordinal)) if block.origin else None, int(ordinal), row)
        for block in blocks
        for ordinal, row in zip(block.ordinal_array(), to_rows(block.batch), strict=True)
    ]
    return rows, [(f.file, f.position, f.ordinal, f.message) for block in blocks for f in block.failures]


def read(ds: hr.Dataset) -> list[Block]:
    source = ds.node.source
    return [block for split in source.splits() for block in source.read(split, columns=None)]


def assert_alike(make: Callable[[], hr.Dataset]) -> list[Block]:
    packed = read(make())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sources.packs.packs", lambda extents, content: [Pack([e]) for e in extents])
        single = read(make())
    assert seen(packed) == seen(single)
    assert all(right.start in ((0,), left.end) for left, right in pairwise(packed))
    return packed


@settings(max_examples=30, deadline=None)
@given(files=st.lists(st.lists(LINES, max_size=4), min_size=1, max_size=6), final=st.booleans(), bom=st.booleans())
def test_json(tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], final: bool, bom: bool) -> None:
    folder = tmp_path_factory.mktemp("packs")
    (folder / "0.jsonl").write_text('{"id": 0, "x": "first"}\n')
    for i, lines in enumerate(files, start=1):
        text = ("\ufeff" if bom else "") + "\n".join(['{"id": 9}', *lines]) + ("\n" if final else "")
        (folder / f"{i}.jsonl").write_text(text)
    assert_alike(lambda: hr.read_json(str(folder), dtypes={"id": "int64", "x": "string"}))


@settings(max_examples=30, deadline=None)
@given(files=st.lists(st.lists(RECORDS, max_size=4), min_size=1, max_size=6), final=st.booleans(), bom=st.booleans())
def test_csv(tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], final: bool, bom: bool) -> None:
    folder = tmp_path_factory.mktemp("packs")
    (folder / "0.csv").write_text("id,x\n0,first\n")
    for i, records in enumerate(files, start=1):
        text = ("\ufeff" if bom else "") + "\n".join(["id,x", *records]) + ("\n" if final else "")
        (folder / f"{i}.csv").write_text(text)
    assert_alike(lambda: hr.read_csv(str(folder), dtypes={"id": "int64", "x": "string"}))


def test_a_thousand_files_come_in_few_blocks(tmp_path: Path) -> None:
    for i in range(1_000):
        (tmp_path / f"{i:04}.jsonl").write_text(json.dumps({"id": i}) + "\n")
    assert len(assert_alike(lambda: hr.read_json(str(tmp_path)))) == 2


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_columns_that_come_from_paths(tmp_path: Path, kind: str) -> None:
    for i in range(6):
        place = tmp_path / f"day={i // 2}"
        place.mkdir(exist_ok=True)
        (place / f"{i}.{kind}").write_text(f"id\n{i}\n{i}\n" if kind == "csv" else f'{{"id": {i}}}\n{{"id": {i}}}\n')
    ds = getattr(hr, "read_csv" if kind == "csv" else "read_json")(str(tmp_path), include_path="path")
    rows = ds.take(100)
    assert [row["day"] for row in rows] == [i // 2 for i in range(6) for _ in range(2)]
    assert [Path(row["path"]).name for row in rows] == [f"{i}.{kind}" for i in range(6) for _ in range(2)]


def test_files_with_other_columns_or_none(tmp_path: Path) -> None:
    for i, text in enumerate(["a,b\n1,2\n", "", "b,a\n3,4\n", "a,b\n", "a,b\n5,6"]):
        (tmp_path / f"{i}.csv").write_text(text)
    blocks = assert_alike(lambda: hr.read_csv(str(tmp_path)))
    assert [row for block in blocks for row in to_rows(block.batch)] == [
        {"a": 1, "b": 2}, {"a": 4, "b": 3}, {"a": 5, "b": 6},
    ]  # fmt: skip


def test_a_row_that_fails_later_on_is_named_by_its_own_file(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"{i:02}.jsonl").write_text(f'{{"id": {i}}}\n{{"id": {i + 100}}}\n')
    out = tmp_path / "out"

    def picky(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 113:
            raise ValueError("no")
        return row

    hr.read_json(str(tmp_path / "*.jsonl")).map(picky).write_json(str(out)).run(on_error="dead_letter")
    (letter,) = [json.loads(line) for line in (out / "_dead_letters").glob("*.jsonl").__next__().open()]
    assert (Path(letter["file"]).name, letter["position"]) == ("13.jsonl", 1)
