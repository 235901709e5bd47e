"""Plain conversions say what pyarrow's own would say, without importing pandas."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from headrace.records.plain import array_of_numbers, array_of_plain, array_of_text, numbers_of

KINDS = ["int8", "uint16", "int64", "uint64", "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("dtype", KINDS)
def test_numbers_are_as_pyarrow_makes_them(dtype) -> None:
    values = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1], dtype=dtype)
    made = array_of_numbers(values)
    assert made.equals(pa.array(values))
    made.validate(full=True)


@pytest.mark.parametrize("values", [np.arange(6)[::2], np.array([], dtype="int32"), np.arange(3, dtype=">i4")])
def test_strided_empty_and_foreign_numbers_are_right_too(values) -> None:
    assert array_of_numbers(values).to_pylist() == values.tolist()


def test_numbers_share_the_memory_of_their_array() -> None:
    values = np.arange(4)
    made = array_of_numbers(values)
    values[0] = 9
    assert made[0].as_py() == 9


def test_text_may_be_null_or_beyond_ascii() -> None:
    assert array_of_text(["a", None, "日本", ""]).to_pylist() == ["a", None, "日本", ""]


@pytest.mark.parametrize("type_", [pa.int8(), pa.uint32(), pa.float64()])
def test_a_view_of_numbers_begins_where_the_slice_does_and_cannot_be_written(type_) -> None:
    view = numbers_of(pa.array([1, 2, 3], type_).slice(1))
    assert view.tolist() == [2, 3]
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5


@pytest.mark.parametrize("array", [pa.array([1, None]), pa.array(["a"]), pa.array([True]), pa.nulls(2)])
def test_what_is_no_plain_number_has_no_view(array) -> None:
    assert numbers_of(array) is None


def test_no_rows_have_an_empty_view() -> None:
    assert numbers_of(pa.array([], pa.int64())).tolist() == []


def test_pandas_is_not_imported() -> None:
    code = (
        "import sys, numpy as np; from headrace.records.plain import array_of_numbers as a, array_of_text as t\n"
        "a(np.arange(3)), a(np.array([True])), t(['x']); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def in_fresh_python(code: str) -> str:
    """Run code where pandas has not been imported, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize(
    "values",
    [
        [1, -2, None, 2**63 - 1],
        [1.5, None, float("inf"), -0.0],
        [True, False, None, True, True, True, True, True, None],
        ["a", "", None, "日本", "x\0y"],
        ["plain", "ascii"],
        [None, None],
        [],
    ],
)
def test_plain_values_are_as_pyarrow_makes_them(values) -> None:
    expected = pa.array(values)
    made = array_of_plain(values)
    assert made.type == expected.type
    assert made.to_pylist() == values
    assert made.null_count == expected.null_count
    made.validate(full=True)


@pytest.mark.parametrize(
    "values", [[2**64], [1, 2.5], [1, True], ["a", b"a"], [b"a"], [[1]], ["\ud800"], [-(2**63) - 1]]
)
def test_what_is_not_plain_is_left_to_pyarrow(values) -> None:
    assert array_of_plain(values) is None


def test_row_functions_do_not_import_pandas(tmp_path) -> None:
    code = (
        "import sys, headrace as hr\n"
        "rows = hr.range(9).filter(lambda r: r['id'] > 2).map(lambda r: r | {'t': str(r['id']), 'n': None, 'f': 0.5})\n"
        "rows.add_column('b', lambda r: r['id'] > 4).flat_map(lambda r: [r, r])"
        f".write_parquet({str(tmp_path / 'out')!r}).run()\n"
        "print('pandas' in sys.modules)"
    )
    assert in_fresh_python(code) == "False\n"
