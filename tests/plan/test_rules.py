"""Rules: the same rows with less work."""

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import UnknownColumnError
from headrace.plan.graph import Plan
from headrace.plan.nodes import Collect, Limit, MapBatches, Read, RunInference, Write
from headrace.plan.rules import optimised


class Echo(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [0] * len(batch)


def nodes_of(ds, on_error="fail"):
    plan = optimised(Plan([Collect(name="collect", upstream=ds.node)]), on_error=on_error)
    return plan.nodes


def columns_read(ds):
    return next(n for n in nodes_of(ds) if isinstance(n, Read)).columns


TABLE = hr.from_arrow(pa.table({"a": [1], "b": [2], "c": [3]}))


@pytest.mark.parametrize(
    ("pipeline", "columns"),
    [
        (lambda ds: ds, None),
        (lambda ds: ds.select("c", "a"), ("a", "c")),
        (lambda ds: ds.limit(1).select("b"), ("b",)),
        (lambda ds: ds.rename({"a": "z"}).select("z"), ("a",)),
        (lambda ds: ds.drop("b"), None),
        (lambda ds: ds.map(lambda r: r).select("a"), None),
        (lambda ds: ds.run_inference(Echo(), inputs="a").select("prediction", "b"), ("a", "b")),
        (lambda ds: ds.run_inference(Echo(), inputs=["a", "c"], model_id_column=None).select("prediction"), ("a", "c")),
        (lambda ds: ds.run_inference(Echo()).select("prediction"), None),
        (lambda ds: ds.select("a").union(ds.select("b")), ("a", "b")),
        (lambda ds: ds.select("a").union(ds), None),
    ],
)
def test_only_the_columns_that_something_uses_are_read(pipeline, columns) -> None:
    assert columns_read(pipeline(TABLE)) == columns


def test_projection_changes_no_row() -> None:
    ds = TABLE.run_inference(Echo(), inputs="a").select("prediction", "b")
    assert ds.take() == [{"prediction": 0, "b": 2}]


def test_a_limit_moves_in_front_of_steps_that_keep_every_row() -> None:
    ds = TABLE.map(lambda r: r).run_inference(Echo()).limit(1)
    kinds = [type(n) for n in nodes_of(ds)]
    assert kinds == [Read, Limit, MapBatches, RunInference, Collect]


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda ds: ds.filter(lambda r: True).limit(1),
        lambda ds: ds.flat_map(lambda r: [r]).limit(1),
        lambda ds: ds.map_batches(lambda b: b).limit(1),
        lambda ds: ds.map(lambda r: r, on_error="dead_letter").limit(1),
    ],
)
def test_a_limit_stays_behind_steps_that_may_drop_rows(pipeline) -> None:
    kinds = [type(n) for n in nodes_of(pipeline(TABLE))]
    assert kinds.index(Limit) > kinds.index(MapBatches)


def test_a_limit_stays_where_another_branch_needs_the_rows() -> None:
    mapped = TABLE.map(lambda r: r, name="shared")
    first = Collect(name="one", upstream=mapped.limit(1).node)
    second = Collect(name="two", upstream=mapped.node)
    plan = optimised(Plan([first, second]), on_error="fail")
    limit = next(n for n in plan.nodes if isinstance(n, Limit))
    assert isinstance(limit.upstream, MapBatches)


def test_shared_nodes_stay_shared_and_names_stay() -> None:
    mapped = TABLE.map(lambda r: r)
    plan = Plan([Collect(name="one", upstream=mapped.node), Collect(name="two", upstream=mapped.node)])
    after = optimised(plan, on_error="fail")
    assert len(after.nodes) == len(plan.nodes)
    assert [after.name_of(n) for n in after.nodes] == [plan.name_of(n) for n in plan.nodes]


def test_a_column_that_is_not_read_cannot_be_used() -> None:
    with pytest.raises(UnknownColumnError, match="'zz'"):
        TABLE.rename({"zz": "y"}).take()


def test_a_limit_stays_in_front_of_an_output() -> None:
    job = TABLE.run_inference(Echo()).limit(1).write_json("out")
    kinds = [type(n) for n in optimised(Plan([job.node]), on_error="fail").nodes]
    assert kinds == [Read, RunInference, Limit, Write]
