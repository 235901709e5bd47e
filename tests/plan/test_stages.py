"""Fusion: what runs together, how many replicas, and of what kind."""

import pyarrow as pa
import pytest

import headrace as hr
from headrace.plan.graph import Plan
from headrace.plan.nodes import Collect
from headrace.plan.stages import fuse


class Echo(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [0] * len(batch)


def stages_of(ds, cores=4):
    return [s for s in fuse(Plan([Collect(name="collect", upstream=ds.node)]), cores=cores) if s.kind != "output"]


def names(ds):
    return [s.name for s in stages_of(ds)]


SOURCE = hr.from_arrow(pa.table({"a": [1]}))


def test_columns_and_array_functions_run_with_the_source() -> None:
    ds = SOURCE.select("a").map_batches(lambda b: b, batch_format="numpy", name="double")
    (stage,) = stages_of(ds)
    assert stage.kind == "read"
    assert stage.replicas == 4


def test_row_functions_get_a_stage_of_their_own_and_fuse_with_each_other() -> None:
    ds = SOURCE.map(lambda r: r, name="one").filter(lambda r: True, name="two").select("a")
    read, steps = stages_of(ds)
    assert read.kind == "read"
    assert [s.name for s in steps.steps] == ["one", "two", "select"]
    assert steps.replicas == 1
    assert steps.max_process_replicas == 4


def test_native_steps_get_a_thread_a_core_as_long_as_no_other_is_fused_with_them(tmp_path) -> None:
    pytest.importorskip("PIL")
    pictures = hr.read_images(str(tmp_path))
    _, decode = stages_of(pictures.select("image"))
    assert (decode.native, decode.replicas, decode.max_process_replicas) == (True, 4, 4)
    _, mixed = stages_of(pictures.map(lambda row: row))
    assert (mixed.native, mixed.replicas) == (False, 1)


def test_different_concurrency_or_isolation_breaks_fusion() -> None:
    ds = SOURCE.map(lambda r: r, name="a1", concurrency=2).map(lambda r: r, name="a2")
    ds = ds.map(lambda r: r, name="a3", isolation="process")
    assert names(ds)[1:] == ["a1", "a2", "a3"]


def test_reshuffle_breaks_fusion() -> None:
    ds = SOURCE.map(lambda r: r, name="one").reshuffle().map(lambda r: r, name="two")
    assert [n for n in names(ds) if n in ("one", "two")] == ["one", "two"]


def test_a_branch_breaks_fusion() -> None:
    mapped = SOURCE.map(lambda r: r, name="shared")
    plan = Plan(
        [
            Collect(name="x", upstream=mapped.map(lambda r: r, name="left").node),
            Collect(name="y", upstream=mapped.map(lambda r: r, name="right").node),
        ]
    )
    found = [s.name for s in fuse(plan, cores=2)]
    assert {"shared", "left", "right"} <= set(found)


def test_a_model_is_one_stage_with_the_replicas_asked_for() -> None:
    _, model = stages_of(SOURCE.run_inference(Echo(), concurrency=3, name="m").select("prediction"))
    assert (model.kind, model.replicas, model.isolation) == ("model", 3, "thread")
    assert [s.name for s in model.steps] == ["select"]


def test_processes_are_as_many_as_cores_where_nothing_is_said() -> None:
    _, steps = stages_of(SOURCE.map(lambda r: r, isolation="process"))
    assert (steps.replicas, steps.isolation) == (4, "process")
