"""What all tests share: no test leaves the current folder changed or finds another's modules."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("unhurried", deadline=None)  # the machine may be busy
hypothesis.settings.load_profile("unhurried")

if importlib.util.find_spec("torchvision") is not None:
    here = Path(__file__).parent / "torchvision_here"
    runpy.run_path(str(here / "sitecustomize.py"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))


@pytest.fixture(autouse=True)
def _same_place_after() -> Iterator[None]:
    """Put back what pipelines in YAML change by importing the user's modules from the current folder."""
    folder, path, modules = os.getcwd(), list(sys.path), set(sys.modules)
    yield
    os.chdir(folder)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if "pytest-of-" in file:
            del sys.modules[name]
