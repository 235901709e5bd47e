from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from headrace.engine.looking import look_at, matches
from tests.s3 import serving


def test_files_with_their_times(tmp_path: Path) -> None:
    for number, name in enumerate(["v1.pkl", "v2.pkl", ".v3.pkl", "v4.pkl.tmp", "notes.txt"]):
        (tmp_path / name).write_bytes(b"x" * number)
        os.utime(tmp_path / name, (1000 + number, 1000 + number))
    found = {Path(one.path).name: one for one in matches(f"{tmp_path}/v*.pkl*")}
    assert {name: (one.modified, one.nbytes) for name, one in found.items()} == {
        "v1.pkl": (1000, 0),
        "v2.pkl": (1001, 1),
    }


def test_a_folder_is_one_version_and_changes_with_any_file_in_it(tmp_path: Path) -> None:
    model = tmp_path / "v1"
    (model / "deep").mkdir(parents=True)
    assert look_at(str(model)) is None  # it has only begun to be copied
    (model / "deep" / "weights").write_bytes(b"abc")
    (model / "config.json").write_text("{}")
    (before,) = matches(f"{tmp_path}/*")
    assert before.nbytes == 5
    (model / "deep" / "weights").write_bytes(b"abcd")
    after = look_at(str(model))
    assert after is not None
    assert after.state != before.state
    assert look_at(str(model)) == after


def test_a_file_put_in_the_place_of_another_of_the_same_size_and_time_is_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1000, 1000))
    before = look_at(str(tmp_path / "a"))
    os.replace(tmp_path / "b", tmp_path / "a")
    after = look_at(str(tmp_path / "a"))
    assert before is not None
    assert after is not None
    assert after.state != before.state


def test_what_is_not_there(tmp_path: Path) -> None:
    assert matches(f"{tmp_path}/*.pkl") == []
    assert look_at(f"{tmp_path}/a.pkl") is None
    assert look_at("memory://nothing/here.pkl") is None


def test_behind_a_url() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/looked/v1/model.bin", b"12")
    fs.pipe("/looked/v2/model.bin", b"123")
    fs.pipe("/looked/_v3/model.bin", b"1")
    found = {one.path: one for one in matches("memory://looked/*")}
    assert sorted(one.nbytes for one in found.values()) == [2, 3]
    assert all(one.modified > 0 for one in found.values())
    for path, one in found.items():
        assert look_at(path) == one
    fs.pipe("/looked/v1/model.bin", b"34")
    (path,) = [path for path in found if "v1" in path]
    again = look_at(path)
    assert again is not None
    assert again.state != found[path].state


@pytest.mark.heavy
def test_in_s3_a_look_at_one_match_is_the_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch) as store:
        store.put("models/v1.pkl", b"12")
        store.put("models/v2.pkl", b"123")
        store.put("models/v3/weights", b"1")
        found = matches("s3://bucket/models/v*")
        assert sorted(one.nbytes for one in found) == [1, 2, 3]
        assert [look_at(one.path) for one in found] == found
        store.put("models/v1.pkl", b"34")
        assert look_at("s3://bucket/models/v1.pkl") not in found
        assert look_at("s3://bucket/models/v4.pkl") is None
