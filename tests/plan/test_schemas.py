"""What is known of the columns before anything runs."""

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError, UnknownColumnError
from headrace.plan.graph import Plan
from headrace.plan.nodes import Collect
from headrace.plan.schemas import columns_after


class Echo(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [0] * len(batch)


SOURCE = hr.from_arrow(pa.table({"a": [1], "b": ["x"]}))


def known(ds):
    return columns_after(Plan([Collect(name="c", upstream=ds.node)]))[id(ds.node)]


def test_columns_follow_the_steps() -> None:
    assert known(SOURCE) == {"a": pa.int64(), "b": pa.string()}
    assert known(SOURCE.select("b")) == {"b": pa.string()}
    assert known(SOURCE.drop("b").rename({"a": "z"})) == {"z": pa.int64()}
    assert known(SOURCE.filter(lambda r: True).limit(3)) == known(SOURCE)
    assert list(known(SOURCE.add_column("n", len))) == ["a", "b", "n"]
    assert known(SOURCE.map(lambda r: r)) is None
    assert known(SOURCE.map(lambda r: r, output_schema=pa.schema({"q": pa.int8()}))) == {"q": pa.int8()}


def test_a_model_adds_its_answer_and_its_id() -> None:
    columns = known(SOURCE.run_inference(Echo(), inputs="a", output="score"))
    assert list(columns) == ["a", "b", "score", "model_id"]
    assert columns["score"] is None


def test_a_select_behind_an_unknown_step_makes_the_names_known() -> None:
    assert known(SOURCE.map(lambda r: r).select("q")) == {"q": None}


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda ds: ds.select("aa"),
        lambda ds: ds.drop("aa"),
        lambda ds: ds.rename({"aa": "z"}),
        lambda ds: ds.run_inference(Echo(), inputs=["a", "aa"]),
        lambda ds: ds.run_inference(Echo(), inputs={"x": "aa"}),
    ],
)
def test_an_unknown_column_names_step_and_nearest_column(pipeline) -> None:
    with pytest.raises(UnknownColumnError, match="column 'aa'.*did you mean 'a'.*Existing columns: a, b"):
        known(pipeline(SOURCE))


def test_an_answer_does_not_overwrite_a_column_in_silence() -> None:
    with pytest.raises(PlanError, match="would overwrite column 'b'"):
        known(SOURCE.run_inference(Echo(), output="b"))


def test_two_columns_cannot_get_one_name() -> None:
    with pytest.raises(PlanError, match="two columns the name 'b'"):
        known(SOURCE.rename({"a": "b"}))
