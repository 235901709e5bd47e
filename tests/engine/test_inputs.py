"""The input of a resumed job: what counts as changed, and how it is told."""

from headrace.engine.commit.journal import SplitRecord
from headrace.engine.inputs import changes, refuse
from headrace.sources.source import Split


def split(number: int, label: str) -> Split:
    return Split(number=number, label=label, size_bytes=1)


def record(number: int, label: str, version: str = "v1", fingerprint: str | None = "f1") -> SplitRecord:
    return SplitRecord(number, label, version, fingerprint)


def found(recorded, splits, *, version="v1", fingerprint="f1"):
    return changes(
        {r.number: r for r in recorded},
        [(s.number, s) for s in splits],
        version=lambda number, split: version,
        fingerprint=lambda number, split: fingerprint,
    )


def test_the_same_input_has_no_changes() -> None:
    assert found([record(0, "a.csv")], [split(0, "a.csv")]) == []


def test_a_touched_file_with_the_same_bytes_is_the_same() -> None:
    assert found([record(0, "a.csv")], [split(0, "a.csv")], version="v2") == []


def test_other_bytes_are_a_change() -> None:
    assert found([record(0, "a.csv")], [split(0, "a.csv")], version="v2", fingerprint="f2") == ["a.csv changed"]


def test_a_touched_file_of_which_nothing_was_read_counts_as_changed() -> None:
    assert found([record(0, "a.csv", fingerprint=None)], [split(0, "a.csv")], version="v2") == ["a.csv changed"]


def test_content_is_not_read_where_the_version_is_the_same() -> None:
    def never(number, split):
        raise AssertionError("read")

    recorded = {0: record(0, "a.csv")}
    assert changes(recorded, [(0, split(0, "a.csv"))], version=lambda n, s: "v1", fingerprint=never) == []


def test_new_lost_and_moved_files_are_named() -> None:
    recorded = [record(0, "a.csv"), record(1, "b.csv")]
    assert found(recorded, [split(0, "a.csv")]) == ["b.csv is gone"]
    assert found(recorded, [split(0, "a.csv"), split(1, "c.csv")]) == ["c.csv is where b.csv was"]
    assert found(recorded[:1], [split(0, "a.csv"), split(1, "b.csv")]) == ["b.csv is new"]


def test_the_refusal_names_some_changes_and_the_ways_out() -> None:
    message = str(refuse([f"{i}.csv changed" for i in range(7)], output="out/", rows_done=12))
    assert "4.csv changed" in message
    assert "5.csv" not in message
    assert "and 2 more" in message
    assert "12 rows are finished" in message
    assert "--overwrite" in message
