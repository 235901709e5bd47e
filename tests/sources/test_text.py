from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sources import extents, pieces
from headrace.sources.assembly import Added
from headrace.sources.listing import FileSet
from headrace.sources.text import TextSource, split_lines
from tests.sources.reading import read


@given(st.lists(st.text(alphabet="aé \t", max_size=5)), st.sampled_from(["\n", "\r\n"]))
def test_lines(lines: list[str], ending: str) -> None:
    data = "".join(line + ending for line in lines).encode()
    if data:
        assert split_lines(data)[0].to_pylist() == lines


def test_the_last_line_may_lack_its_end() -> None:
    assert split_lines(b"a\n\nb")[0].to_pylist() == ["a", "", "b"]


def test_a_line_that_is_not_utf8_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nk\xe4se\nb\n")
    out = read(TextSource(fileset=FileSet.of(path)))
    assert out.column("text") == ["a", "b"]
    assert (out.failures[0].position, out.failures[0].file) == (1, str(path))


@settings(max_examples=40, deadline=None)
@given(lines=st.lists(st.text(alphabet="abé", max_size=30), min_size=1))
def test_cutting_changes_nothing(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extents, "SPLIT_BYTES", 60)
        patch.setattr(extents, "CUT_ABOVE_BYTES", 90)
        patch.setattr(pieces.pieces, "__kwdefaults__", {"delimiter": None, "whole_bytes": 0, "piece_bytes": 20})
        assert read(TextSource(fileset=FileSet.of(path))).column("text") == lines


def test_paths_and_projection(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n")
    source = TextSource(fileset=FileSet.of(tmp_path), added=Added(include_path="file"))
    assert read(source).rows[1] == {"text": "b", "file": str(tmp_path / "b")}
    assert read(source, columns=["file"]).rows[0] == {"file": str(tmp_path / "a")}
    assert read(source, columns=[]).rows == [{}, {}]


def test_empty(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert read(TextSource(fileset=FileSet.of(tmp_path))).rows == []
