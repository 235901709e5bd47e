"""Steps of a pipeline file with several models: by name, or by a pattern with `{key}` in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.handlers import registry
from headrace.model.keyed import KeyedModelHandler
from headrace.spec.handlers import make_spec_handler
from headrace.spec.reference import load_function

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.handler import ModelHandler
    from headrace.spec.model import InferStep


def make_step_handler(step: InferStep) -> ModelHandler[Any]:
    """Make the handler of a step: of one model, or of several.

    Raises PlanError where a name or an option is wrong, or what is given does not go together.
    """
    given: dict[str, Any] = {
        name: value for name, value in (("mode", step.mode), ("labelled", step.labelled)) if value is not None
    }
    if step.models is not None:
        if step.handler is not None:
            raise PlanError("models: names several models, and handler: one; leave one of them out")
        models = {name: make_spec_handler(reference, step.args) for name, reference in step.models.items()}
        return KeyedModelHandler(models, key=key_of(step.key), **given)
    if step.handler is None:
        raise PlanError("say which model answers: handler: for one, models: for several")
    if step.key is None and not given:
        return make_spec_handler(step.handler, step.args)
    if given:
        raise PlanError(f"{next(iter(given))}: is for several models, which models: names")
    if not is_pattern(step.handler):
        raise PlanError(
            f"key: names the model of each row, and handler: is {step.handler!r}; pass models:, or a pattern such as"
            " sklearn:models/{key}.pkl"
        )
    return handler_of_pattern(step.handler, step.args, key=key_of(step.key) or "")


def is_pattern(reference: str) -> bool:
    """Say whether a reference of a registered kind names models by key.

    >>> is_pattern("sklearn:models/{key}.pkl"), is_pattern("sklearn:model.pkl"), is_pattern("steps:{key}")
    (True, False, False)
    """
    kind, _, pattern = reference.partition(":")
    return kind in registry.KINDS and "{key}" in pattern


def handler_of_pattern(reference: str, options: Mapping[str, Any], *, key: Any) -> KeyedModelHandler:
    """Make the handler of all models that a reference with `{key}` in it names."""
    kind, _, pattern = reference.partition(":")
    return KeyedModelHandler.from_pattern(pattern, make=OfKind(kind, options), key=key)


class OfKind:
    """Makes the handler of one kind for a path."""

    def __init__(self, kind: str, options: Mapping[str, Any]) -> None:
        self.kind, self.options = kind, dict(options)

    def __call__(self, path: str) -> ModelHandler[Any]:
        """Make it."""
        return registry.make_handler(f"{self.kind}:{path}", **self.options)


def key_of(reference: str | None) -> Any:
    """Return a column's name, or the function that "module:function" names."""
    return load_function(reference) if reference is not None and ":" in reference else reference
