from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import PlanError
from headrace.spec.reference import load_function, load_reference


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


def test_a_module_of_the_current_folder() -> None:
    write("own_steps.py", "class Clean:\n    @staticmethod\n    def row(r): return r\n")
    assert load_reference("own_steps:Clean.row")({"a": 1}) == {"a": 1}


@pytest.mark.parametrize("reference", ["steps", "steps:", ":clean", "a b:c", "steps:clean()", "__import__('os'):x", ""])
def test_what_is_no_reference(reference: str) -> None:
    with pytest.raises(PlanError, match="write it as module:function"):
        load_reference(reference)


def test_a_misspelt_function_gives_the_near_name() -> None:
    write("own_near.py", "def clean(row): return row\n")
    with pytest.raises(PlanError, match="module 'own_near' has no 'claen'; did you mean 'clean'?"):
        load_reference("own_near:claen")


def test_what_a_module_has_is_told_where_nothing_is_near() -> None:
    write("own_names.py", "import os\ndef clean(row): return row\ndef score(row): return row\n")
    with pytest.raises(PlanError, match="it has clean, score$"):
        load_reference("own_names:zzzz")


def test_a_misspelt_attribute_of_a_class() -> None:
    write("own_class.py", "class Text:\n    def upper(self): ...\n")
    with pytest.raises(PlanError, match="'own_class' 'Text' has no 'uper'; did you mean 'upper'?"):
        load_reference("own_class:Text.uper")


def test_a_misspelt_module_gives_the_near_file() -> None:
    write("own_stepping.py", "")
    with pytest.raises(PlanError, match="there is no module 'own_steping'; did you mean 'own_stepping'?"):
        load_reference("own_steping:clean")


def test_a_module_that_is_nowhere() -> None:
    with pytest.raises(PlanError, match="current folder and among the installed packages"):
        load_reference("zzqqxx:clean")


def test_a_module_that_needs_a_missing_package() -> None:
    write("own_needs.py", "import package_that_is_not_there\n")
    with pytest.raises(PlanError, match="importing 'own_needs' failed: .*package_that_is_not_there.*install"):
        load_reference("own_needs:f")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1/0\n", r"ZeroDivisionError.*own_broken\.py, line 1"),
        ("def f(:\n", "SyntaxError"),
        ("import sys; sys.exit(3)\n", "SystemExit"),
    ],
)
def test_a_module_that_breaks(text: str, told: str) -> None:
    write("own_broken.py", text)
    with pytest.raises(PlanError, match=f"importing 'own_broken' failed: {told}"):
        load_reference("own_broken:f")


def test_what_cannot_be_called_is_no_function() -> None:
    with pytest.raises(PlanError, match="'math:pi' is no function but a float"):
        load_function("math:pi")
