from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from headrace.spec.fields import Bytes, Texts


@pytest.mark.parametrize("amount", ["4GB", "1.5 GiB", 1])
def test_sizes_stay_as_they_were_written(amount: str | int) -> None:
    assert TypeAdapter(Bytes).validate_python(amount) == amount


@pytest.mark.parametrize("amount", [0, -1, True, 1.5, None, [], "", "many"])
def test_what_is_no_size_is_one_fault(amount: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Bytes).validate_python(amount)
    assert caught.value.error_count() == 1


def test_one_text_is_a_list_of_one() -> None:
    assert TypeAdapter(Texts).validate_python("a") == ["a"] == TypeAdapter(Texts).validate_python(["a"])
