from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import PlanError
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.model.keyed import KeyedModelHandler
from headrace.spec.keyed import make_step_handler
from headrace.spec.model import InferStep


def step(**given: Any) -> InferStep:
    return InferStep.model_construct(**{"args": {}, **given})


def test_models_by_name_and_a_key() -> None:
    keyed = make_step_handler(
        InferStep(models={"good": "steps:Upper", "bad": "steps:Upper"}, key="text", args={"suffix": "!"})
    )
    assert isinstance(keyed, KeyedModelHandler)
    assert (list(keyed.models), keyed.key, keyed.mode) == (["good", "bad"], "text", "route")
    assert keyed.models["bad"].suffix == "!"  # type: ignore[attr-defined]
    by_function = make_step_handler(InferStep(models={"3": "steps:Upper"}, key="steps:length"))
    assert by_function.key({"text": "abc"}) == 3  # type: ignore[attr-defined]


def test_all_models_side_by_side() -> None:
    keyed = make_step_handler(InferStep(models={"a": "steps:Upper", "b": "steps:ready"}, mode="all", labelled=True))
    assert isinstance(keyed, KeyedModelHandler)
    assert (keyed.mode, keyed.key, keyed.labelled) == ("all", None, True)


def test_a_pattern_and_a_key() -> None:
    keyed = make_step_handler(
        InferStep(handler="sklearn:models/{key}.pkl", key="customer", args={"method": "predict_proba"})
    )
    assert isinstance(keyed, KeyedModelHandler)
    one = keyed.handler_of("acme")
    assert isinstance(one, SklearnModelHandler)
    assert (one.model_files(), one.method) == (("models/acme.pkl",), "predict_proba")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "say which model answers"),
        ({"handler": "steps:Upper", "models": {"a": "steps:Upper"}}, "leave one of them out"),
        ({"handler": "steps:Upper", "key": "text"}, r"pass models:, or a pattern such as sklearn:models/\{key\}.pkl"),
        ({"handler": "sklearn:a.pkl", "key": "text"}, "a pattern such as"),
        ({"handler": "steps:Upper", "mode": "all"}, "mode: is for several models"),
        ({"models": {"a": "steps:Upper"}}, "pass the column that names each row's model"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InferStep(**given)
    with pytest.raises(PlanError, match=message):
        make_step_handler(step(**{**dict.fromkeys(("handler", "models", "key", "mode", "labelled")), **given}))
