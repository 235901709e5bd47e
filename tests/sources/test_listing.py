from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from headrace.errors import MissingDependencyError, NoInputError, PlanError, SourceError
from headrace.sources.listing import FileSet


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names(fileset: FileSet, root: Path) -> list[str]:
    return [os.path.relpath(f.path, root) for f in fileset.files()]


def test_folders_are_searched_to_the_bottom_in_order(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a/z.csv", "a/b/c.CSV", ".hidden.csv", "_SUCCESS", ".git/x.csv", "notes.txt")
    fileset = FileSet.of(tmp_path, patterns=["*.csv"])
    assert names(fileset, tmp_path) == ["a/b/c.CSV", "a/z.csv", "b.csv"]
    assert fileset.passed_over == 1


def test_named_files_are_taken_whatever_they_are_called_in_the_order_given(tmp_path: Path) -> None:
    touch(tmp_path, "b.txt", "a[1].csv", "_c.csv")
    paths = [tmp_path / "b.txt", str(tmp_path / "a[1].csv"), tmp_path / "_c.csv"]
    assert names(FileSet.of(paths, patterns=["*.csv"]), tmp_path) == ["b.txt", "a[1].csv", "_c.csv"]


def test_globs(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.csv", "x/c.csv", "x/y/d.csv", "e.txt")
    assert names(FileSet.of(f"{tmp_path}/*.csv"), tmp_path) == ["a.csv", "b.csv"]
    assert names(FileSet.of(f"{tmp_path}/**/*.csv"), tmp_path) == ["a.csv", "b.csv", "x/c.csv", "x/y/d.csv"]
    assert names(FileSet.of(f"{tmp_path}/*.txt", patterns=["*.csv"]), tmp_path) == ["e.txt"]
    anything = FileSet.of(f"{tmp_path}/*", patterns=["*.csv"])
    assert names(anything, tmp_path) == ["a.csv", "b.csv", "x/c.csv", "x/y/d.csv"]
    assert anything.passed_over == 1
    assert len(FileSet.of(f"{tmp_path}/**").files()) == 5


def test_missing_paths_say_what_to_do(tmp_path: Path) -> None:
    touch(tmp_path, "reviews.csv", "only/notes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoInputError, match=r"review\.csv does not exist; did you mean 'reviews\.csv'\?"):
        FileSet.of(tmp_path / "review.csv").files()
    with pytest.raises(NoInputError, match="matches no file; check the pattern"):
        FileSet.of(f"{tmp_path}/*.json").files()
    with pytest.raises(NoInputError, match="holds no files"):
        FileSet.of(tmp_path / "empty").files()
    with pytest.raises(NoInputError, match=r"holds no file that fits \*\.csv \(1 others were passed over\)"):
        FileSet.of(tmp_path / "only", patterns=["*.csv"]).files()
    with pytest.raises(NoInputError, match="the list is empty"):
        FileSet.of([])
    with pytest.raises(PlanError, match="not int"):
        FileSet.of([1])  # type: ignore[list-item]


def test_a_link_that_leads_back_up_ends(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.csv")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert names(FileSet.of(tmp_path), tmp_path) == ["a/x.csv"]


def test_the_listing_stays_at_home(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{i}.csv" for i in range(100)))
    fileset = FileSet.of(tmp_path)
    fileset.files()
    assert len(pickle.dumps(fileset)) < 1000


def test_urls_without_their_package_or_protocol() -> None:
    with pytest.raises(SourceError, match="nosuch"):
        FileSet.of("nosuch://bucket/x").files()
    with pytest.raises(MissingDependencyError, match=r"pip install 'headrace\[azure\]'"):
        FileSet.of("az://bucket/x").files()


def test_file_urls_are_local(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv")
    assert names(FileSet.of(f"file://{tmp_path}/a.csv"), tmp_path) == ["a.csv"]
