from __future__ import annotations

import bz2
import csv
import gzip
import io
import math
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError, SchemaError, SourceError, UnknownColumnError
from headrace.sources import csv as csv_module
from headrace.sources import extents, pieces
from headrace.sources.agreement import parse_dtypes
from headrace.sources.assembly import Added
from headrace.sources.csv import CSV_PATTERNS, CsvSource
from headrace.sources.listing import FileSet
from tests.sources.reading import read, read_from


def source(*paths: Path, dtypes: dict[str, Any] | None = None, **options: Any) -> CsvSource:
    return CsvSource(fileset=FileSet.of(paths, patterns=CSV_PATTERNS), dtypes=parse_dtypes(dtypes), **options)


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def shrink(patch: pytest.MonkeyPatch, split_bytes: int) -> None:
    """Make files of kilobytes be cut and streamed as files of gigabytes are."""
    for module in (extents, csv_module):
        patch.setattr(module, "SPLIT_BYTES", split_bytes)
        patch.setattr(module, "CUT_ABOVE_BYTES", split_bytes * 3 // 2)
    patch.setattr(
        pieces.pieces, "__kwdefaults__", {"delimiter": None, "whole_bytes": 0, "piece_bytes": split_bytes // 6}
    )


@pytest.fixture
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, 4000)


def test_identifiers_survive(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", "id,zip,big,na,day\n1,007,12345678901234567890,NA,2024-01-01\n,10,1,x,2024-01-02\n"
    )
    out = read(source(path))
    assert out.rows == [
        {"id": 1, "zip": "007", "big": "12345678901234567890", "na": "NA", "day": "2024-01-01"},
        {"id": None, "zip": "10", "big": "1", "na": "x", "day": "2024-01-02"},
    ]


def test_empty_text_stays_text_and_empty_numbers_are_null(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'n,t\n1,x\n,\n"",""\n')
    assert read(source(path)).rows == [{"n": 1, "t": "x"}, {"n": None, "t": ""}, {"n": None, "t": ""}]


def test_quoted_newlines_that_look_like_rows(tmp_path: Path) -> None:
    path = tmp_path / "letters.csv"
    rng = random.Random(1)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["id", "text", "stars"])
        for i in range(20_000):
            lines = [f"{rng.randint(0, 20_000)},the parcel came late,{k}" for k in range(i % 13)]
            out.writerow([i, "\r\n".join(lines) if i % 2 else "\n".join([*lines, 'so "they" said']), i % 6])
    with path.open(newline="", encoding="utf-8") as file:
        expected = [(int(r["id"]), r["text"], int(r["stars"])) for r in csv.DictReader(file)]
    got = read(source(path))
    assert got.failures == []
    assert [(r["id"], r["text"], r["stars"]) for r in got.rows] == expected


@settings(max_examples=40, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.integers(0, 99), st.text(alphabet='a,"\n\r;é', max_size=60)), min_size=120, max_size=160
    )
)
def test_cutting_changes_nothing(records: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([("id", "text"), *records])
    path = write(tmp_path_factory.mktemp("cut") / "a.csv", text.getvalue())
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, 1000)
        out = read(source(path, dtypes={"id": "int64", "text": "string"}))
    assert out.failures == []
    assert [(r["id"], r["text"]) for r in out.rows] == records


@pytest.mark.usefixtures("small_sizes")
def test_large_files_are_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,t\n" + "".join(f'{i},"x\n{i}"\n' for i in range(4000)))
    out = read(source(path))
    assert out.splits > 5
    assert out.column("id") == list(range(4000))


@pytest.mark.usefixtures("small_sizes")
def test_compressed_files_are_streamed(tmp_path: Path) -> None:
    text = ("id,t\n" + "".join(f'{i},"x\n{i}"\n' for i in range(4000))).encode()
    for path in (write(tmp_path / "a.csv.gz", gzip.compress(text)), write(tmp_path / "a.csv.bz2", bz2.compress(text))):
        out = read(source(path))
        assert out.splits == 1
        assert out.column("id") == list(range(4000))


def test_gzip_of_several_members(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", gzip.compress(b"id\n1\n") + gzip.compress(b"2\n3\n"))
    assert read(source(path)).column("id") == [1, 2, 3]


def test_zstd(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(b"id\n1\n2\n")
    assert read(source(path)).column("id") == [1, 2]


def test_truncated_gzip_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", gzip.compress(b"id\n" + b"1\n" * 9999)[:-12])
    with pytest.raises(SourceError, match=r"a\.csv\.gz.*truncated"):
        read(source(path))


def test_no_gzip_at_all(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", b"id\n1\n")
    with pytest.raises(SourceError, match=r"a\.csv\.gz.*not gzip"):
        read(source(path))


def test_a_code_that_turns_up_late_fails_its_row_alone(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 90 + 10}\n" for i in range(1, 200_000))
    path = write(tmp_path / "a.csv", f"id,zip\n{rows}200000,00501\n200001,77\n")
    out = read(source(path))
    assert out.column("id") == [*range(1, 200_000), 200_001]
    (failure,) = out.failures
    assert failure.file == str(path)
    assert failure.position == 199_999
    assert "'zip'" in failure.message
    assert "00501" in failure.message
    assert "dtypes={'zip': 'string'}" in failure.message


def test_codes_in_text_columns_beside_numbers_are_no_trouble(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'n,zip\n1,"007"\n0,008\n0.5,009\n')
    assert read(source(path)).rows == [{"n": 1.0, "zip": "007"}, {"n": 0.0, "zip": "008"}, {"n": 0.5, "zip": "009"}]


def test_a_late_misfit_fails_alone_and_a_late_float_widens(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i}\n" for i in range(100_000))
    path = write(tmp_path / "a.csv", f"a,b\n{rows}1.5,7\n5,n/a\n6,99999999999999999999\n")
    out = read(source(path))
    assert len(out.rows) == 100_001
    assert out.rows[-1] == {"a": 1.5, "b": 7}
    assert [f.position for f in out.failures] == [100_001, 100_002]
    assert "'n/a' is not int64" in out.failures[0].message


def test_ragged_rows_fail_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b\n1,2\n\n3\n4,5,6\n7,8\n")
    out = read(source(path))
    assert out.rows == [{"a": 1, "b": 2}, {"a": 7, "b": 8}]
    assert [(f.position, f.row) for f in out.failures] == [(1, '{"line": "3"}'), (2, '{"line": "4,5,6"}')]
    assert "1 cells where the header has 2" in out.failures[0].message


def test_ragged_and_misfit_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a\n1\n" + "2\n" * 400_000 + "1,2\nx\n3\n")
    out = read(source(path))
    assert [f.position for f in out.failures] == [400_001, 400_002]
    assert out.rows[-1] == {"a": 3}


def test_broken_utf8_fails_its_row_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"a,b\n1,x\n2,k\xe4se\n\xff\n3,z\n")
    out = read(source(path))
    assert out.column("a") == [1, 3]
    assert [f.position for f in out.failures] == [1, 2]


def test_other_encodings(tmp_path: Path) -> None:
    latin = write(tmp_path / "a.csv", "a,b\n1,käse\n".encode("cp1252"))
    assert read(source(latin, encoding="cp1252")).column("b") == ["käse"]
    wide = write(tmp_path / "b.csv", "a,b\n1,käse\n".encode("utf16"))
    assert read(source(wide, encoding="utf16")).column("b") == ["käse"]
    with pytest.raises(SourceError, match=r"a\.csv is not utf16"):
        read(source(latin, encoding="utf16"))


def test_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbfid,b\n1,2\n")
    assert read(source(path)).rows == [{"id": 1, "b": 2}]


def test_unclosed_quote_is_a_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'a,b\n1,x\n2,"y\n3,z\n')
    out = read(source(path))
    assert out.rows == [{"a": 1, "b": "x"}]
    assert "never closed" in out.failures[0].message


def test_empty_files_and_headers_alone(tmp_path: Path) -> None:
    empty, header = write(tmp_path / "a.csv", ""), write(tmp_path / "b.csv", "id,text\n")
    full = write(tmp_path / "c.csv", "id,text\n1,x\n")
    assert read(source(empty)).rows == []
    assert source(header).schema().names == ["id", "text"]
    assert read(source(header)).rows == []
    out = read(source(empty, header, full))
    assert out.rows == [{"id": 1, "text": "x"}]
    assert read(source(write(tmp_path / "d.csv", "\n\n"))).rows == []


def test_files_are_unified(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", "id,x\n1,\n2,\n")
    b = write(tmp_path / "b.csv", "x,id,late\n1.5,3,new\n")
    out = read(source(a, b))
    assert source(a, b).schema() == pa.schema({"id": pa.int64(), "x": pa.float64(), "late": pa.string()})
    assert out.rows[0] == {"id": 1, "x": None, "late": None}
    assert out.rows[2] == {"id": 3, "x": 1.5, "late": "new"}


def test_quarrel_between_files(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.csv", "zip\n10\n"), write(tmp_path / "b.csv", "zip\n007\n")
    with pytest.raises(SchemaError) as caught:
        source(a, b).schema()
    for part in ("'zip'", "int64", "string", str(a), str(b), "dtypes={'zip': 'string'}", "type_conflicts='text'"):
        assert part in str(caught.value)
    assert read(source(a, b, type_conflicts="text")).column("zip") == ["10", "007"]
    assert read(source(a, b, dtypes={"zip": "string"})).column("zip") == ["10", "007"]
    assert read(source(a, b, dtypes={"zip": "int64"})).column("zip") == [10, 7]


def test_dtypes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "when,price,flag\n2024-01-02T03:04:05,1.10,1\nsoon,x,0\n")
    out = read(source(path, dtypes={"when": "timestamp[s]", "price": pa.decimal128(5, 2), "flag": "bool"}))
    assert [str(v) for v in out.rows[0].values()] == ["2024-01-02 03:04:05", "1.10", "True"]
    assert len(out.failures) == 1
    with pytest.raises(UnknownColumnError, match="'wen'.*did you mean 'when'"):
        source(path, dtypes={"wen": "string"}).schema()


def test_projection(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,c\n1,x,2\n3,y,4\n")
    assert read(source(path), columns=["c", "a"]).rows == [{"a": 1, "c": 2}, {"a": 3, "c": 4}]
    assert read(source(path), columns=[]).rows == [{}, {}]
    assert read(source(path, columns=("b",))).rows == [{"b": "x"}, {"b": "y"}]
    with pytest.raises(UnknownColumnError, match="'bb'"):
        source(path, columns=("bb",)).schema()


def test_headerless_and_renamed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "1;x\n2;y\n")
    assert read(source(path, has_header=False, delimiter=";")).rows == [{"f0": 1, "f1": "x"}, {"f0": 2, "f1": "y"}]
    named = source(path, has_header=False, delimiter=";", column_names=("n", "t"))
    assert read(named).rows[0] == {"n": 1, "t": "x"}
    with pytest.raises(SourceError, match="2 columns, but column_names= names 1"):
        source(path, delimiter=";", column_names=("n",)).schema()


def test_equal_names_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,a\n1,2\n")
    with pytest.raises(SourceError, match=r"two columns named 'a'.*column_names"):
        source(path).schema()
    assert read(source(path, column_names=("a", "b"))).rows == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_header_that_is_cut_at_another_character_is_refused(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path / "a.csv", delimiter.join("ab") + "\n" + delimiter.join("12") + "\n")
    with pytest.raises(SourceError, match="pass delimiter=") as caught:
        source(path).schema()
    assert repr(delimiter) in str(caught.value)
    assert read(source(path, delimiter=delimiter)).rows == [{"a": 1, "b": 2}]
    whole = delimiter.join("ab")
    assert read(source(path, column_names=(whole,))).rows == [{whole: delimiter.join("12")}]


def test_text_in_another_encoding_says_so(tmp_path: Path) -> None:
    cell = write(tmp_path / "cell.csv", "a,b\n1,käse\n".encode("cp1252"))
    (failure,) = read(source(cell)).failures
    assert "is not UTF-8; pass the encoding" in failure.message
    header = write(tmp_path / "header.csv", "a,käse\n1,2\n".encode("cp1252"))
    with pytest.raises(SourceError, match=r"the header .* is not UTF-8; pass the encoding"):
        source(header).schema()
    assert read(source(header, column_names=("a", "b"))).rows == [{"a": 1, "b": 2}]
    wide = write(tmp_path / "wide.csv", "a,b\n1,2\n".encode("utf-16"))
    with pytest.raises(SourceError, match="encoding='utf16'"):
        source(wide).schema()


def test_bad_options() -> None:
    with pytest.raises(PlanError, match="delimiter"):
        source(Path("a.csv"), delimiter=",,")
    with pytest.raises(PlanError, match="encoding 'utf9'"):
        source(Path("a.csv"), encoding="utf9")


def test_partitions_and_paths(tmp_path: Path) -> None:
    write(tmp_path / "year=2024/land=01/a.csv", "id\n1\n")
    write(tmp_path / "year=2025/land=C%C3%B4te/a.csv", "id\n2\n")
    added = Added(include_path="file", partitioning="hive")
    out = read(source(tmp_path, added=added))
    assert [(r["id"], r["year"], r["land"]) for r in out.rows] == [(1, 2024, "01"), (2, 2025, "Côte")]
    assert out.rows[0]["file"].endswith("year=2024/land=01/a.csv")
    assert read(source(tmp_path, added=added), columns=["year"]).rows == [{"year": 2024}, {"year": 2025}]


@pytest.mark.usefixtures("small_sizes")
def test_reading_from_the_middle(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id\n" + "".join(f"{i}\n" for i in range(900)))
    one = source(path)
    split = one.splits()[0]
    whole = read_from(one, split, 0)
    for start in (0, 1, 333, len(whole) - 1, len(whole)):
        assert read_from(one, split, start) == whole[start:]


def test_identity_follows_the_content(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id\n1\n2\n")
    before = source(path)
    fingerprint, version = before.fingerprint(before.splits()[0]), before.version(before.splits()[0])
    write(path, "id\n1\n2\n")
    os.utime(path, ns=(1, 1))
    touched = source(path)
    assert touched.version(touched.splits()[0]) != version
    assert touched.fingerprint(touched.splits()[0]) == fingerprint
    write(path, "id\n1\n3\n")
    changed = source(path)
    assert changed.fingerprint(changed.splits()[0]) != fingerprint


def test_tiny_files_are_packed(tmp_path: Path) -> None:
    for i in range(700):
        write(tmp_path / f"{i:04}.csv", f"id\n{i}\n")
    out = read(source(tmp_path))
    assert out.splits == 2
    assert out.column("id") == list(range(700))


def test_a_file_whose_first_line_never_ends_is_refused_before_all_of_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MAX_RECORD_BYTES", 100_000)
    path = write(tmp_path / "endless.csv", "x" * 10_000_000)
    with pytest.raises(SourceError, match=r"endless\.csv: the header cannot be read.*longer than 100,000 bytes"):
        source(path).schema()


@pytest.mark.parametrize("cell", ["70000", "1e400"])
def test_a_number_too_large_for_its_type_fails_its_row(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"x\n1.5\n{cell}\ninf\n")
    out = read(source(path, dtypes={"x": "float16"}))
    assert out.column("x") == [1.5, math.inf]
    assert [f.ordinal for f in out.failures] == [1]
    assert f"'{cell}' is not halffloat" in out.failures[0].message
