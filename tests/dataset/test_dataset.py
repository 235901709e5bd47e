"""The fluent API over the embedded engine, in memory."""

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError, StageError, UnknownColumnError


class Doubler(hr.ModelHandler):
    def load_model(self):
        return 2

    def run_inference(self, batch, model):
        return [r["id"] * model for r in batch]


class OnDevice(Doubler):
    def __init__(self, device):
        self.device = device


def test_rows_keep_their_order_and_columns_through_a_model() -> None:
    table = hr.range(10_000).run_inference(Doubler(), max_batch_size=64, concurrency=2).to_arrow()
    assert table["id"].to_pylist() == list(range(10_000))
    assert table["prediction"].to_pylist() == [2 * i for i in range(10_000)]
    assert set(table["model_id"].to_pylist()) == {"Doubler"}


def test_everything_is_lazy_until_rows_are_asked_for() -> None:
    calls = []
    ds = hr.range(3).map(lambda r: calls.append(1) or r)
    assert calls == []
    assert ds.count() == 3
    assert len(calls) == 3


def test_select_drop_rename_add_column() -> None:
    ds = hr.from_items([{"a": 1, "b": 2, "c": 3}])
    assert ds.select("c", "a").take() == [{"c": 3, "a": 1}]
    assert ds.drop("b").take() == [{"a": 1, "c": 3}]
    assert ds.rename({"a": "z"}).take() == [{"z": 1, "b": 2, "c": 3}]
    assert ds.add_column("d", lambda r: r["a"] + r["c"]).take() == [{"a": 1, "b": 2, "c": 3, "d": 4}]


def test_an_unknown_column_is_named_with_its_nearest_before_anything_runs() -> None:
    def never(row):
        raise AssertionError

    ds = hr.from_items([{"text": "a"}])
    with pytest.raises(UnknownColumnError, match="'txt'.*did you mean 'text'"):
        ds.select("txt").map(never).take()
    with pytest.raises(UnknownColumnError, match="'txt'.*did you mean 'text'"):
        ds.run_inference(Doubler(), inputs="txt").take()


def test_limit_means_source_order_and_stops_early() -> None:
    seen = []
    ds = hr.range(5_000_000).map_batches(lambda b: seen.append(len(b["id"])) or b)
    assert [r["id"] for r in ds.limit(5).take(10)] == [0, 1, 2, 3, 4]
    assert sum(seen) < 5_000_000


@pytest.mark.parametrize("rows", [0, 1, 7, 100, 101, 1000])
def test_limits_of_all_sizes(rows) -> None:
    ds = hr.range(100).filter(lambda r: True)
    assert ds.limit(rows).count() == min(rows, 100)


def test_limit_counts_rows_behind_a_filter() -> None:
    assert [r["id"] for r in hr.range(1000).filter(lambda r: r["id"] % 10 == 0).limit(3).take()] == [0, 10, 20]


def test_union_keeps_all_rows_also_of_one_source_twice() -> None:
    ds = hr.range(10)
    both = ds.union(ds.map(lambda r: {"id": -r["id"]}), hr.from_items([{"id": 99}]))
    assert sorted(r["id"] for r in both.iter_rows()) == sorted([*range(10), *[-i for i in range(10)], 99])


def test_split_makes_named_branches() -> None:
    branches = hr.range(10).split({"even": lambda r: r["id"] % 2 == 0, "odd": lambda r: r["id"] % 2 == 1})
    assert branches["even"].count() == branches["odd"].count() == 5


def test_random_shuffle_is_a_permutation_and_repeats_with_its_seed() -> None:
    ids = [r["id"] for r in hr.range(5000).random_shuffle(seed=3, buffer_rows=500).iter_rows()]
    again = [r["id"] for r in hr.range(5000).random_shuffle(seed=3, buffer_rows=500).iter_rows()]
    other = [r["id"] for r in hr.range(5000).random_shuffle(seed=4, buffer_rows=500).iter_rows()]
    assert sorted(ids) == list(range(5000))
    assert ids == again
    assert ids != other
    assert ids != sorted(ids)


def test_apply_names_the_steps_of_a_composite() -> None:
    def tidy(ds):
        return ds.map(lambda r: r, name="strip").filter(lambda r: True, name="nonempty")

    text = hr.range(3).apply(tidy).explain()
    assert "tidy/strip" in text
    assert "tidy/nonempty" in text


def test_duplicate_names_are_refused() -> None:
    ds = hr.range(3).map(lambda r: r, name="same").map(lambda r: r, name="same")
    with pytest.raises(PlanError, match="'same' appears twice"):
        ds.count()


def test_preprocess_and_postprocess_run_around_the_model() -> None:
    class Upper(hr.ModelHandler):
        def load_model(self):
            return str.upper

        def run_inference(self, batch, model):
            return [model(text) for text in batch]

    ds = hr.from_items([{"t": " a "}, {"t": "b"}]).run_inference(
        Upper(), inputs="t", preprocess=[str.strip, lambda t: t + "!"], postprocess=len, model_id_column=None
    )
    assert ds.take() == [{"t": " a ", "prediction": 2}, {"t": "b", "prediction": 2}]


def test_a_failing_row_ends_the_run_and_says_which() -> None:
    class Picky(hr.ModelHandler):
        def load_model(self):
            return None

        def run_inference(self, batch, model):
            if any(r["id"] == 13 for r in batch):
                raise ValueError("unlucky")
            return [0] * len(batch)

    with pytest.raises(StageError, match=r"row 13 .*unlucky"):
        hr.range(100).run_inference(Picky()).count()


def test_iter_batches_are_of_the_size_asked_for() -> None:
    sizes = [len(b["id"]) for b in hr.range(1000).filter(lambda r: r["id"] % 3 == 0).iter_batches(batch_size=100)]
    assert sizes == [100, 100, 100, 34]


def test_leaving_an_iteration_early_stops_the_run() -> None:
    rows = hr.range(50_000_000).iter_rows()
    assert next(rows) == {"id": 0}
    rows.close()


def test_materialize_runs_once() -> None:
    calls = []
    ds = hr.range(4).map(lambda r: calls.append(1) or r).materialize()
    assert ds.count() == 4
    assert ds.count() == 4
    assert len(calls) == 4


def test_schema_from_declarations_or_from_rows() -> None:
    ds = hr.range(3)
    assert ds.schema() == pa.schema({"id": pa.int64()})
    assert ds.map(lambda r: {"x": 0.5}).schema() == pa.schema({"x": pa.float64()})


def test_tensors_travel_between_steps() -> None:
    ds = hr.range(3).map(lambda r: {"image": np.full((2, r["id"] + 1), r["id"], dtype="uint8")})
    shapes = [r["image"].shape for r in ds.map(lambda r: {"image": r["image"] + 1}).take()]
    assert shapes == [(2, 1), (2, 2), (2, 3)]


def test_a_nothing_is_a_result() -> None:
    assert hr.from_items([]).map(lambda r: r).count() == 0
    assert hr.from_items([]).to_arrow().num_rows == 0


def test_processes_give_the_same_rows() -> None:
    ds = hr.range(2000).map(lambda r: {"y": r["id"] * 3}, isolation="process", concurrency=2)
    assert [r["y"] for r in ds.iter_rows()] == [3 * i for i in range(2000)]


def test_a_model_in_processes_gives_the_same_rows() -> None:
    table = hr.range(2000).run_inference(Doubler(), isolation="process", concurrency=2, max_batch_size=100).to_arrow()
    assert table["prediction"].to_pylist() == [2 * i for i in range(2000)]


def test_a_handler_that_cannot_reach_its_worker_is_refused_when_the_plan_is_checked() -> None:
    import threading

    handler = Doubler()
    handler.lock = threading.Lock()
    with pytest.raises(PlanError, match="lock"):
        hr.range(3).run_inference(handler, isolation="process").count()


def test_stats_tell_what_each_step_did() -> None:
    statistics = hr.range(100).filter(lambda r: r["id"] < 40).stats()
    (step,) = [s for stage in statistics.stages for s in stage.steps]
    assert (step.rows_in, step.rows_out, step.filtered) == (100, 40, 60)
    assert statistics.done


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ds: ds.map(3), "takes a function"),
        (lambda ds: ds.limit(-1), "at least 0"),
        (lambda ds: ds.take(-1), "take is -1.*at least 0"),
        (lambda ds: ds.take("3"), "take is '3'"),
        (lambda ds: ds.run_inference("net.pkl").take(1), r"needs a ModelHandler.*SklearnModelHandler\('net.pkl'\)"),
        (lambda ds: ds.run_inference(Doubler).take(1), r"pass an instance: Doubler\(\)"),
        (lambda ds: ds.write_csv(""), "the path of the output is empty"),
        (lambda ds: ds.map_batches(len, batch_size=0), "at least 1"),
        (lambda ds: ds.map_batches(len, batch_format="arrow"), "batch_format"),
        (lambda ds: ds.map(len, on_error="skip"), "on_error"),
        (lambda ds: ds.run_inference(Doubler(), batch_size=3, max_batch_size=4), "batch_size fixes"),
        (lambda ds: ds.run_inference(Doubler(), min_batch_size=5, max_batch_size=4), "more than max_batch_size"),
        (lambda ds: ds.map(dict, isolation="treads"), "isolation is 'treads'; use 'auto', 'thread' or 'process'"),
        (lambda ds: ds.filter(dict, concurrency=0), "concurrency is 0; it is a whole number of replicas, at least 1"),
        (
            lambda ds: ds.run_inference(Doubler(), on_error="nul"),
            "on_error is 'nul'; use 'fail', 'dead_letter' or 'null'",
        ),
        (lambda ds: ds.run_inference(Doubler(), concurrency=0), "concurrency"),
        (lambda ds: ds.run_inference(Doubler(), concurrency=True), "concurrency is True"),
        (lambda ds: ds.run_inference(Doubler(), concurrency="2"), "concurrency is '2'"),
        (lambda ds: ds.run_inference(Doubler(), timeout_secs=0), "timeout_secs is 0; .* seconds, more than 0"),
        (lambda ds: ds.run_inference(Doubler(), timeout_secs=True), "timeout_secs is True"),
        (lambda ds: ds.run_inference(Doubler(), timeout_secs=float("nan")), "timeout_secs is nan"),
        (lambda ds: ds.run_inference(Doubler(), num_gpus=-1), "num_gpus is -1; it is a number of accelerators"),
        (lambda ds: ds.run_inference(Doubler(), num_gpus=True), "num_gpus is True"),
        (lambda ds: ds.run_inference(Doubler(), min_ram="much"), "min_ram: 'much' is no number of bytes"),
        (lambda ds: ds.run_inference(Doubler(), min_ram=0), "min_ram: 0 is no number of bytes"),
        (lambda ds: ds.run_inference(Doubler(), accelerator=1), "accelerator is 1"),
        (lambda ds: ds.run_inference(Doubler(), accelerator="type:l4;count:2"), "name of a kind, such as 'nvidia-l4'"),
        (lambda ds: ds.run_inference(Doubler(), accelerator="l4", num_gpus=0), "num_gpus=0 asks for no accelerator"),
        (lambda ds: ds.run_inference(Doubler(), num_gpus=1.5), "num_gpus is 1.5; .* whole GPUs, or a part of one"),
        (lambda ds: ds.run_inference(Doubler(), num_gpus=1, isolation="thread"), "leave isolation='thread' out"),
        (lambda ds: ds.run_inference(OnDevice("cuda:1"), num_gpus=1), "OnDevice has device='cuda:1', and num_gpus=1"),
        (lambda ds: ds.run_inference(OnDevice("cpu"), accelerator="l4"), "OnDevice has device='cpu', and num_gpus=1"),
        (
            lambda ds: ds.run_inference(hr.KeyedModelHandler({"a": Doubler()}, key="k"), num_gpus=1),
            "num_gpus= is for one model",
        ),
        (
            lambda ds: ds.run_inference(
                hr.KeyedModelHandler({"a": Doubler()}, key="k"), min_ram="1GB", memory_budget="auto"
            ),
            "leave min_ram= out",
        ),
        (lambda ds: ds.map_batches(len, batch_size=True), "batch_size is True"),
        (lambda ds: ds.limit(True), "limit is True"),
        (lambda ds: ds.random_shuffle(buffer_rows=1), "buffer_rows is 1; .* at least 2"),
        (lambda ds: ds.iter_batches(batch_size=0), "batch_size is 0"),
        (lambda ds: ds.write_csv("out", rows_per_part=0), "rows_per_part is 0; it is a whole number of rows"),
        (lambda ds: ds.write_csv("out", target_part_bytes=1.5), "target_part_bytes is 1.5"),
        (lambda ds: ds.write_csv("out").run(max_failed_rows=-1), "max_failed_rows is -1"),
        (lambda ds: ds.write_csv("out").run(max_failed_ratio=True), "max_failed_ratio is True"),
        (lambda ds: ds.write_csv("out").run(max_outage_secs=float("nan")), "max_outage_secs is nan"),
        (lambda ds: ds.write_csv("out").run(num_cpus=True), "num_cpus is True"),
        (lambda ds: ds.write_csv("out").run(memory_limit=True), "memory_limit: True is no number of bytes"),
        (lambda ds: ds.explain(num_cpus=0), "num_cpus is 0"),
        (lambda ds: hr.range(-1), "range is -1"),
        (lambda ds: ds.select(3), "named by text"),
    ],
)
def test_wrong_calls_are_told_at_once(call, message) -> None:
    with pytest.raises(PlanError, match=message):
        call(hr.range(3))


def test_a_union_larger_than_what_may_wait_in_memory_comes_through(monkeypatch) -> None:
    monkeypatch.setattr("headrace.engine.budget.HELD_BYTES", 100_000)
    ds = hr.range(1_000_000).union(hr.range(1_000_000), hr.range(1_000_000))
    assert ds.count() == 3_000_000
