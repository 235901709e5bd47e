"""Side inputs in pipeline files: made, handed over, and what is said of names that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import SpecError
from headrace.spec.jobs import build_jobs
from headrace.spec.load import load_spec

TEXTS = 'texts: {source: {type: json, path: in.jsonl}, steps: [{map: {function: "steps:clean"}}], build: "steps:by_id"}'
VECTORS = (
    "near: {source: {type: json, path: in.jsonl}, steps: [{add_column: {column: v, function: 'steps:place'}}],"
    " index: {column: v, key: id, metric: l2}}"
)


@pytest.fixture(autouse=True)
def _input(folder: Path) -> None:
    lines = [{"id": 1, "text": " good "}, {"id": 2, "text": "bad"}]
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def ran(sides: str, *steps: str) -> list[dict[str, Any]]:
    listed = "".join(f"  - {step}\n" for step in steps)
    Path("p.yaml").write_text(
        f"side_inputs:\n  {sides}\nsource: {{type: json, path: in.jsonl}}\nsteps:\n{listed}"
        "sink: {type: json, path: out}\n"
    )
    hr.run(*build_jobs(load_spec("p.yaml"), file="p.yaml"))
    return [json.loads(line) for part in sorted(Path("out").glob("*.jsonl")) for line in part.read_text().splitlines()]


def problems(sides: str, *steps: str) -> str:
    with pytest.raises(SpecError) as caught:
        ran(sides, *steps)
    assert not Path("out").exists()
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize("used", ["texts", "[texts]", "{texts: texts}"])
def test_a_step_gets_what_is_built_of_other_rows(used: str) -> None:
    found = ran(TEXTS, f'map: {{function: "steps:looked_up", side_inputs: {used}}}')
    assert found == [{"id": 1, "found": "good"}, {"id": 2, "found": "bad"}]


def test_functions_around_a_model_get_it() -> None:
    step = 'infer: {models: {good: "steps:Upper", bad: "steps:Upper"}, key: "steps:known", side_inputs: texts}'
    assert [row["model_id"] for row in ran(TEXTS, step)] == ["good", "bad"]


def test_a_side_input_may_use_those_above_it() -> None:
    second = '\n  seconds: {source: {type: json, path: in.jsonl}, steps: [{filter: {function: "steps:known", side_inputs: texts}}]}'
    step = 'map: {function: "steps:looked_up", side_inputs: {texts: texts}}'
    assert "'texts' is made later, or of this" in problems(second.strip() + f"\n  {TEXTS}", step)
    assert len(ran(TEXTS + second, step)) == 2


def test_an_index_is_searched() -> None:
    steps = (
        "add_column: {column: v, function: 'steps:place'}",
        "search: {index: near, column: v, k: 1, distances: null}",
    )
    assert [(row["id"], row["neighbors"], "distances" in row) for row in ran(VECTORS, *steps)] == [
        (1, [1], False),
        (2, [2], False),
    ]


@pytest.mark.parametrize(
    ("sides", "step", "message"),
    [
        (TEXTS, 'map: {function: "steps:looked_up", side_inputs: txts}',
         "line 5, column 40: steps[0].map.side_inputs: there is no side input 'txts'; did you mean 'texts'?"),
        (TEXTS, 'map: {function: "steps:clean", side_inputs: texts}', "it has no such parameter"),
        (TEXTS, 'map: {function: "steps:clean", side_inputs: 3}', "side_inputs: must be a mapping, not 3"),
        (TEXTS, "search: {index: texts, column: v}", "steps[0].search.index: 'texts' is no index; it has no index:"),
        (TEXTS, "search: {index: near, column: v}", "there is no side input 'near'; there are texts"),
        (TEXTS.replace("build", "biuld"), "limit: 1", "side_inputs.texts.biuld: is no key; did you mean 'build'?"),
        (TEXTS.replace("type: json", "type: jsno"), "limit: 1",
         "side_inputs.texts.source: type must be one of csv, json, parquet"),
        (TEXTS.replace("path:", "pth:"), "limit: 1", "side_inputs.texts.source.pth: is no key; did you mean 'path'?"),
        (TEXTS.replace("path: in.jsonl", "path: 3"), "limit: 1", "side_inputs.texts.source.path: must be a list"),
        (TEXTS.replace("function", "functoin"), "limit: 1", "did you mean 'function'?"),
        (TEXTS.replace("by_id", "by_di"), "limit: 1", "did you mean 'by_id'?"),
        (VECTORS.replace("metric: l2", "metric: l3"), "limit: 1", "side_inputs.near.index.metric: must be one of"),
        (VECTORS.replace("index:", "build: 'steps:by_id', index:"), "limit: 1", "leave build: and version: out"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(sides: str, step: str, message: str) -> None:
    assert message in problems(sides, step)
