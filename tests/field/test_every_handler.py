"""Every kind of handler: rows in a batch change nothing, a bad row costs one row, and answers are counted.

The kinds are data (`tests/field/kinds`): a further one is one entry there.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import RunError, StageError
from headrace.runners.result import RunResult
from headrace.testing import assert_balanced
from tests.field.kinds import arrays, pictures, sentences, tables, texts
from tests.field.kinds.kind import Kind, Model
from tests.field.running import rows_in

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(600),
]  # frameworks are imported, which takes long on a busy machine

KINDS = (*tables.KINDS, *arrays.KINDS, *texts.KINDS, *sentences.KINDS, *pictures.KINDS)
SIZES = (1, 2, 3, 7)
POISON = (13, 14, 39)

ModelOf = Callable[..., Model]

ALONE = {"num_cpus": 1}
"""Without worker processes, in which every framework would be imported once more."""


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    for module in request.param.needs:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    return request.param


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> ModelOf:
    """Make each model once."""

    @functools.cache
    def make(kind: str, model: str) -> Model:
        (found,) = [one for one in KINDS if one.name == kind]
        return getattr(found, model)(tmp_path_factory.mktemp("model"))  # type: ignore[no-any-return]

    return lambda kind, model="make": make(kind.name, model)


def of_kinds(model: str) -> Any:
    """Run a test for the kinds that have such a model; why the others have none is said there."""
    return pytest.mark.parametrize(
        "kind", [kind for kind in KINDS if callable(getattr(kind, model))], ids=lambda kind: kind.name, indirect=True
    )


def answered(model: Model, rows: list[dict[str, Any]], size: int) -> tuple[list[Any], pa.DataType]:
    """Return the answers in batches of a size, and the type of their column in a file."""
    out = f"out{size}"
    ds = hr.from_items(rows).run_inference(model.handler, inputs=model.inputs, batch_size=size)
    result = ds.write_parquet(out).run(**ALONE)
    assert_balanced(result)
    written = rows_in(out)
    assert [row["id"] for row in written] == [row["id"] for row in rows]
    return [row["prediction"] for row in written], pq.read_schema(f"{out}/part-00000.parquet").field("prediction").type


def alike(left: Any, right: Any, tolerance: float) -> bool:
    """Say whether two answers are equal, numbers within a tolerance."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key], tolerance) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(alike(a, b, tolerance) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    return type(left) is type(right) and left == right


def check_alike(found: list[Any], expected: list[Any], kind: Kind) -> None:
    assert len(found) == len(expected)
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert alike(one, other, kind.tolerance), f"row {i}: {one} is not {other}"


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a file of text has it: pictures are nested lists."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}


# -- Answers of different lengths, and a last batch of one -----------------------------------------------------------


def test_the_number_of_rows_in_a_batch_changes_nothing(kind: Kind, model_of: ModelOf) -> None:
    model, rows = model_of(kind), kind.rows(7)
    alone, type_ = answered(model, rows, 1)
    assert None not in alone
    assert all(not alike(a, b, kind.tolerance) for a, b in pairwise(alone)), "a shift would hide"
    for size in SIZES[1:]:
        found, same_type = answered(model, rows, size)
        check_alike(found, alone, kind)
        assert same_type == type_


@of_kinds("ragged")
@pytest.mark.parametrize("wanted", [(3, 1, 0, 4, 1, 2, 1), (2, 2, 3, 1, 4, 4, 0), (0, 0, 0, 0, 0, 0, 0)])
def test_answers_of_different_lengths(kind: Kind, model_of: ModelOf, wanted: tuple[int, ...]) -> None:
    model = model_of(kind, "ragged")
    rows = [{"id": i, "wanted": count, **model.columns(i, count)} for i, count in enumerate(wanted)]
    types = set()
    for size in SIZES:
        found, type_ = answered(model, rows, size)
        assert found == [[float(row["id"])] * row["wanted"] for row in rows]
        types.add(type_)
    assert len(types) == 1


@of_kinds("squeezed")
def test_a_bare_number_for_a_batch_of_one_is_that_rows_answer(kind: Kind, model_of: ModelOf) -> None:
    model = model_of(kind, "squeezed")
    rows = [{"id": i, **model.columns(i, 1)} for i in range(7)]
    for size in SIZES:
        found, _ = answered(model, rows, size)
        assert found == [i * 0.5 for i in range(7)]


# -- One bad row in a batch ------------------------------------------------------------------------------------------


def run(model: Model, rows: list[dict[str, Any]], out: str = "out", size: int = 8, **options: Any) -> RunResult:
    ds = hr.from_items(rows).run_inference(
        model.handler, inputs=model.inputs, min_batch_size=size, max_batch_size=size, name="score"
    )
    return ds.write_json(out).run(**ALONE, **options)


def calls(result: RunResult) -> int:
    (stage,) = [stage for stage in result.statistics.stages if stage.model is not None]
    return stage.model.calls


def test_three_bad_rows_of_forty_are_set_aside_alone(kind: Kind, model_of: ModelOf) -> None:
    model = model_of(kind)
    run(model, kind.rows(40), "all", size=1)
    expected = [row["prediction"] for row in rows_in("all") if row["id"] not in POISON]

    rows = kind.rows(40, bad=POISON)
    result = run(model, rows, on_error="dead_letter")
    written = rows_in()
    assert [row["id"] for row in written] == [i for i in range(40) if i not in POISON]
    check_alike([row["prediction"] for row in written], expected, kind)

    letters = rows_in("out/_dead_letters")
    assert [letter["row"] for letter in letters] == [as_json(rows[i]) for i in POISON]
    for letter in letters:
        assert letter["stage"].startswith("score")
        assert re.fullmatch(kind.error[0], letter["error_type"])
        assert re.search(kind.error[1], letter["message"])

    assert calls(result) <= 40
    assert str(result.report().balance()) == "read 40 = written 37 + failed 3 + filtered 0"
    assert_balanced(result)


def test_without_dead_letters_the_job_fails_with_the_reason(kind: Kind, model_of: ModelOf) -> None:
    rows = kind.rows(16, bad=(13,))
    with pytest.raises(StageError, match=rf"(?s)row 13 .*({kind.error[1]})"):
        run(model_of(kind), rows)


def test_forty_bad_rows_do_not_look_like_a_good_end(kind: Kind, model_of: ModelOf) -> None:
    with pytest.raises(RunError, match=kind.error[1]):
        run(model_of(kind), kind.rows(40, bad=tuple(range(40))), on_error="dead_letter")
    assert not [row for row in rows_in() if row.get("prediction") is not None]


# -- One answer too few, or one too many -----------------------------------------------------------------------------


@of_kinds("miscounting")
@pytest.mark.parametrize("size", [1, 4])
def test_no_row_gets_the_answer_of_another(kind: Kind, model_of: ModelOf, size: int) -> None:
    model = model_of(kind, "miscounting")
    times = {5: 2, 8: 0}
    counts = [times.get(i, 1) for i in range(13)]
    rows = [{"id": i, "times": count, **model.columns(i, count)} for i, count in enumerate(counts)]
    result = run(model, rows, size=size, on_error="dead_letter")
    assert [(row["id"], row["prediction"]) for row in rows_in()] == [(i, float(i)) for i in range(13) if i not in times]
    letters = rows_in("out/_dead_letters")
    assert [letter["row"] for letter in letters] == [rows[5], rows[8]]
    for letter, count in zip(letters, ("2 times", "0 times"), strict=True):
        assert letter["error_type"] == "AnswerError"
        name = type(model.handler).__name__
        assert f"handler {name} answered {count} for 1 row; answers are paired by position" in letter["message"]
    assert str(result.report().balance()) == "read 13 = written 11 + failed 2 + filtered 0"
    with pytest.raises(StageError, match=r"row 5 .*answered 2 times for 1 row"):
        run(model, rows, "again", size=size)


@of_kinds("miscounting")
def test_no_answer_at_all_is_the_same_fault(kind: Kind, model_of: ModelOf) -> None:
    model = model_of(kind, "miscounting")
    rows = [{"id": i, "times": 0, **model.columns(i, 0)} for i in range(4)]
    with pytest.raises(RunError, match=f"handler {type(model.handler).__name__} answered"):
        run(model, rows, size=4, on_error="dead_letter")
    assert [letter["row"] for letter in rows_in("out/_dead_letters")] == rows
