"""Handlers that a pipeline file names: a registered kind with a path, or the user's own class or function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.handlers import registry
from headrace.model.handler import ModelHandler
from headrace.spec.reference import load_reference

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_handler_name(reference: str) -> None:
    """Raise PlanError, with the nearest right name, where the class or function that is named is not there."""
    own = _own_reference(reference)
    found = load_reference(own) if own is not None else None
    if isinstance(found, type) and not issubclass(found, ModelHandler):
        raise PlanError(f"class {own!r} is no handler; derive it from headrace.ModelHandler")


def make_spec_handler(reference: str, options: Mapping[str, Any]) -> ModelHandler[Any]:
    """Make the handler that a text such as "sklearn:model.pkl" or "steps:Upper" names; loads no model.

    >>> make_spec_handler("onnx:model.onnx", {}).model_id
    'model.onnx'

    Raises PlanError where the name or an option is wrong, with the nearest right one.
    """
    own = _own_reference(reference)
    if own is None:
        return registry.make_handler(reference, **options)
    if options and isinstance(load_reference(own), ModelHandler):
        raise PlanError(f"{own!r} is a handler made already, so it takes no args")
    return registry.make_handler(f"python:{own}", **options)


def _own_reference(reference: str) -> str | None:
    """Return the module:name of the user's own code, or None where a registered kind is named."""
    kind, _, rest = reference.partition(":")
    if kind == "python":
        return rest
    return None if kind in registry.KINDS else reference
