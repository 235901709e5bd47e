from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cells import convert_cells, infer_cells


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-2", ""], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["1e-3", "2"], pa.float64()),
        (["1.5", "nan", "-inf"], pa.float64()),
        (["nan"], pa.string()),
        (["007", "1"], pa.string()),
        (["00.5"], pa.string()),
        (["0", "0.5"], pa.float64()),
        (["12E4"], pa.string()),
        (["9223372036854775807"], pa.int64()),
        (["9223372036854775808"], pa.string()),
        (["12345678901234567890", "1.5"], pa.string()),
        (["NA", "1"], pa.string()),
        (["2024-01-01"], pa.string()),
        (["+4930123"], pa.string()),
        (["0x10"], pa.string()),
        (["true", "False", ""], pa.bool_()),
        (["true", "1"], pa.string()),
        (["", ""], pa.null()),
        ([], pa.null()),
        (["1_000"], pa.string()),
        ([" 1", "2 "], pa.int64()),
    ],
)
def test_inference(cells: list[str], expected: pa.DataType) -> None:
    assert infer_cells(pa.array(cells, pa.string())) == expected


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1))
def test_integers_are_never_rounded(values: list[int]) -> None:
    cells = pa.array([str(v) for v in values])
    type_ = infer_cells(cells)
    assert type_ in (pa.int64(), pa.string())
    assert [int(v) for v in cells.cast(type_).to_pylist()] == values


@given(st.lists(st.one_of(st.integers(-(2**70), 2**70).map(str), st.sampled_from(["", "x", "007", " 5 ", "-0"]))))
def test_converted_integers_are_exact_and_the_rest_misfits(cells: list[str]) -> None:
    done = convert_cells(pa.array([c.encode() for c in cells], pa.binary()), pa.int64())
    misfits = set(done.misfits.tolist())
    for row, (cell, value) in enumerate(zip(cells, done.column.to_pylist(), strict=True)):
        fits = cell not in ("", "x", "007") and -(2**63) <= int(cell) < 2**63
        assert value == (int(cell) if fits else None)
        assert (row in misfits) == (not fits and cell != "")


def test_integers_widen_where_a_cell_needs_it() -> None:
    done = convert_cells(pa.array([b"1", b"2.5", b"x"]), pa.int64())
    assert done.column.to_pylist() == [1.0, 2.5, None]
    assert done.misfits.tolist() == [2]


def test_null_becomes_what_the_cells_are() -> None:
    assert convert_cells(pa.array([b"", b"5"]), pa.null()).column.type == pa.int64()


def test_broken_utf8_misfits_its_row_alone() -> None:
    done = convert_cells(pa.array([b"a", b"\xff"]), pa.string())
    assert done.column.to_pylist()[0] == "a"
    assert done.misfits.tolist() == [1]


def test_null_values_are_nulls_but_not_in_text() -> None:
    cells = pa.array([b"NULL", b"1", b""])
    assert convert_cells(cells, pa.int64(), ["NULL", ""]).column.to_pylist() == [None, 1, None]
    assert convert_cells(cells, pa.string(), ["NULL", ""]).column.to_pylist() == ["NULL", "1", ""]


def test_types_asked_for_take_codes() -> None:
    cells = pa.array([b"007", b"1", b"x"])
    done = convert_cells(cells, pa.int16(), lenient=True)
    assert (done.column.to_pylist(), done.misfits.tolist()) == ([7, 1, None], [2])
    assert convert_cells(pa.array([b"1", b"0"]), pa.bool_(), lenient=True).column.to_pylist() == [True, False]


def test_other_types_are_converted_one_by_one() -> None:
    done = convert_cells(pa.array([b"2024-02-29", b"2023-02-29", b""]), pa.date32())
    assert [str(v) for v in done.column.to_pylist()] == ["2024-02-29", "None", "None"]
    assert done.misfits.tolist() == [1]


def test_integers_too_big_for_the_type_asked_for_misfit() -> None:
    done = convert_cells(pa.array([b"1", b"300"]), pa.int8(), lenient=True)
    assert (done.column.to_pylist(), done.misfits.tolist()) == ([1, None], [1])


@pytest.mark.parametrize(("type_", "beyond"), [(pa.float16(), [2, 3]), (pa.float32(), [3]), (pa.float64(), [])])
def test_numbers_beyond_a_float_misfit_and_infinity_does_not(type_: pa.DataType, beyond: list[int]) -> None:
    done = convert_cells(pa.array([b"1.5", b"-inf", b"70000", b"-1e39", b"", b"nan"]), type_)
    assert done.misfits.tolist() == beyond
    assert done.column[1].as_py() == -math.inf
    assert [row for row in (2, 3) if done.column[row].as_py() is None] == beyond


def test_integers_beyond_64_bits_misfit_also_beside_floats() -> None:
    done = convert_cells(pa.array([b"1.5", b"99999999999999999999", b"2"]), pa.int64())
    assert (done.column.to_pylist(), done.misfits.tolist()) == ([1.5, None, 2.0], [1])


def test_integers_of_64_bits_without_a_sign() -> None:
    done = convert_cells(pa.array([b"18446744073709551615", b"18446744073709551616", b"-1", b""]), pa.uint64())
    assert done.column.to_pylist() == [2**64 - 1, None, None, None]
    assert done.misfits.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("cells", "to", "values", "misfits"),
    [
        ([b"12:00:00", b"25:00:00", b""], pa.time32("s"), ["12:00:00", None, None], [1]),
        ([b"23:59:59.999999999", b"noon"], pa.time64("ns"), ["23:59:59.999999999", None], [1]),
        ([b"1.5", b"0.0000001", b"", b"1e30"], pa.duration("us"), ["1500000", None, None, None], [1, 3]),
        ([b"1.10", b"1.105"], pa.decimal128(9, 2), ["1.10", None], [1]),
        (
            [b"2024-01-01T00:00:00.123456789Z", b"x"],
            pa.timestamp("ns", "UTC"),
            ["2024-01-01 00:00:00.123456789Z", None],
            [1],
        ),
        ([b"[1]"], pa.list_(pa.int8()), [None], [0]),
        ([b"", b""], pa.null(), [None, None], []),
    ],
)
def test_types_that_are_asked_for(
    cells: list[bytes], to: pa.DataType, values: list[str | None], misfits: list[int]
) -> None:
    done = convert_cells(pa.array(cells), to)
    assert done.column.type == to
    shown = done.column if pa.types.is_nested(to) else done.column.cast(pa.string())
    assert shown.to_pylist() == values
    assert done.misfits.tolist() == misfits
