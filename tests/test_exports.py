"""What `import headrace` offers, and what it must not pull in."""

import json
import os
import subprocess
import sys

import pytest

import headrace as hr

FRAMEWORKS = {
    "PIL",
    "apache_beam",
    "duckdb",
    "onnxruntime",
    "pandas",
    "pydantic",
    "ray",
    "rich",
    "sklearn",
    "tensorflow",
    "torch",
}
ALSO_LAZY = {"click", "fsspec", "multiprocessing", "psutil", "pyarrow.compute", "sqlite3", "yaml", "zipfile"}


def modules_after(statement):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    script = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_public_names_are_sorted_and_there():
    assert hr.__all__ == sorted(hr.__all__)
    assert [name for name in hr.__all__ if not hasattr(hr, name)] == []


def test_public_names_have_docstrings():
    assert [name for name in hr.__all__ if not getattr(hr, name).__doc__] == []


@pytest.mark.parametrize("module", ["headrace", "headrace.testing"])
def test_an_import_pulls_in_no_framework(module):
    assert modules_after(f"import {module}") & FRAMEWORKS == set()


def test_an_import_pulls_in_nothing_that_only_some_pipelines_need():
    # pyarrow itself may bring some of them.
    assert (modules_after("import headrace") - modules_after("import pyarrow, numpy")) & ALSO_LAZY == set()


def test_the_testing_names_are_sorted_and_there():
    import headrace.testing

    assert headrace.testing.__all__ == sorted(headrace.testing.__all__)
    assert [name for name in headrace.testing.__all__ if not hasattr(headrace.testing, name)] == []
