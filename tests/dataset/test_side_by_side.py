from __future__ import annotations

import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.handlers.function import FunctionModelHandler
from headrace.metrics.report import Report


def both() -> hr.KeyedModelHandler:
    models = {
        "old": FunctionModelHandler(lambda xs: [x * 2 for x in xs]),
        "new": FunctionModelHandler(lambda xs: [hr.RowError("odd") if x % 2 else float(x) for x in xs]),
    }
    return hr.KeyedModelHandler(models, mode="all")


def test_all_models_answer_every_row_in_a_struct() -> None:
    rows = hr.from_items([{"x": 2}, {"x": 4}]).run_inference(both(), inputs="x", output="answers").take(2)
    assert rows == [{"x": 2, "answers": {"old": 4, "new": 2.0}}, {"x": 4, "answers": {"old": 8, "new": 4.0}}]


def test_or_in_a_column_each() -> None:
    ds = hr.from_items([{"x": 2}]).run_inference(both(), inputs="x", output={"new": "b", "old": "a"})
    assert ds.take(1) == [{"x": 2, "a": 4, "b": 2.0}]
    with pytest.raises(PlanError, match=r"'nwe' is in one of the two only; did you mean 'new'"):
        ds.run_inference(both(), inputs="x", output={"nwe": "b", "old": "a"})


def test_a_model_that_fails_a_row_leaves_null_among_the_others_answers_or_fails_it() -> None:
    ds = hr.from_items([{"x": 1}, {"x": 2}])
    nulled = ds.run_inference(both(), inputs="x", on_error="null").take(2)
    assert [row["prediction"] for row in nulled] == [{"old": 2, "new": None}, {"old": 4, "new": 2.0}]
    kept = ds.run_inference(both(), inputs="x", on_error="dead_letter").take(2)
    assert [row["x"] for row in kept] == [2]


def test_without_inputs_no_model_sees_another_s_answers() -> None:
    names = {n: FunctionModelHandler(lambda rows: [sorted(row) for row in rows]) for n in "ab"}
    (row,) = hr.from_items([{"x": 1}]).run_inference(hr.KeyedModelHandler(names, mode="all")).take(1)
    assert row["prediction"] == {"a": ["x"], "b": ["x"]}


def test_they_are_all_in_memory_so_that_they_have_no_budget() -> None:
    with pytest.raises(PlanError, match="models that take turns|leave memory_budget= out"):
        hr.from_items([{"x": 1}]).run_inference(both(), inputs="x", memory_budget="auto")


def test_the_report_tells_on_how_many_rows_models_agree() -> None:
    models = {
        "old": FunctionModelHandler(lambda xs: [x % 2 for x in xs]),
        "new": FunctionModelHandler(lambda xs: [hr.RowError("no") if x == 4 else float(x % 4) for x in xs]),
        "text": FunctionModelHandler(lambda xs: ["a" for _ in xs]),
    }
    ds = hr.range(8).run_inference(hr.KeyedModelHandler(models, mode="all"), inputs="id", on_error="null")
    for asked in (
        ds,
        hr.range(8).run_inference(
            hr.KeyedModelHandler(models, mode="all"),
            inputs="id",
            output={"old": "o", "new": "n", "text": "t"},
            on_error="null",
        ),
    ):
        statistics = asked.stats()
        pairs = [pair for stage in statistics.stages for step in stage.steps for pair in step.agreement]
        assert [(pair.one, pair.other, pair.rows, pair.equal) for pair in pairs] == [("old", "new", 7, 3)]
        assert "old and new agree on 42.9 % of 7 rows" in str(Report(statistics))


def test_answers_can_be_labelled_with_the_names_of_their_models() -> None:
    models = {
        "old": FunctionModelHandler(lambda xs: [{"label": "even" if x % 2 == 0 else "odd", "score": 0.5} for x in xs]),
        "new": FunctionModelHandler(lambda xs: [hr.RowError("no") if x == 1 else int(x) for x in xs]),
    }
    keyed = hr.KeyedModelHandler(models, mode="all", labelled=True)
    rows = hr.range(2).run_inference(keyed, inputs="id", on_error="null").take(2)
    assert [row["prediction"] for row in rows] == [["old:even", "new:0"], ["old:odd", None]]
    with pytest.raises(PlanError, match="labelled=True puts all answers into one column"):
        hr.range(2).run_inference(keyed, inputs="id", output={"old": "o", "new": "n"})
    with pytest.raises(PlanError, match="labelled=True is for mode='all'"):
        hr.KeyedModelHandler(models, key="id", labelled=True)
