"""Handlers that a pipeline in YAML names: a registered kind with a path, or the user's own class."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, PlanError, suggestion
from headrace.spec.reference import load_reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.handler import ModelHandler


def check_handler_name(reference: str) -> None:
    """Raise PlanError, with the nearest right name, where a handler's kind or class is not there."""
    from headrace.handlers import registry

    kind, _, rest = reference.partition(":")
    if kind not in registry.KINDS or kind == "python":
        load_reference(rest if kind == "python" else reference)


def make_spec_handler(reference: str, options: Mapping[str, Any]) -> ModelHandler[Any]:
    """Make the handler that a text such as "sklearn:model.pkl" or "steps:Upper" names; loads no model.

    Raises PlanError where the name or an option is wrong, with the nearest right one.
    """
    from headrace.handlers import registry

    kind, _, rest = reference.partition(":")
    if kind in registry.KINDS and kind != "python":
        handler: ModelHandler[Any] = registry.make_handler(reference, **options)
        return handler
    return _own_handler(rest if kind == "python" else reference, options)


def _own_handler(reference: str, options: Mapping[str, Any]) -> ModelHandler[Any]:
    from headrace.model.handler import ModelHandler

    factory = load_reference(reference)
    if isinstance(factory, ModelHandler):
        if options:
            raise PlanError(f"{reference!r} is a handler made already, so it takes no args")
        return factory
    if not callable(factory):
        raise PlanError(f"{reference!r} is no ModelHandler class but a {type(factory).__name__}")
    _check_options(factory, reference, options)
    try:
        handler = factory(**options)
    except HeadraceError:
        raise
    except Exception as error:
        raise PlanError(f"{reference}({_shown(options)}) failed: {type(error).__name__}: {error}") from error
    if not isinstance(handler, ModelHandler):
        raise PlanError(
            f"{reference!r} makes no ModelHandler but a {type(handler).__name__}; derive it from headrace.ModelHandler"
        )
    return handler


def _check_options(factory: Any, reference: str, options: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some callables written in C have none
        return
    names = [p.name for p in signature.parameters.values() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for option in options:
        if option not in names and not open_ended:
            hint = suggestion(option, names) or f" it takes {', '.join(names) or 'none'}"
            raise PlanError(f"{reference} takes no option {option!r};{hint}")
    needed = [name for name in names if signature.parameters[name].default is inspect.Parameter.empty]
    missing = [name for name in needed if name not in options]
    if missing:
        raise PlanError(f"{reference} needs {', '.join(missing)}; give it under args")


def _shown(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
