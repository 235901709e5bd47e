import datetime
import json
import traceback

import numpy as np
import pytest

from headrace.records.failure import MAX_TRACEBACK_CHARS, RowFailure, row_as_json


def raised(error):
    try:
        raise error
    except Exception as caught:
        return caught


def test_an_exception_becomes_a_failure():
    failure = RowFailure.of(raised(KeyError("age")), stage="map_1", ordinal=3, row={"id": 7}, file="a.csv", position=2)
    assert (failure.error_type, failure.message) == ("KeyError", "'age'")
    assert "in raised" in failure.traceback
    assert json.loads(failure.row) == {"id": 7}


def test_an_exception_that_was_never_raised_has_no_traceback():
    assert RowFailure.of(ValueError("no"), stage="map_1", ordinal=3, row={}).traceback == ""


def test_the_end_of_a_long_traceback_is_kept():
    failure = RowFailure.of(raised(ValueError("x" * 20_000 + "end")), stage="map_1", ordinal=0, row={})
    assert len(failure.traceback) == MAX_TRACEBACK_CHARS
    assert failure.traceback.rstrip().endswith("end")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00", {"base64": "AA=="}),
        (memoryview(b"\x00"), {"base64": "AA=="}),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.float32(0.5), 0.5),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ("ä\n", "ä\n"),
        (None, None),
        (float("-inf"), {"float": "-inf"}),
        (np.array([1.0, np.nan]), [1.0, {"float": "nan"}]),
        ("\ud800", "\ud800"),
        ({"a": [1]}, {"a": [1]}),
    ],
)
def test_rows_of_any_values_become_json(value, expected):
    assert json.loads(row_as_json({"x": value})) == {"x": expected}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), np.float64("nan"), [1.0, float("nan")]])
def test_json_stays_json_where_numbers_are_none(value):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    json.loads(row_as_json({"x": value}), parse_constant=refuse)


def test_keys_that_are_not_text_become_text():
    assert json.loads(row_as_json({("a", 1): 2, 3: 4})) == {"('a', 1)": 2, "3": 4}


def test_a_value_that_cannot_be_shown_does_not_hide_the_failure():
    class Sulky:
        def __repr__(self):
            raise RuntimeError("no")

    assert "Sulky" in row_as_json({"x": Sulky()})


def test_a_row_that_contains_itself_does_not_hide_the_failure():
    row = {"id": 3}
    row["self"] = row
    assert json.loads(row_as_json(row))["self"]["self"]["id"] == 3


def test_an_exception_without_a_text_does_not_hide_the_failure():
    class SulkyError(Exception):
        def __str__(self):
            raise RuntimeError("no")

    failure = RowFailure.of(SulkyError(), stage="map_1", ordinal=0, row={})
    assert failure.error_type == "SulkyError"
    assert "RuntimeError" in failure.message


def test_the_traceback_is_pythons_own_but_for_the_carets() -> None:
    def fail() -> None:
        try:
            {}["a"]["b"]  # type: ignore[index]
        except KeyError:
            raise ExceptionGroup("two", [ValueError("one"), TypeError("two")]) from OSError("cause")

    try:
        fail()
    except ExceptionGroup as error:
        shown = RowFailure.of(error, stage="map_1", ordinal=0, row={}).traceback
        pythons = "".join(traceback.format_exception(error))
    assert "^" not in shown
    assert shown.splitlines() == [line for line in pythons.splitlines() if "^" not in line]
    assert "fail()" in shown
    assert "OSError: cause" in shown
