from __future__ import annotations

import pytest

from headrace import errors
from headrace.cli.outcome import checking, code_of, message_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PlanError("x"), 2),
        (errors.SpecError("f.yaml", ["x"]), 2),
        (errors.NoInputError("x"), 2),
        (errors.SchemaError("x"), 2),
        (errors.OutputExistsError("x"), 2),
        (errors.ResumeError("x"), 2),
        (errors.MissingDependencyError("p", extra="e", needed_by="h"), 2),
        (errors.ModelLoadError("x"), 1),
        (errors.StageError("x"), 1),
        (errors.SinkError("x"), 1),
        (errors.RunInterrupted("x"), 130),
        (errors.RunInterrupted("x", signal_number=15), 143),
        (KeyboardInterrupt(), 130),
        (TypeError("x"), 1),
    ],
)
def test_codes(error: BaseException, code: int) -> None:
    assert code_of(error) == code


def test_a_model_that_fails_its_check_is_the_callers_to_mend() -> None:
    with pytest.raises(errors.ModelLoadError) as caught, checking():
        raise errors.ModelLoadError("no such file")
    assert code_of(caught.value) == 2


def test_our_own_mistakes_say_so() -> None:
    assert "a mistake in Headrace" in message_of(TypeError("x"))
    assert message_of(errors.PlanError("no column")) == "Error: no column"
