"""Kinds of values that several keys of pipeline.yaml have: functions, handlers, sizes, texts or lists of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from headrace.errors import HeadraceError
from headrace.metrics.quantities import nbytes_of
from headrace.model.gpu_budget import check_gpu_budget

if TYPE_CHECKING:
    from collections.abc import Callable

GivenT = TypeVar("GivenT")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _check_function(reference: str) -> str:
    from headrace.spec.reference import load_function

    return _told(load_function, reference)


def _check_handler(reference: str) -> str:
    from headrace.spec.handlers import check_handler_name

    return _told(check_handler_name, reference)


def _check_bytes(amount: Any) -> str | int:
    if not isinstance(amount, str | int):
        raise ValueError(f"must be bytes, or text such as 4GB, not {amount!r}")
    nbytes_of(amount)
    return amount


def _check_gpus(given: Any) -> Any:
    return _told(check_gpu_budget, given)


def _told(check: Callable[[Any], object], given: GivenT) -> GivenT:
    """Turn our own errors into those that pydantic collects."""
    try:
        check(given)
    except HeadraceError as error:
        raise ValueError(str(error)) from error
    return given


_TEXTS = {"type": "array", "items": {"type": "string"}}
Texts: TypeAlias = Annotated[
    list[str], BeforeValidator(_as_list), WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]})
]
"""One text or a list of them."""
Function: TypeAlias = Annotated[
    str, AfterValidator(_check_function), Field(description="module:function", pattern=r"^[^:]+:[^:]+$")
]
Functions: TypeAlias = Annotated[
    list[Function], BeforeValidator(_as_list), WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]})
]
Handler: TypeAlias = Annotated[str, AfterValidator(_check_handler)]
OnError: TypeAlias = Literal["fail", "dead_letter", "null"]
Positive: TypeAlias = Annotated[int, Field(ge=1)]
Bytes: TypeAlias = Annotated[
    str | int,
    PlainValidator(_check_bytes, json_schema_input_type=str | Positive),
    Field(description="bytes, or text such as 4GB"),
]
GpuBytes: TypeAlias = Annotated[
    str | int | dict[int | str, str | int],
    PlainValidator(_check_gpus, json_schema_input_type=str | Positive | dict[str, str | Positive]),
]
NotNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AboveZero: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
