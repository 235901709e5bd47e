from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spec.document import parse, show_path


@pytest.mark.parametrize("word", ["no", "on", "yes", "off", "y", "n", "NO", "On", "2026-11-29", "12:30", "1_000", "id"])
def test_words_are_texts(word: str) -> None:
    assert parse(f"[{word}]").data == [word]


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("False", False), ("null", None), ("~", None), ("12", 12), ("-3", -3), ("0x1F", 31), ("0o17", 15),
     ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("-.inf", float("-inf")), ('"12"', "12"), ("'true'", "true")],
)  # fmt: skip
def test_scalars_of_yaml_1_2(text: str, value: object) -> None:
    data = parse(f"[{text}]").data
    assert data == [value]
    assert type(data[0]) is type(value)


def test_empty_values_and_texts() -> None:
    assert parse("a:\nb: ''").data == {"a": None, "b": ""}
    assert parse("").data is None
    assert parse("# only a comment\n").data is None


def test_a_key_given_twice_is_told_with_both_places() -> None:
    document = parse("sink: {type: csv}\nsteps: []\nsink: {type: json}\n")
    assert document.problems == [
        "line 3, column 1: key 'sink' is given twice (first at line 1, column 1); keep one of them"
    ]
    assert parse("a: {b: 1, b: 2}").problems[0].startswith("line 1, column 11: key 'a.b' is given twice")


def test_all_doubles_are_told() -> None:
    assert len(parse("a: 1\na: 2\nb: 1\nb: 2").problems) == 2


def test_tabs_are_named() -> None:
    document = parse("steps:\n \t- infer: {}\n")
    assert document.problems == ["line 2, column 2: a tab indents this line; YAML allows spaces only"]


@pytest.mark.parametrize(
    "text", ["steps:\n  - a\n - b\n", "a: [1, 2\nb: 3", "a: 'open", "a: b: c", "{", "a: 1\n---\nb: 2"]
)
def test_broken_yaml_gives_line_and_column(text: str) -> None:
    (problem,) = parse(text).problems
    assert problem.startswith("line ")
    assert "this is no YAML" in problem


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!env", "!!binary", "!!set"])
def test_tags_are_refused(tag: str) -> None:
    (problem,) = parse(f"a: {tag} ['x']").problems
    assert "is not allowed; a pipeline is plain data" in problem


def test_a_tag_that_does_not_fit() -> None:
    assert parse("a: !!int word").problems == ["line 1, column 1: 'word' is no int"]


def test_aliases_repeat_values() -> None:
    assert parse("a: &x {b: 1}\nc: *x").data == {"a": {"b": 1}, "c": {"b": 1}}


def test_an_alias_inside_itself() -> None:
    assert "an alias cannot stand inside what it stands for" in parse("a: &x [1, *x]").problems[0]


def test_aliases_that_explode_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert any("too large" in problem for problem in parse("\n".join(lines)).problems)


@pytest.mark.parametrize("key", ["1", "true", "null", "[a]"])
def test_keys_are_texts(key: str) -> None:
    assert "a key must be a text" in parse(f"{{{key}: x}}").problems[0]


def test_places_of_keys_and_items() -> None:
    document = parse("steps:\n  - limit: 3\n  - drop: [a,\n      b]\n")
    assert document.place(("steps", 0, "limit")) == "line 2, column 5"
    assert document.place(("steps", 1, "drop", 1)) == "line 4, column 7"
    assert document.place(("steps", 1, "missing")) == "line 3, column 5"


# A key of YAML in one line is at most 1,024 characters long.
words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"], max_codepoint=0xFFFF), max_size=100)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner) | st.dictionaries(words, inner),
    max_leaves=20,
)


@given(plain)
def test_json_reads_as_itself(value: object) -> None:
    assert parse(json.dumps(value)).data == value


@given(st.text())
def test_any_text_gives_data_or_problems_with_a_place(text: str) -> None:
    document = parse(text)
    assert all(problem.startswith(("line ", "this is no ")) for problem in document.problems)


def test_depth_is_bounded() -> None:
    (problem,) = parse("[" * 5000 + "]" * 5000).problems
    assert "hundreds deep" in problem


def test_show_path() -> None:
    assert show_path(()) == ""
    assert show_path(("sinks", 1, "path")) == "sinks[1].path"
