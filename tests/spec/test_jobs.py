"""Pipelines in YAML that run, from file to output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import SpecError
from headrace.records.private import WEIGHT
from headrace.spec.jobs import build_jobs
from headrace.spec.load import load_spec

LINES = [{"id": 1, "text": " good service "}, {"id": 2, "text": "bad"}, {"id": 3, "text": "x"}]


@pytest.fixture(autouse=True)
def _input(folder: Path) -> None:
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))


def jobs(steps: str, sink: str = "sink: {type: json, path: out}", **options: Any) -> list[hr.Job]:
    Path("p.yaml").write_text(f"source: {{type: json, path: in.jsonl}}\nsteps: {steps}\n{sink}\n")
    return build_jobs(load_spec("p.yaml"), file="p.yaml", **options)


def rows(folder: str = "out") -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(Path(folder).glob("*.jsonl")) for line in part.read_text().splitlines()]


def ran(steps: str, **options: Any) -> list[dict[str, Any]]:
    hr.run(*jobs(steps, **options))
    return rows()


@pytest.mark.parametrize(
    ("step", "first"),
    [
        ("map: {function: 'steps:clean'}", {"id": 1, "text": "good service"}),
        ("map: {function: 'steps:clean', concurrency: 1, isolation: thread, name: tidy}", {"id": 1, "text": "good service"}),
        ("flat_map: {function: 'steps:words'}", {"word": "good"}),
        ("map_batches: {function: 'steps:double', batch_format: rows, batch_size: 2}", {**LINES[0], "twice": " good service  good service "}),
        ("add_column: {column: length, function: 'steps:length'}", {**LINES[0], "length": 14}),
        ("select: [text]", {"text": " good service "}),
        ("select: text", {"text": " good service "}),
        ("drop: [text]", {"id": 1}),
        ("rename: {text: review}", {"id": 1, "review": " good service "}),
        ("apply: {function: 'steps:prepared'}", {"id": 1, "text": "good service"}),
        ("infer: {handler: 'steps:Upper', model_id_column: null}", {**LINES[0], "prediction": " GOOD SERVICE "}),
        ("infer: {handler: 'steps:Upper', args: {suffix: '?'}, output: loud, batch_size: 2}",
         {**LINES[0], "loud": " GOOD SERVICE ?", "model_id": "Upper"}),
        ("map: {function: 'steps:clean', retry: {attempts: 2}}", {"id": 1, "text": "good service"}),
        ("infer: {handler: 'steps:Upper', model_id_column: null, retry: {backoff_secs: 0.1, on: ConnectionError}}",
         {**LINES[0], "prediction": " GOOD SERVICE "}),
        ("reshuffle: {}", LINES[0]),
    ],
)  # fmt: skip
def test_steps(step: str, first: dict[str, Any]) -> None:
    assert ran(f"[{{{step}}}]")[0] == first


def test_a_retry_reaches_the_step_as_it_is_written() -> None:
    retry = "{attempts: 7, backoff_secs: 0.5, max_backoff_secs: 9, on: [ConnectionError, requests.Timeout]}"
    (job,) = jobs(f"[{{map: {{function: 'steps:clean', retry: {retry}}}}}]")
    assert job.node.upstream.step.retry == hr.Retry(
        7, backoff_secs=0.5, max_backoff_secs=9, on=("ConnectionError", "requests.Timeout")
    )


def test_models_that_take_turns_have_a_budget() -> None:
    for written, made in (
        ("2GB", hr.MemoryBudget(cpu="2GB")),
        ("auto", hr.MemoryBudget(gpu="auto")),
        ("1000", hr.MemoryBudget(cpu=1000)),
        ("{gpu: 10GB, cpu: 2GB}", hr.MemoryBudget(cpu="2GB", gpu="10GB")),
        ("{gpu: {'0': 10GB, GPU-5c: 8GB}}", hr.MemoryBudget(gpu={"0": "10GB", "GPU-5c": "8GB"})),
        ("{gpu: auto}", hr.MemoryBudget(gpu="auto")),
    ):
        (job,) = jobs(f"[{{infer: {{handler: 'steps:keyed', memory_budget: {written}}}}}]")
        assert job.node.upstream.memory_budget == made
    with pytest.raises(hr.errors.PlanError, match="KeyedModelHandler"):
        jobs("[{infer: {handler: 'steps:Upper', memory_budget: 2GB}}]")


def test_a_model_that_changes_has_a_pattern() -> None:
    for written, made in (
        ("'m/*.pkl'", hr.WatchFilePattern("m/*.pkl")),
        ("{pattern: 'm/*.pkl', interval_secs: 5}", hr.WatchFilePattern("m/*.pkl", 5)),
    ):
        (job,) = jobs(f"[{{infer: {{handler: 'steps:Kept', watch: {written}}}}}]")
        assert job.node.upstream.updates == made
    with pytest.raises(SpecError, match=r"with_model\(path\)"):
        jobs("[{infer: {handler: 'steps:Upper', watch: 'm/*.pkl'}}]")
    with pytest.raises(SpecError, match="interval_secs"):
        jobs("[{infer: {handler: 'steps:Kept', watch: {pattern: 'm/*', interval_secs: 0}}}]")


def test_each_row_goes_to_the_model_that_its_key_names() -> None:
    steps = "[{infer: {models: {'2': 'steps:Upper', '3': 'steps:ready'}, key: 'steps:number', on_error: 'null'}}]"
    answers = [(row["prediction"], row["model_id"]) for row in ran(steps)]
    assert answers == [(None, "1"), ("BAD", "2"), ("X!", "3")]


def test_a_cache_is_a_folder_or_has_bytes_too() -> None:
    for cache, made in (
        ("kept", hr.PredictionCache("kept")),
        ("{path: kept, max_bytes: 2GB}", hr.PredictionCache("kept", "2GB")),
    ):
        (job,) = jobs(f"[{{infer: {{handler: 'steps:Upper', durability: row, cache: {cache}}}}}]")
        assert (job.node.upstream.cache, job.node.upstream.durability) == (made, "row")
    with pytest.raises(SpecError, match=r"steps\[0\].infer: max_bytes is 5"):
        jobs("[{infer: {handler: 'steps:Upper', cache: {path: kept, max_bytes: 5}}}]")


def test_time_limits_reach_the_step_and_the_model() -> None:
    (job,) = jobs(
        "[{map: {function: 'steps:clean', timeout_secs: 1.5}}, {infer: {handler: 'steps:Upper', timeout_secs: 2}}]"
    )
    model = job.node.upstream
    assert (model.spec.timeout_secs, model.isolation) == (2, "process")
    assert (model.upstream.step.timeout_secs, model.upstream.isolation) == (1.5, "process")


def test_lengths_and_weights_are_columns_or_functions() -> None:
    for given, column, padded in (
        ("length_fn: text", "text", True),
        ("weight_fn: id", "id", False),
        ("length_fn: 'builtins:len'", WEIGHT, True),
    ):
        (job,) = jobs(
            "[{infer: {handler: 'steps:Upper', inputs: text, model_id_column: null, max_batch_weight: 64,"
            f" sort_window_rows: 10, target_latency_secs: 2, {given}}}}}]"
        )
        model = job.node.upstream if column != WEIGHT else job.node.upstream.upstream
        limits = model.spec.limits
        assert (limits.weight_column, limits.padded, limits.max_batch_weight) == (column, padded, 64)
        assert (limits.sort_window_rows, limits.target_latency_secs) == (10, 2)


def test_a_retry_that_makes_no_sense_is_told_with_its_place() -> None:
    with pytest.raises(SpecError, match=r"steps\[0\].map: Retry\(backoff_secs=9"):
        jobs("[{map: {function: 'steps:clean', retry: {backoff_secs: 9, max_backoff_secs: 1}}}]")


def test_filter_limit_and_shuffle() -> None:
    assert [row["id"] for row in ran("[filter: {function: 'steps:long_enough'}, limit: 1]")] == [1]
    hr.run(*jobs("[random_shuffle: {seed: 7, buffer_rows: 10}]", sink="sink: {type: json, path: mixed}"))
    assert sorted(row["id"] for row in rows("mixed")) == [1, 2, 3]


def test_several_sinks_are_one_run() -> None:
    hr.run(*jobs("[]", sink="sinks: [{type: json, path: out}, {type: csv, path: table, rows_per_part: 2}]"))
    assert rows() == LINES
    assert len(list(Path("table").glob("*.csv"))) == 2


def test_overwrite_goes_before_the_file() -> None:
    (job,) = jobs("[]", sink="sink: {type: json, path: out, if_exists: fail}", overwrite=True)
    assert job.node.if_exists == "overwrite"


def test_branches_cannot_be_told_in_a_file() -> None:
    Path("branching.py").write_text("def both(ds): return ds.split({'a': bool, 'b': bool})\n")
    with pytest.raises(SpecError, match=r"p\.yaml: steps\[0\]\.apply: branching:both returns branches"):
        jobs("[apply: {function: 'branching:both'}]")


def test_what_the_plan_refuses_is_told_with_its_place() -> None:
    with pytest.raises(SpecError, match=r"p\.yaml: steps\[0\]\.infer: postprocess="):
        jobs("[infer: {handler: 'steps:Upper', output: {a: b}, postprocess: 'steps:length'}]")
