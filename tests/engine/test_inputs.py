"""The input of a resumed job: what counts as changed, how it is told, and which splits there are then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import headrace as hr
from headrace.engine.commit.entries import SplitRecord, pack
from headrace.engine.inputs import SHOWN, InputChanges, SettledInput, refuse, settle
from headrace.sources.arranged import files_of
from headrace.sources.source import Source, Split


def source(pattern: str = "*.csv", **options: object) -> Source:
    return hr.read_csv(pattern, **options).node.source  # type: ignore[arg-type,union-attr,return-value]


def record(found: Source, *, read: bool = True) -> list[SplitRecord]:
    """What a run would have recorded of a source."""
    return [
        SplitRecord(
            split.number,
            split.label,
            found.version(split),
            found.fingerprint(split) if read else None,
            packed=pack(files_of(split)),
        )
        for split in found.splits()
    ]


def settled(known: list[SplitRecord], pattern: str = "*.csv", **options: object) -> SettledInput:
    now = source(pattern, **options)
    return settle(now, known, now.splits())


def paths(found: SettledInput) -> list[list[str]]:
    return [[path for path, _ in files_of(split)] for split in found.splits]


def write(name: str, rows: int = 3, first: int = 0) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("id\n" + "".join(f"{i}\n" for i in range(first, first + rows)))


@pytest.fixture(autouse=True)
def _three_files(tmp_path: Path) -> None:
    os.chdir(tmp_path)
    for i, name in enumerate(("a.csv", "b.csv", "c.csv")):
        write(name, first=10 * i)


def test_the_same_input_has_no_changes() -> None:
    found = settled(record(source()))
    assert (found.changes, found.affected) == (InputChanges(), frozenset())
    assert paths(found) == [["a.csv", "b.csv", "c.csv"]]


def test_touched_files_with_the_same_bytes_are_the_same() -> None:
    known = record(source())
    os.utime("b.csv", (1, 1))
    assert settled(known).changes == InputChanges()


def test_a_touched_file_of_which_nothing_was_read_counts_as_changed() -> None:
    known = record(source(), read=False)
    os.utime("b.csv", (1, 1))
    assert settled(known).changes == InputChanges(changed=("b.csv",))


def test_content_is_not_read_where_nothing_was_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    known = record(source())
    write("d.csv")
    monkeypatch.setattr("headrace.sources.extents.byte_ranges", None)
    assert settled(known).changes == InputChanges(added=("d.csv",))


@pytest.mark.parametrize("content", ["id\n1\n", "id\n10\n11\n99\n"])
def test_other_bytes_are_a_change_of_that_file_alone(content: str) -> None:
    known = record(source())
    Path("b.csv").write_text(content)
    found = settled(known)
    assert found.changes == InputChanges(changed=("b.csv",))
    assert found.affected == {0}


def test_new_files_make_splits_behind_the_others_wherever_their_names_stand() -> None:
    known = record(source())
    for name in ("aa.csv", "d.csv"):
        write(name)
    found = settled(known)
    assert found.changes == InputChanges(added=("aa.csv", "d.csv"))
    assert paths(found) == [["a.csv", "b.csv", "c.csv"], ["aa.csv", "d.csv"]]
    assert [split.number for split in found.splits] == [0, 1]
    again = settled([*known, *record_of(found, first=1)])
    assert again.changes == InputChanges()
    assert paths(again) == paths(found), "what was added keeps its place"


def record_of(found: SettledInput, *, first: int) -> list[SplitRecord]:
    now = source()
    return [
        SplitRecord(s.number, s.label, now.version(s), now.fingerprint(s), packed=pack(files_of(s)))
        for s in found.splits[first:]
    ]


def test_removed_files_are_named_and_the_others_are_new_input_only_if_they_had_not_been_read() -> None:
    known = record(source())
    Path("b.csv").unlink()
    now = source()
    for untouched, rest in ((True, [["a.csv", "c.csv"]]), (False, [])):
        found = settle(now, known, now.splits(), rerun=lambda i, untouched=untouched: untouched)
        assert found.changes == InputChanges(removed=("b.csv",))
        assert found.affected == {0}
        assert paths(found)[1:] == rest


def test_a_file_that_was_renamed_is_the_same() -> None:
    known = record(source())
    Path("b.csv").rename("z.csv")
    found = settled(known)
    assert found.changes == InputChanges()
    assert paths(found) == [["a.csv", "z.csv", "c.csv"]]


def test_a_renamed_file_is_another_where_rows_hold_its_name() -> None:
    known = record(source(include_path="file"))
    Path("b.csv").rename("z.csv")
    assert settled(known, include_path="file").changes == InputChanges(removed=("b.csv",), added=("z.csv",))


def test_files_that_cannot_be_told_apart_are_not_taken_for_one_another() -> None:
    for name in ("a.csv", "b.csv"):
        os.utime(name, (1, 1))
        write(name, rows=2, first=0)
        os.utime(name, (1, 1))
    known = record(source())
    Path("a.csv").rename("y.csv")
    Path("b.csv").rename("z.csv")
    found = settled(known).changes
    assert found == InputChanges(removed=("a.csv", "b.csv"), added=("y.csv", "z.csv"))


def test_the_folder_may_have_moved() -> None:
    write("old/x.csv", first=100)
    write("old/y.csv", rows=4, first=200)
    known = record(source("old/*.csv"))
    shutil.move("old", "new")
    found = settled(known, "new/*.csv")
    assert found.changes == InputChanges()
    assert paths(found) == [["new/x.csv", "new/y.csv"]]


def test_parts_of_a_large_file_keep_their_places_when_files_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUT_ABOVE_BYTES", "SPLIT_BYTES"):
        monkeypatch.setattr(f"headrace.sources.extents.{name}", 100)
    rows = "".join(f'{{"id": {i:08}}}\n'.replace(": 0", ": 1") for i in range(60))
    Path("b.jsonl").write_text(rows)
    pattern = "*.jsonl"

    def now() -> Source:
        return hr.read_json(pattern).node.source  # type: ignore[union-attr,return-value]

    known = record(now())
    assert len(known) > 3
    Path("a.jsonl").write_text('{"id": 1}\n')
    one = now()
    found = settle(one, known, one.splits())
    assert [split.label for split in found.splits] == [*(r.label for r in known), "a.jsonl"]
    assert found.changes == InputChanges(added=("a.jsonl",))
    Path("b.jsonl").write_text(rows + '{"id": 2}\n' * 30)
    two = now()
    found = settle(two, known, two.splits())
    assert found.changes == InputChanges(changed=("b.jsonl",), added=("a.jsonl",))
    assert found.affected == frozenset(range(len(known)))


def test_splits_that_were_given_up_stay_so() -> None:
    known = [*record(source()), SplitRecord(1, "gone.csv", "v", packed=pack([("gone.csv", "3 1")]), closed=True)]
    found = settled(known)
    assert found.changes == InputChanges()
    assert [split.label for split in found.splits] == [known[0].label, "gone.csv"]


class Numbers:
    """A source that knows nothing of files."""

    name = "numbers"

    def __init__(self, *labels: str, version: str = "v1") -> None:
        self._labels, self._version = labels, version

    def splits(self) -> list[Split]:
        return [Split(number=i, label=label, size_bytes=1) for i, label in enumerate(self._labels)]

    def version(self, split: Split) -> str:
        return self._version

    fingerprint = version


def test_sources_without_files_are_compared_split_by_split() -> None:
    known = record(Numbers("a", "b"))  # type: ignore[arg-type]
    for now, changes in (
        (Numbers("a", "b"), InputChanges()),
        (Numbers("a"), InputChanges(removed=("b",))),
        (Numbers("a", "c"), InputChanges(changed=("c (where b was)",))),
        (Numbers("a", "b", "c"), InputChanges(changed=("c",))),
        (Numbers("a", "b", version="v2"), InputChanges(changed=("a", "b"))),
    ):
        assert settle(now, known, now.splits()).changes == changes  # type: ignore[arg-type]


def test_the_refusal_names_changes_one_by_one_and_the_ways_out() -> None:
    changes = InputChanges(changed=tuple(f"{i}.csv" for i in range(SHOWN)), added=("x.csv", "y.csv"))
    message = str(refuse(changes, output="out/", rows_done=12))
    assert f"{SHOWN - 1}.csv changed; and 2 more." in message
    assert "x.csv" not in message
    assert "12 rows are finished" in message
    for way in ("--on-change continue-new-input", "--on-change restart", "--overwrite"):
        assert way in message
    assert "continue" not in str(refuse(changes, output="out/", rows_done=12, may_continue=False))
