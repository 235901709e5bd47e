from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import PlanError


def test_paths_become_text() -> None:
    assert hr.WatchFilePattern(Path("models") / "*.pkl").pattern == "models/*.pkl"
    assert hr.ModelMetadata(Path("m.pkl")) == hr.ModelMetadata("m.pkl", None)


@pytest.mark.parametrize("secs", [0, -1, True, "5", float("inf"), float("nan")])
def test_an_interval_is_a_number_of_seconds(secs) -> None:
    with pytest.raises(PlanError, match="more than 0"):
        hr.WatchFilePattern("*.pkl", interval_secs=secs)


@pytest.mark.parametrize(
    "make", [lambda: hr.WatchFilePattern(""), lambda: hr.ModelMetadata(""), lambda: hr.ModelMetadata("a", 7)]
)
def test_what_names_nothing_is_refused(make) -> None:
    with pytest.raises(PlanError):
        make()
