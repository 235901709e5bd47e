from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.extents import (
    CUT_ABOVE_BYTES,
    MAX_FILES_PER_SPLIT,
    SPLIT_BYTES,
    Extent,
    aligned,
    even_cuts,
    plan_splits,
)
from headrace.sources.storage import File

FILES = st.lists(st.integers(-1, 5 * SPLIT_BYTES) | st.integers(0, 100), max_size=40)


@given(FILES)
def test_every_byte_is_in_exactly_one_split(sizes: list[int]) -> None:
    files = [File(f"{i}.txt", size, "1") for i, size in enumerate(sizes)]
    splits = plan_splits(files, even_cuts)
    assert [s.number for s in splits] == list(range(len(splits)))
    extents = [e for s in splits for e in s.detail.extents]
    for i, file in enumerate(files):
        own = [e for e in extents if e.path == file.path]
        if len(own) == 1:
            assert (own[0].start, own[0].end) == (0, None)
        else:
            assert file.size_bytes > CUT_ABOVE_BYTES
            assert [e.start for e in own] == [0, *[e.end for e in own[:-1]]]
            assert own[-1].end == file.size_bytes
        assert own, i
    for split in splits:
        assert len(split.detail.extents) == 1 or split.size_bytes <= SPLIT_BYTES
        assert len(split.detail.extents) <= MAX_FILES_PER_SPLIT
        assert split.size_bytes <= CUT_ABOVE_BYTES


def test_compressed_files_are_not_cut() -> None:
    assert even_cuts(File("a.jsonl.gz", 10 * SPLIT_BYTES, "")) == []


def test_versions_follow_size_and_stamp() -> None:
    def version(size: int, stamp: str) -> str:
        (split,) = plan_splits([File("a", size, stamp)], even_cuts)
        return str(split.detail.version)

    assert len({version(1, "1"), version(1, "2"), version(2, "1")}) == 3
    assert version(1, "") == ""


@given(data=st.text(alphabet="ab\n", max_size=40), cut=st.integers(0, 40))
def test_each_line_belongs_to_the_extent_where_it_begins(data: str, cut: int, tmp_path_factory: object) -> None:
    path = tmp_path_factory.getbasetemp() / "align.txt"  # type: ignore[attr-defined]
    Path(path).write_text(data)
    size = len(data)
    cut = min(cut, size)
    left = aligned(Extent(str(path), 0, cut), None)
    right = aligned(Extent(str(path), cut, size), None)
    assert (left.start, left.end, right.end) == (0, right.start, size)
    assert left.end == size or left.end == 0 or data[left.end - 1] == "\n"
    assert left.end is not None
    assert left.end >= cut
