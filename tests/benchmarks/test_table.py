import json

import pytest

from benchmarks.benchmark import FOLDER
from benchmarks.table import BEGIN, END, render, replace_in, table


def saved(folder, name, *, holds=True, quick=False):
    machine = {"cpu": "abacus", "cores": 2, "memory_gib": 24.0, "os": "Linux 6", "python": "3.11.7"}
    figures = {"slower": {"value": 1.0123456, "unit": "x", "bar": "<= 1.05", "holds": holds}}
    result = {"benchmark": name, "quick": quick, "machine": machine, "figures": figures}
    (folder / f"{name}{'-quick' if quick else ''}.json").write_text(json.dumps(result))


def test_every_saved_figure_is_a_line_and_quick_looks_are_none(tmp_path):
    saved(tmp_path, "b", holds=False)
    saved(tmp_path, "a")
    saved(tmp_path, "a", quick=True)
    lines = table(tmp_path).splitlines()
    assert lines[2:4] == ["| a | slower | 1.012 x | <= 1.05 x | yes |", "| b | slower | 1.012 x | <= 1.05 x | **no** |"]
    assert lines[-1] == "Measured on: abacus, 2 cores, 24.0 GiB, Linux 6, Python 3.11.7."


def test_the_table_goes_between_the_marks_and_nothing_else_changes(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    replace_in(page, render([]))
    assert page.read_text() == f"above\n{BEGIN}\n{render([])}\n{END}\nbelow\n"


def test_the_page_about_performance_has_the_marks():
    text = (FOLDER.parent / "docs" / "performance.md").read_text()
    assert 0 < text.index(BEGIN) < text.index(END)


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text("above")
    with pytest.raises(ValueError, match="has no lines"):
        replace_in(page, "table")
