from __future__ import annotations

import pytest

from headrace.spec.document import Document, parse
from headrace.spec.overrides import override


def after(text: str, *settings: str) -> Document:
    document = parse(text)
    override(document, settings)
    return document


def test_values_are_yaml() -> None:
    document = after("a: 1", "a=[x, no]", "b=true", "c=", "d=a=b")
    assert document.data == {"a": ["x", "no"], "b": True, "c": None, "d": "a=b"}


def test_into_lists_by_both_ways_of_writing() -> None:
    text = "steps: [{limit: 1}, {limit: 2}]"
    assert after(text, "steps[1].limit=9").data == after(text, "steps.1.limit=9").data
    assert after(text, "steps[1].limit=9").data == {"steps": [{"limit": 1}, {"limit": 9}]}


def test_a_fault_in_a_setting_is_placed_at_the_setting() -> None:
    document = after("run: {on_error: fail}", "run.on_error=maybe")
    assert document.place(("run", "on_error")) == "--set run.on_error=maybe"


def test_an_empty_file_may_be_filled() -> None:
    assert after("", "sink.path=out").data == {"sink": {"path": "out"}}


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("limit", "write it as KEY.KEY=VALUE"),
        ("=3", "write it as KEY.KEY=VALUE"),
        ("a..b=3", "write it as KEY.KEY=VALUE"),
        ("steps[7].limit=3", "steps has 1 items, the first of which is [0]"),
        ("steps.first.limit=3", "steps holds no keys"),
        ("source[0]=3", "source is no list"),
        ("source.type.x=3", "source.type holds no keys"),
        ("source.path=[a", "the value is no YAML"),
    ],
)
def test_what_cannot_be_set(setting: str, told: str) -> None:
    document = after("source: {type: csv}\nsteps: [{limit: 1}]", setting)
    (problem,) = document.problems
    assert problem.startswith(f"--set {setting}: ")
    assert told in problem
