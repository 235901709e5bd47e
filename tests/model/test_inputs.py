from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import UnknownColumnError
from headrace.model.inputs import columns_of, make_inputs, matrix
from headrace.records.columns import from_columns, to_column

BATCH = pa.record_batch(
    {
        "age": pa.array([31, None, 47]),
        "spend": [2.5, 4.0, 1.0],
        "vip": [True, False, True],
        "text": ["a", None, "c"],
        "tokens": [[1, 2], [3, 4], [5, 6]],
    }
)


def test_no_inputs_gives_rows() -> None:
    rows = make_inputs(BATCH.select(["age", "text"]), None)
    assert rows == [{"age": 31, "text": "a"}, {"age": None, "text": None}, {"age": 47, "text": "c"}]


def test_one_column_of_numbers() -> None:
    array = make_inputs(BATCH, "spend")
    assert array.dtype == np.float64
    assert array.tolist() == [2.5, 4.0, 1.0]


def test_integers_with_nulls_become_nan() -> None:
    np.testing.assert_array_equal(make_inputs(BATCH, "age"), [31.0, np.nan, 47.0])


def test_text_is_an_array_of_str() -> None:
    array = make_inputs(BATCH, "text")
    assert array.dtype == object
    assert array.tolist() == ["a", None, "c"]


def test_dictionary_encoded_text_is_text() -> None:
    batch = pa.record_batch({"country": pa.array(["KR", "US", "KR"]).dictionary_encode()})
    assert make_inputs(batch, "country").tolist() == ["KR", "US", "KR"]


def test_lists_of_equal_length_are_a_matrix_and_tensors_a_stack() -> None:
    assert make_inputs(BATCH, "tokens").tolist() == [[1, 2], [3, 4], [5, 6]]
    batch = pa.RecordBatch.from_arrays([to_column(np.ones((2, 3, 4), "uint8"))], names=["image"])
    assert make_inputs(batch, "image").shape == (2, 3, 4)


def test_several_columns_are_a_matrix_of_their_common_type() -> None:
    array = make_inputs(BATCH, ("age", "spend", "vip"))
    np.testing.assert_array_equal(array, [[31, 2.5, 1], [np.nan, 4.0, 0], [47, 1.0, 1]])
    assert array.flags.c_contiguous
    assert make_inputs(BATCH.slice(2), ("age", "vip")).dtype == np.int64


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([pa.array([1, 2], pa.int8()), pa.array([0.5, 1.5], pa.float32())], np.float32),
        ([pa.array([1, 2], pa.int32()), pa.array([3, 4], pa.int64())], np.int64),
        ([pa.array([True, None]), pa.array([1, 2])], np.float64),
        ([pa.nulls(2), pa.array([1.0, 2.0])], np.float64),
        ([pa.array([1, 2]), pa.array(["a", "b"])], object),
    ],
)
def test_common_type(columns: list[pa.Array], expected: type) -> None:
    assert matrix(columns).dtype == expected


def test_matrix_of_mixed_kinds_keeps_values() -> None:
    columns = [
        pa.array([decimal.Decimal("1.5"), None]),
        pa.array([datetime.date(2020, 1, 1)] * 2),
        pa.array([[1], [2]]),
    ]
    result = matrix(columns)
    assert result.shape == (2, 3)
    assert result[0, 0] == decimal.Decimal("1.5")
    assert list(result[1, 2]) == [2]


def test_mapping_gives_named_arrays() -> None:
    arrays = make_inputs(BATCH, {"x": ("spend", "vip"), "ids": "tokens"})
    assert arrays["x"].shape == (3, 2)
    assert arrays["ids"].shape == (3, 2)


def test_sliced_batches_start_where_they_should() -> None:
    piece = BATCH.slice(1, 2)
    assert make_inputs(piece, "text").tolist() == [None, "c"]
    assert make_inputs(piece, "tokens").tolist() == [[3, 4], [5, 6]]
    assert make_inputs(piece, ("spend", "vip")).tolist() == [[4.0, 0.0], [1.0, 1.0]]


def test_numbers_among_other_things_are_numbers_in_batches_without_these() -> None:
    batch = from_columns({"x": [1, 2.5, None, "old", 7], "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], "old", None]})
    assert make_inputs(batch, "x").tolist() == [1, 2.5, None, "old", 7]
    for part in (make_inputs(batch.slice(0, 3), "x"), make_inputs(batch.slice(0, 3), ("x",))[:, 0]):
        np.testing.assert_array_equal(part, np.array([1, 2.5, np.nan]))
        assert part.dtype == np.float64
    assert make_inputs(batch.slice(4), ("x",)).dtype.kind == "i"
    assert make_inputs(batch, "v").tolist()[3:] == ["old", None]
    np.testing.assert_array_equal(make_inputs(batch.slice(0, 2), "v"), [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("odd", [[{"a": 1}, 2], [["a", "b"], 2], [[[1], [2, 3]], "x"], [{"a": 1}, "x"]])
def test_what_is_no_number_stays_as_it_is(odd: list[object]) -> None:
    batch = from_columns({"x": odd})
    assert [make_inputs(batch.slice(i, 1), "x").tolist() for i in range(2)] == [[odd[0]], [odd[1]]]


def test_pyarrow_format() -> None:
    assert make_inputs(BATCH, None, input_format="pyarrow") is BATCH
    assert make_inputs(BATCH, ("spend", "age"), input_format="pyarrow").schema.names == ["spend", "age"]
    assert make_inputs(BATCH, "age", input_format="pyarrow").type == pa.int64()
    assert make_inputs(BATCH, {"x": "age"}, input_format="pyarrow").schema.names == ["x"]
    assert make_inputs(BATCH, {"x": ["age", "vip"]}, input_format="pyarrow")["x"].num_columns == 2


def test_pandas_format() -> None:
    assert list(make_inputs(BATCH, None, input_format="pandas").columns) == BATCH.schema.names
    assert list(make_inputs(BATCH, ("spend", "age"), input_format="pandas").columns) == ["spend", "age"]
    assert make_inputs(BATCH, "text", input_format="pandas").name == "text"


@pytest.mark.parametrize("inputs", ["txt", ("age", "txt"), {"x": "txt"}])
@pytest.mark.parametrize("input_format", ["auto", "pandas", "pyarrow"])
def test_unknown_column_names_step_and_the_nearest(inputs: object, input_format: str) -> None:
    with pytest.raises(UnknownColumnError, match="'score' needs column 'txt'.*did you mean 'text'"):
        make_inputs(BATCH, inputs, input_format=input_format, step="score")  # type: ignore[arg-type]


def test_columns_of() -> None:
    assert columns_of(None) is None
    assert columns_of("a") == ("a",)
    assert columns_of(("a", "b", "a")) == ("a", "b")
    assert columns_of({"x": "a", "y": ["b", "a"]}) == ("a", "b")
