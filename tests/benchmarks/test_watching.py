import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from benchmarks.watching import Watch, Watching, files_in, read_file, rows_of


def write(path, ids):
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)


@pytest.fixture
def watch(tmp_path):
    write(tmp_path / "part-0.parquet", [1, 2])
    watch = Watch(tmp_path, "id", now=lambda: 5.0)
    watch.look()
    assert watch.complaints == []
    return watch


def complaint(watch):
    watch.look()
    (found,) = watch.complaints
    return found


def test_more_files_are_welcome(watch):
    write(watch.folder / "part-1.parquet", [3])
    write(watch.folder / ".part-2.parquet", [3])
    watch.look()
    watch.look()
    assert watch.complaints == []
    assert watch.seen_at == {1: 5.0, 2: 5.0, 3: 5.0}


def test_the_same_rows_under_more_columns_are_welcome(watch):
    pq.write_table(pa.table({"id": [1, 2], "more": [None, "x"]}), watch.folder / "part-0.parquet")
    watch.look()
    assert watch.complaints == []


def test_a_file_that_goes_is_noticed(watch):
    (watch.folder / "part-0.parquet").unlink()
    assert "has gone" in complaint(watch)


def test_a_row_that_goes_is_noticed(watch):
    write(watch.folder / "part-0.parquet", [1])
    assert "has other rows" in complaint(watch)


def test_a_row_in_two_files_is_noticed(watch):
    write(watch.folder / "part-1.parquet", [2])
    assert "there twice" in complaint(watch)


def test_a_row_twice_in_one_file_is_noticed(watch):
    write(watch.folder / "part-1.parquet", [3, 3])
    assert "there twice" in complaint(watch)


@pytest.mark.parametrize("name", ["part-1.parquet", "part-1.jsonl"])
def test_a_torn_file_is_noticed(watch, name):
    (watch.folder / name).write_bytes(b'{"id": 7}')
    assert "cannot be read" in complaint(watch)


def test_a_folder_that_is_not_there_yet_is_empty(tmp_path):
    assert files_in(tmp_path / "nowhere") == []


def test_every_format_is_read(tmp_path):
    write(tmp_path / "a.parquet", [1])
    pyarrow.csv.write_csv(pa.table({"id": [2]}), tmp_path / "b.csv")
    (tmp_path / "c.jsonl").write_text('{"id": 3}\n')
    assert rows_of(tmp_path, "id", "id") == [(1, 1), (2, 2), (3, 3)]
    letters = tmp_path / "_dead_letters"
    letters.mkdir()
    (letters / "failures-0.jsonl").write_text(json.dumps({"row": {"id": 4}, "stage": "map"}) + "\n")
    assert rows_of(letters, "id", None) == [(4, None)]
    assert len(files_in(tmp_path)) == 3
    with pytest.raises(ValueError, match="what is this"):
        read_file(tmp_path / "d.txt")


def test_what_happens_while_nobody_looks_is_seen_at_the_end(tmp_path):
    watch = Watch(tmp_path, "id")
    with Watching({"": watch}) as watching:
        write(tmp_path / "part-0.parquet", [1])
    assert watching.complaints == []
    assert watching.safe_at(1, [""]) == watch.seen_at[1]
    assert watching.safe_at(2, [""]) == float("inf")
