"""The map of the house in the documentation and the one that is enforced are the same."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
MAP = [
    re.findall(r"`([a-z_]+)(?:/|\.py)`", line.split("|")[1])
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines()
    if re.match(r"\| `[a-z_]+(/|\.py)`", line)
]


def enforced() -> dict[str, int]:
    return {name.strip(" ()"): height for height, layer in enumerate(LAYERS) for name in layer.split("|")}


def test_every_module_has_a_layer() -> None:
    package = ROOT / "src" / "headrace"
    modules = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules - {"__init__", "__main__"} == set(enforced())


def test_the_documentation_draws_the_same_layers() -> None:
    assert {name for row in MAP for name in row} == set(enforced())
    heights = [[enforced()[name] for name in row] for row in MAP]
    for above, below in itertools.pairwise(heights):
        assert max(above) < min(below), (above, below)


@pytest.mark.parametrize("path", sorted((ROOT / "src" / "headrace").rglob("*.py")), ids=lambda path: path.name)
def test_files_fit_in_the_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500
