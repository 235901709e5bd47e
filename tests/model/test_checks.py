from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.errors import MissingDependencyError, PlanError
from headrace.model.checks import check_spec
from headrace.model.handler import ModelHandler
from headrace.plan.nodes import BatchLimits, InferenceSpec


class Upper(ModelHandler[Any]):
    def load_model(self) -> Any:
        raise AssertionError("a check loads nothing")

    def run_inference(self, batch: Any, model: Any) -> Any:  # type: ignore[override]
        return batch


class Odd(Upper):
    input_format = "rows"


class Unready(Upper):
    def check(self) -> None:
        raise MissingDependencyError("torch", extra="torch", needed_by="Unready")


class Crashing(Upper):
    def check(self) -> None:
        raise KeyError("GPU")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"handler": Upper}, r"given the class Upper; pass an instance: Upper\(\)"),
        ({"handler": len}, "wrap a function in FunctionModelHandler"),
        ({"handler": 7}, "needs a ModelHandler, and was given 7"),
        ({"handler": Odd()}, "input_format is 'rows'; it may be one of auto, pandas, pyarrow"),
        ({"handler": Crashing()}, "Crashing.check.. says: 'GPU'"),
        ({"inputs": ()}, r"inputs=\(\) must be"),
        ({"inputs": ""}, "inputs='' must be"),
        ({"inputs": {"x": 3}}, "must be a column name, a sequence"),
        ({"output": ""}, "output='' must be"),
        ({"output": {}}, "output={} must be"),
        ({"output": "model_id"}, "would write column 'model_id' twice"),
        ({"output": {"a": "x", "b": "x"}}, "would write column 'x' twice"),
        ({"inference_args": {"top_k": 3}}, r"inference_args \(top_k\), but Upper.run_inference takes none"),
        ({"limits": BatchLimits(min_batch_size=0)}, "min_batch_size is 0; it is a whole number of rows, at least 1"),
        ({"limits": BatchLimits(max_batch_size=0)}, "max_batch_size is 0"),
        ({"limits": BatchLimits(max_batch_size=2.5)}, "max_batch_size is 2.5"),  # type: ignore[arg-type]
        (
            {"limits": BatchLimits(min_batch_size=9, max_batch_size=8)},
            "min_batch_size=9 is larger than max_batch_size=8",
        ),
        ({"limits": BatchLimits(max_batch_duration_secs=-1)}, "max_batch_duration_secs is -1"),
        ({"limits": BatchLimits(max_batch_duration_secs=float("nan"))}, "max_batch_duration_secs is nan"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=f"stage 'score'.*{words}"):
        check_spec(InferenceSpec(**{"handler": Upper(), **spec}), "score")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"inputs": "a"},
        {"inputs": ("a", "b")},
        {"inputs": {"x": "a", "y": ["b", "c"]}},
        {"output": {"label": "l"}},
        {"output": "model_id", "model_id_column": None},
        {"limits": BatchLimits(min_batch_size=4, max_batch_size=4, max_batch_duration_secs=0)},
    ],
)
def test_what_can_work_passes(spec: dict[str, Any]) -> None:
    check_spec(InferenceSpec(**{"handler": Upper(), **spec}))


def test_the_handlers_own_check_is_asked() -> None:
    with pytest.raises(MissingDependencyError, match=r"pip install 'headrace\[torch\]'"):
        check_spec(InferenceSpec(handler=Unready()))


class Fitted(Upper):
    def check_columns(self, columns: Sequence[str]) -> None:
        raise ValueError(f"told of {', '.join(columns)}")


@pytest.mark.parametrize(
    ("inputs", "columns", "told"),
    [
        (None, ["id", "a"], "id, a"),
        (("a", "b"), None, "a, b"),
        ({"x": "a", "y": ["b", "c"]}, ["id", "a", "b", "c"], "x, y"),
    ],
)
def test_handlers_are_told_the_names_that_they_will_see(inputs: Any, columns: list[str] | None, told: str) -> None:
    with pytest.raises(PlanError, match=rf"stage 'score': Fitted.check_columns\(\) says: told of {told}$"):
        check_spec(InferenceSpec(handler=Fitted(), inputs=inputs), "score", columns)


@pytest.mark.parametrize(("inputs", "columns"), [(None, None), ("a", ["id", "a"])])
def test_handlers_that_see_no_names_are_told_none(inputs: Any, columns: list[str] | None) -> None:
    check_spec(InferenceSpec(handler=Fitted(), inputs=inputs), "score", columns)
