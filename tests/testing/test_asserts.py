import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.metrics.statistics import RunStatistics, SinkStatistics, SourceStatistics, StageStatistics, StepStatistics
from headrace.testing import CollectingSink, assert_balanced, assert_same_rows

rows = st.lists(st.fixed_dictionaries({"id": st.integers(0, 3), "x": st.none() | st.floats() | st.text(max_size=2)}))


@given(rows, st.randoms())
def test_rows_are_the_same_in_any_order(some, random):
    others = list(some)
    random.shuffle(others)
    assert_same_rows(some, others)


@given(rows, st.data())
def test_a_row_more_or_less_is_noticed(some, data):
    extra = data.draw(st.sampled_from([{"id": 9}, *some]))
    with pytest.raises(AssertionError, match="not expected"):
        assert_same_rows([*some, extra], some)
    with pytest.raises(AssertionError, match="missing"):
        assert_same_rows(some, [*some, extra])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": "1"}),
        ({"a": None}, {"a": math.nan}),
        ({"a": None}, {}),
        ({"a": [1]}, {"a": [1, 1]}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        ({"a": b"x"}, {"a": "x"}),
    ],
)
@pytest.mark.parametrize("options", [{}, {"order": True}, {"key": "k"}])
def test_values_that_differ(left, right, options):
    with pytest.raises(AssertionError):
        assert_same_rows([{"k": 1, **left}], [{"k": 1, **right}], **options)


@pytest.mark.parametrize("options", [{}, {"order": True}, {"key": "k"}])
def test_values_that_are_alike(options):
    row = {"k": 1, "nan": math.nan, "array": np.array([1.0, math.nan]), "struct": {"b": [None]}, "float": 1.0}
    same = {"k": 1, "struct": {"b": [None]}, "float": 1, "array": [1.0, math.nan], "nan": np.float64("nan")}
    assert_same_rows([row], [same], **options)


def test_rows_may_come_in_any_shape():
    expected = [{"id": 1}, {"id": 2}]
    table = pa.Table.from_pylist(expected)
    for data in (table, table.to_batches()[0], hr.from_items(expected), iter(expected)):
        assert_same_rows(data, expected, order=True)


def test_rows_may_come_as_a_data_frame():
    pd = pytest.importorskip("pandas")
    assert_same_rows(pd.DataFrame({"id": [1, 2]}), [{"id": 1}, {"id": 2}], order=True)


def test_order_counts_when_asked_for():
    with pytest.raises(AssertionError, match=r"row 0: column 'id' is 1, expected 2"):
        assert_same_rows([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}], order=True)


def test_by_key_the_columns_that_differ_are_named():
    with pytest.raises(AssertionError) as raised:
        assert_same_rows(
            [{"a": 1, "b": 1, "x": 5}, {"a": 3, "b": 1}], [{"a": 1, "b": 1, "x": 6}, {"a": 2, "b": 1}], key=["a", "b"]
        )
    assert str(raised.value).split("\n") == [
        "3 differences between 2 rows and 2 expected",
        "  row {'a': 3, 'b': 1}: not expected",
        "  row {'a': 1, 'b': 1}: column 'x' is 5, expected 6",
        "  row {'a': 2, 'b': 1}: missing",
    ]


def test_by_key_and_in_order():
    left, right = [{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}]
    assert_same_rows(left, right, key="id")
    with pytest.raises(AssertionError, match="another order"):
        assert_same_rows(left, right, key="id", order=True)


def test_a_key_must_be_there_and_stand_for_one_row():
    with pytest.raises(AssertionError, match="several rows"):
        assert_same_rows([{"id": 1}, {"id": 1}], [{"id": 1}], key="id")
    with pytest.raises(AssertionError, match="key column 'id' is not in row"):
        assert_same_rows([{"x": 1}], [{"x": 1}], key="id")


def test_floats_may_differ_a_little_where_allowed():
    left, right = [{"id": 1, "x": 0.3, "v": [1.0, 2.0]}], [{"id": 1, "x": 0.1 + 0.2, "v": np.array([1.0, 2.0 + 1e-12])}]
    for options in ({"key": "id"}, {"order": True}):
        assert_same_rows(left, right, tolerance=1e-9, **options)
        with pytest.raises(AssertionError):
            assert_same_rows(left, right, **options)
    with pytest.raises(AssertionError):
        assert_same_rows([{"id": 1, "x": 0.3}], [{"id": 1, "x": 0.4}], key="id", tolerance=1e-9)


def test_a_tolerance_without_pairs_of_rows_is_refused():
    with pytest.raises(ValueError, match="key= or order="):
        assert_same_rows([{"x": 0.3}], [{"x": 0.3}], tolerance=1e-9)


def test_a_long_list_of_differences_is_cut():
    with pytest.raises(AssertionError) as raised:
        assert_same_rows([{"id": i} for i in range(20)], [], order=True)
    assert str(raised.value).count("\n") == 6
    assert "… and 15 more" in str(raised.value)


def a_run(*, read=10, written=7, failed=1, filtered=2, **step):
    steps = (
        StepStatistics(
            **{"name": "map_1", "rows_in": 10, "rows_out": 7, "failed": failed, "filtered": filtered, **step}
        ),
    )
    return RunStatistics(
        sources=(SourceStatistics(name="read", rows=read),),
        stages=(StageStatistics(name="map_1", steps=steps),),
        sinks=(SinkStatistics(name="write", rows=written),),
    )


def test_a_run_that_adds_up():
    assert_balanced(a_run())
    assert_balanced(a_run(read=12), left_over=2)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (a_run(rows_out=6), "step 'map_1' took 10 rows and accounts for 9"),
        (a_run(written=8), "does not add up"),
        (a_run(written=6), "1 rows were read but not written"),
    ],
)
def test_a_run_that_does_not(run, words):
    with pytest.raises(AssertionError, match=words):
        assert_balanced(run)


def test_a_real_run_with_failures_filters_and_fan_out(tmp_path):
    def clean(row):
        if row["id"] == 3:
            raise ValueError("no")
        return row

    sink = CollectingSink()
    job = hr.range(10).map(clean).filter(lambda r: r["id"] % 2).flat_map(lambda r: [r, r]).write(sink)
    assert_balanced(job.run(on_error="dead_letter", dead_letters=str(tmp_path / "failed")))
    assert [row["id"] for row in sink.rows()] == [1, 1, 5, 5, 7, 7, 9, 9]
