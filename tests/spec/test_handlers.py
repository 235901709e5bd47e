from __future__ import annotations

import pytest

from headrace.errors import PlanError
from headrace.spec.handlers import make_spec_handler


def test_the_users_own_class_with_and_without_its_kind() -> None:
    assert make_spec_handler("steps:Upper", {"suffix": "!"}).suffix == "!"  # type: ignore[attr-defined]
    assert make_spec_handler("python:steps:Upper", {}).suffix == ""  # type: ignore[attr-defined]


def test_a_handler_made_already() -> None:
    assert make_spec_handler("steps:ready", {}).suffix == "!"  # type: ignore[attr-defined]


def test_a_function_over_a_batch() -> None:
    assert make_spec_handler("steps:double", {}).model_id


def test_kinds_with_a_path_take_options() -> None:
    assert make_spec_handler("sklearn:churn.pkl", {"method": "predict_proba"}).method == "predict_proba"  # type: ignore[attr-defined]
    assert make_spec_handler("hf-pipeline:ner:./names", {"device": "cpu"}).task == "ner"  # type: ignore[attr-defined]
    with pytest.raises(PlanError, match="has no option 'methd'; did you mean 'method'?"):
        make_spec_handler("sklearn:churn.pkl", {"methd": "predict"})
