from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.model.handler import ModelHandler, knows_columns
from headrace.model.predictor import Predictor
from headrace.plan.nodes import InferenceSpec

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Counting(ModelHandler[Any]):
    def check_model(self, model: Any, columns: Sequence[str]) -> None:
        raise PlanError("other columns")

    def load_model(self) -> None:
        return None

    def run_inference(self, batch: Any, model: Any) -> list[int]:  # type: ignore[override]
        return [0] * len(batch)


class _Renamed(_Counting):
    pass


class _TakesOthers(_Counting):
    def run_inference(self, batch: Any, model: Any) -> list[int]:  # type: ignore[override]
        return super().run_inference(batch[:, 1:], model)


class _ChecksThemToo(_TakesOthers):
    def check_model(self, model: Any, columns: Sequence[str]) -> None:
        raise PlanError("too few")


@pytest.mark.parametrize(
    ("handler", "known"), [(_Counting(), True), (_Renamed(), True), (_TakesOthers(), False), (_ChecksThemToo(), True)]
)
def test_what_a_class_knows_of_columns_does_not_go_for_answers_of_a_class_behind_it(
    handler: ModelHandler[Any], known: bool
) -> None:
    assert knows_columns(handler, "check_model") is known
    predictor = Predictor(InferenceSpec(handler=handler, inputs=("id", "a")), "score")
    if known:
        with pytest.raises(PlanError, match="other columns|too few"):
            predictor.open()
    else:
        predictor.open()
        assert predictor.predict(pa.record_batch({"id": [1], "a": [2]})).rows == 1
