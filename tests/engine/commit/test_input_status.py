from __future__ import annotations

from headrace.engine.commit.entries import SplitRecord, pack
from headrace.engine.commit.input_status import input_status


def split(number: int, *files: str, closed: bool = False) -> SplitRecord:
    return SplitRecord(number, f"split {number}", "v", packed=pack((name, "1 1") for name in files), closed=closed)


def states(*splits: SplitRecord, progress: str = "") -> dict[str, str]:
    words = {"d": "done", "b": "begun", "u": "untouched"}
    found = input_status(splits, lambda number: words[progress[number]], {})  # type: ignore[arg-type,return-value]
    return {piece.label: piece.state for piece in found}


def test_a_file_that_is_cut_is_done_when_all_of_it_is() -> None:
    cut = [split(0, "a.csv"), split(1, "a.csv"), split(2, "a.csv")]
    assert states(*cut, progress="ddd") == {"a.csv": "done"}
    assert states(*cut, progress="dbu") == {"a.csv": "open"}
    assert states(*cut, progress="duu") == {"a.csv": "open"}
    assert states(*cut, progress="uuu") == {"a.csv": "waiting"}


def test_small_files_that_are_read_together_are_named_together() -> None:
    assert states(split(0, "a.csv", "b.csv"), split(1, "c.csv"), progress="du") == {
        "a.csv and 1 more file": "done",
        "c.csv": "waiting",
    }


def test_what_was_given_up_is_told_as_such_and_its_new_content_apart() -> None:
    assert states(split(0, "a.csv", closed=True), progress="d") == {"a.csv": "given up"}
    assert states(split(0, "a.csv", closed=True), split(1, "a.csv"), progress="dd") == {"a.csv": "done"}


def test_sources_without_files_are_told_by_their_splits() -> None:
    assert states(split(0), split(1), progress="du") == {"split 0": "done", "split 1": "waiting"}


def test_failed_rows_are_counted_where_they_come_from() -> None:
    found = input_status([split(0, "a.csv"), split(1, "a.csv"), split(2, "b.csv")], lambda _: "done", {0: 1, 1: 2})
    assert [piece.failed for piece in found] == [3, 0]
