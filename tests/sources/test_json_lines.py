from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SchemaError, SourceError, UnknownColumnError
from headrace.sources import extents, pieces
from headrace.sources.agreement import parse_dtypes
from headrace.sources.assembly import Added
from headrace.sources.json import JSON_PATTERNS, JsonSource
from headrace.sources.listing import FileSet
from tests.sources.reading import read, read_from


def source(*paths: Path, dtypes: dict[str, Any] | None = None, **options: Any) -> JsonSource:
    return JsonSource(fileset=FileSet.of(paths, patterns=JSON_PATTERNS), dtypes=parse_dtypes(dtypes), **options)


def put(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_text_that_looks_like_a_time_stays_text(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", {"t": "2024-01-01", "n": {"t": "2024-01-01T00:00:00"}}, {"late": "2024-02-02"})
    assert read(source(path)).rows == [
        {"t": "2024-01-01", "n": {"t": "2024-01-01T00:00:00"}, "late": None},
        {"t": None, "n": None, "late": "2024-02-02"},
    ]


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("ending", ["\n", ""])
def test_one_huge_line(tmp_path: Path, place: int, ending: str) -> None:
    rows = [{"id": i, "scan": "x" * 12_000_000 if i == place else "ab" * 20} for i in range(5)]
    text = "\n".join(json.dumps(r) for r in rows) + ending
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode(), 1))
    for path in (plain, packed):
        assert [len(r["scan"]) for r in read(source(path)).rows] == [len(r["scan"]) for r in rows]


def test_the_second_file_knows_more(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", *({"id": i, "note": None} for i in range(3)))
    put(tmp_path / "b.jsonl", {"id": 3, "note": "hung up"}, {"id": 4, "note": None, "lang": "pt"}, {"id": 5})
    one = source(tmp_path)
    assert one.schema() == pa.schema({"id": pa.int64(), "note": pa.string(), "lang": pa.string()})
    out = read(one)
    assert out.column("note") == [None, None, None, "hung up", None, None]
    assert out.column("lang") == [None, None, None, None, "pt", None]


def test_a_key_beyond_any_sample(tmp_path: Path) -> None:
    rows = [{"id": i, "pad": "x" * 40} for i in range(40_000)]
    path = put(tmp_path / "a.jsonl", *rows, {"id": 40_000, "lang": "fi", "day": "2024-01-01", "big": 2**70})
    one = source(path)
    assert one.schema().names == ["id", "pad"]
    last = read(one).rows[-1]
    assert (last["id"], last["lang"], last["day"], last["big"]) == (40_000, "fi", "2024-01-01", str(2**70))


def test_quarrel(tmp_path: Path) -> None:
    a, b = put(tmp_path / "a.jsonl", {"note": "hung up"}), put(tmp_path / "b.jsonl", {"note": 17}, {"note": [1]})
    with pytest.raises(SchemaError):
        source(b).schema()
    put(b, {"note": 17})
    with pytest.raises(SchemaError) as caught:
        source(a, b).schema()
    for part in ("'note'", "string", "int64", str(a), str(b), "dtypes={'note': 'string'}"):
        assert part in str(caught.value)
    assert read(source(a, b, type_conflicts="text")).column("note") == ["hung up", "17"]
    assert read(source(a, b, dtypes={"note": "string"})).column("note") == ["hung up", "17"]


def test_a_quarrel_inside_one_file_names_it(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", {"x": {"y": 1}}, {"x": {"y": "a"}})
    with pytest.raises(SchemaError, match=r"a\.jsonl.*dtypes=\{'x'"):
        source(path).schema()
    assert read(source(path, type_conflicts="text")).column("x") == ['{"y": 1}', '{"y": "a"}']


def test_bad_lines_fail_alone(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", {"a": 1}, "", "nope", '{"a": 2', "[3]", {"a": 4})
    with path.open("ab") as file:
        file.write(b'{"a": 5, "b": "\xff"}\n{"a": 6}')
    out = read(source(path))
    assert out.column("a") == [1, 4, 6]
    assert [f.position for f in out.failures] == [1, 2, 3, 5]
    assert out.failures[0].row == '{"line": "nope"}'


def test_late_misfits_fail_alone_and_floats_widen(tmp_path: Path) -> None:
    rows = [{"a": i, "b": "x", "pad": "x" * 40} for i in range(20_000)]
    path = put(tmp_path / "a.jsonl", *rows, {"a": 1.5}, {"a": "x"}, {"a": True}, {"a": 2**63}, {"b": 3}, {"a": 7})
    out = read(source(path))
    assert [r["a"] for r in out.rows[-2:]] == [1.5, 7]
    assert [f.position for f in out.failures] == [20_001, 20_002, 20_003, 20_004]
    assert "'b': 3 is not string" in out.failures[-1].message
    assert "dtypes={'b': 'string'}" in out.failures[-1].message


def test_integers_are_never_rounded(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", {"id": 2**62 + 1}, {"id": None}, {"id": 2**64})
    assert read(source(path)).column("id") == [str(2**62 + 1), None, str(2**64)]
    path = put(tmp_path / "b.jsonl", {"id": 2**62 + 1}, {"id": None})
    assert read(source(path)).column("id") == [2**62 + 1, None]


def test_empty_and_blank_files(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", {"id": 1, "text": "hello"})
    (tmp_path / "b.jsonl").write_bytes(b"")
    (tmp_path / "c.jsonl").write_bytes(b"\n")
    put(tmp_path / "d.jsonl", {"id": 2, "text": "bye"})
    assert read(source(tmp_path)).column("id") == [1, 2]
    assert read(source(tmp_path / "b.jsonl")).rows == []
    assert read(source(tmp_path / "c.jsonl")).rows == []


def test_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert read(source(path)).rows == [{"a": 1}]


def test_an_array_is_refused_with_advice(tmp_path: Path) -> None:
    path = put(tmp_path / "a.json", '[\n{"a": 1}\n]')
    with pytest.raises(SourceError, match=r"a\.json holds one JSON array.*JSON Lines"):
        source(path).schema()
    path = put(tmp_path / "b.json", "{", ' "a": 1', "}")
    with pytest.raises(SourceError, match=r"b\.json holds objects over several lines.*jq -c \. "):
        source(path).schema()
    path = put(tmp_path / "c.json", "1", "2")
    with pytest.raises(SourceError, match=r"c\.json: no line .* object \('1' …\).*one object a line"):
        source(path).schema()


def test_nested_values_and_late_nested_keys(tmp_path: Path) -> None:
    rows = [{"p": {"x": 1, "tags": ["a"]}, "pad": "x" * 40} for _ in range(20_000)]
    path = put(tmp_path / "a.jsonl", *rows, {"p": {"x": 2, "tags": [], "day": "2024-01-01"}})
    assert read(source(path)).rows[-1]["p"] == {"x": 2, "tags": [], "day": "2024-01-01"}


def test_dtypes_and_projection(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", {"t": "2024-01-02", "n": 1, "o": 2}, {"t": "soon", "n": 2})
    out = read(source(path, dtypes={"t": "date32", "n": "float64"}))
    assert [str(r["t"]) for r in out.rows] == ["2024-01-02"]
    assert out.rows[0]["n"] == 1.0
    assert "'t'" in out.failures[0].message
    assert read(source(path), columns=["o"]).rows == [{"o": 2}, {"o": None}]
    assert read(source(path), columns=[]).rows == [{}, {}]
    with pytest.raises(UnknownColumnError):
        source(path, columns=("q",)).schema()


def test_partitions_and_paths(tmp_path: Path) -> None:
    put(tmp_path / "k=1/a.jsonl", {"id": 1})
    put(tmp_path / "k=x/a.jsonl", {"id": 2, "k": "own"})
    out = read(source(tmp_path / "k=1", added=Added(partitioning="hive", include_path="file")))
    assert out.rows == [{"id": 1, "k": 1, "file": str(tmp_path / "k=1/a.jsonl")}]
    assert read(source(tmp_path, added=Added(partitioning="hive"))).column("k")[1] == "own"


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), st.text(max_size=8) | st.none()), max_size=200))
def test_cutting_changes_nothing(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = put(tmp_path_factory.mktemp("cut") / "a.jsonl", *rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extents, "SPLIT_BYTES", 200)
        patch.setattr(extents, "CUT_ABOVE_BYTES", 300)
        patch.setattr(pieces.pieces, "__kwdefaults__", {"delimiter": None, "whole_bytes": 0, "piece_bytes": 70})
        out = read(source(path))
    names = list(dict.fromkeys(name for row in rows for name in row))
    assert out.failures == []
    assert [{n: r.get(n) for n in names} for r in out.rows] == [{n: r.get(n) for n in names} for r in rows]


def test_reading_from_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces.pieces, "__kwdefaults__", {"delimiter": None, "whole_bytes": 0, "piece_bytes": 70})
    path = put(tmp_path / "a.jsonl", *({"id": i} for i in range(100)))
    one = source(path)
    whole = read_from(one, one.splits()[0], 0)
    assert [r["id"] for _, r in whole] == list(range(100))
    for start in (1, 57, 99, 100):
        assert read_from(one, one.splits()[0], start) == whole[start:]


def test_half_a_character_fails_its_line_alone(tmp_path: Path) -> None:
    lines = [r'{"t": "\ud800"}', r'{"t": "\ud83d\ude00"}', r'{"\udfff": 1}', r'{"t": "\\ud800"}']
    found = read(source(put(tmp_path / "a.jsonl", *lines)))
    assert found.rows == [{"t": "\U0001f600"}, {"t": "\\ud800"}]
    assert [failure.position for failure in found.failures] == [0, 2]
    assert "half a character" in found.failures[0].message


def test_numbers_with_types_that_keep_every_digit(tmp_path: Path) -> None:
    lines = ['{"d": 12345678901234567890.10, "s": 0.000000001}', '{"d": 1.105, "s": 1}', '{"d": 7, "s": 0.0000000001}']
    asked = {"d": pa.decimal128(38, 2), "s": pa.duration("ns")}
    found = read(source(put(tmp_path / "a.jsonl", *lines), dtypes=asked))
    assert [str(row["d"]) for row in found.rows] == ["12345678901234567890.10"]
    assert [failure.position for failure in found.failures] == [1, 2]
    assert "1.105 is not decimal128(38, 2), asked for by dtypes=" in found.failures[0].message


def test_bytes_and_maps_that_are_none_misfit(tmp_path: Path) -> None:
    lines = [
        '{"b": {"base64": "AP8="}, "m": {"1": true}}',
        '{"b": {"base64": "?"}}',
        '{"m": {"x": true}}',
        '{"b": {"base64": 1}}',
    ]
    found = read(
        source(put(tmp_path / "a.jsonl", *lines), dtypes={"b": "binary", "m": pa.map_(pa.int64(), pa.bool_())})
    )
    assert found.rows == [{"b": b"\x00\xff", "m": [(1, True)]}]
    assert [failure.position for failure in found.failures] == [1, 2, 3]


@pytest.mark.parametrize("number", ["70000", "1e400"])
def test_a_number_too_large_for_its_type_fails_its_row(tmp_path: Path, number: str) -> None:
    path = put(tmp_path / "a.jsonl", '{"x": 1.5, "v": [1.0]}', f'{{"x": {number}}}', f'{{"v": [2.5, {number}]}}')
    out = read(source(path, dtypes={"x": "float16", "v": pa.list_(pa.float16())}))
    assert out.rows == [{"x": 1.5, "v": [1.0]}]
    assert [f.ordinal for f in out.failures] == [1, 2]
