from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.versions import Found, VersionChooser, is_unfinished, name_of


def found(name: str, modified: float, state: str = "whole") -> Found:
    return Found(name, modified=modified, state=state)


def test_of_what_is_old_enough_the_newest_is_taken_at_the_first_look() -> None:
    a, b = found("a", 10), found("b", 20)
    chooser = VersionChooser(settle_secs=60)
    assert chooser.look([b, a], now=100) == (b, a)
    chooser.take(b)
    assert chooser.look([b, a], now=101) == ()


def test_what_changes_from_look_to_look_is_never_taken() -> None:
    chooser = VersionChooser(settle_secs=60)
    for number in range(20):
        assert chooser.look([found("a", 100 + number, f"{number} bytes")], now=101 + number) == ()
    last = found("a", 119, "19 bytes")
    assert chooser.look([last], now=121) == (last,)


def test_versions_of_one_moment_go_by_name() -> None:
    chooser = VersionChooser(settle_secs=0)
    assert [one.path for one in chooser.look([found("v1", 5), found("v3", 5), found("v2", 5)], now=9)] == [
        "v3",
        "v2",
        "v1",
    ]


def test_a_store_without_times_is_looked_at_twice() -> None:
    chooser = VersionChooser(settle_secs=0)
    assert chooser.look([found("v1", 0)], now=9) == ()
    assert chooser.look([found("v1", 0)], now=10) == (found("v1", 0),)


def test_what_was_refused_is_tried_again_when_its_content_changes() -> None:
    chooser = VersionChooser(settle_secs=0)
    old, bad, mended = found("v1", 1), found("v2", 2, "bad"), found("v2", 3, "mended")
    chooser.take(old)
    assert chooser.look([old, bad], now=9) == (bad,)
    chooser.refuse(bad)
    assert chooser.look([old, bad], now=10) == ()
    assert chooser.look([old, mended], now=11) == (mended,)


def test_beside_a_bad_one_the_next_newest_has_its_turn() -> None:
    chooser = VersionChooser(settle_secs=0)
    chooser.take(found("v1", 1))
    chooser.refuse(found("v3", 3))
    assert [one.path for one in chooser.look([found("v1", 1), found("v2", 2), found("v3", 3)], now=9)] == ["v2"]


def test_it_never_goes_back_but_to_other_content_of_the_same_name() -> None:
    chooser = VersionChooser(settle_secs=0)
    chooser.take(found("v2", 2))
    assert chooser.look([found("v1", 1)], now=9) == ()  # v2 was removed
    restored = found("v2", 1.5, "of old")
    assert chooser.look([found("v1", 1), restored], now=9) == (restored,)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from(["x", "y"])), max_size=30))
def test_whatever_comes_only_what_was_seen_as_it_is_or_is_old_is_taken(looks) -> None:
    chooser, before = VersionChooser(settle_secs=100), {}
    for now, (name, modified, state) in enumerate(looks):
        one = found(name, modified, state)
        for best in chooser.look([one], now=now):
            assert before.get(best.path) == best.state
            chooser.take(best)
        before = {name: state}


@pytest.mark.parametrize(
    "path", ["m/.v2.pkl", "m/_v2.pkl", "m/v2.pkl.tmp", "m/v2.pkl.PART", "m/v2.pkl~", "m/v2.pkl.swp"]
)
def test_names_of_what_is_not_whole(path: str) -> None:
    assert is_unfinished(path, "m/*")


def test_a_pattern_may_ask_for_such_names() -> None:
    assert not is_unfinished("m/_v2.pkl", "m/_v*.pkl")
    assert not is_unfinished("m/v2.part", "m/*.part")
    assert is_unfinished("m/_new/model.onnx", "m/*/model.onnx")
    assert not is_unfinished(".models/v1/model.onnx", ".models/*/model.onnx")


def test_names_tell_versions_apart() -> None:
    assert name_of("memory:///m/v7/model.onnx", "memory://m/*/model.onnx") == "v7/model.onnx"
    assert name_of("m/7/", "m/*") == "7"
    assert name_of("a/b/c.pkl", "a/**/*.pkl") == "c.pkl"
    assert name_of("a/b.pkl", "a/b.pkl") == "b.pkl"
