"""What is wrong with a pipeline, in the words of the file rather than of the schema checker."""

from __future__ import annotations

import re
import typing
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from headrace.errors import suggestion
from headrace.spec.document import Document, Path, show_path
from headrace.spec.model import PipelineSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MAX_SHOWN_CHARS = 60


def add_problems(document: Document, error: ValidationError) -> None:
    """Add every fault that the schema finds to the document's problems, each with its place."""
    for fault in error.errors(include_url=False):
        path = real_path(fault["loc"])
        text = (
            f"{show_path(path)}: {_message(fault, path, document.data)}"
            if path
            else _message(fault, path, document.data)
        )
        problem = f"{document.place(path)}: {text}"
        if problem not in document.problems:
            document.problems.append(problem)


def real_path(loc: Path) -> Path:
    """Drop what a union of models adds to the place of a fault: the model's tag or the type's name.

    >>> real_path(("source", "csv", "path")), real_path(("sinks", 0, "json", "path"))
    (('source', 'path'), ('sinks', 0, 'path'))
    """
    if made_aside(loc) != loc:
        return (*loc[:2], *real_path(loc[2:]))
    for tagged in (1 if loc[:1] in (("source",), ("sink",)) else 0, 2 if loc[:1] == ("sinks",) else 0):
        if tagged and len(loc) > tagged:
            return loc[:tagged] + loc[tagged + 1 :]
    if loc[:1] == ("steps",) and loc[2:3] == ("infer",) and loc[3:4] in (("inputs",), ("output",)):
        return loc[:4]
    return loc


def made_aside(path: Path) -> Path:
    """Return what is behind the name of a side input, which has a source and steps as the whole has.

    >>> made_aside(("side_inputs", "prices", "source", "path")), made_aside(("side_inputs", "prices", "build"))
    (('source', 'path'), ('side_inputs', 'prices', 'build'))
    """
    return path[2:] if path[:1] == ("side_inputs",) and path[2:3] in (("source",), ("steps",)) else path


def key_places() -> dict[str, list[str]]:
    """Map each key of the schema to the places where it may stand.

    >>> key_places()["max_batch_size"]
    ['steps[].infer']
    """
    places: dict[str, list[str]] = {}
    for place, model in _models(PipelineSpec, ""):
        for name in model.model_fields:
            known = places.setdefault(name, [])
            if place not in known:
                known.append(place)
    return places


def _models(model: type[BaseModel], place: str) -> Iterator[tuple[str, type[BaseModel]]]:
    yield place, model
    for name, field in model.model_fields.items():
        if place and name in ("source", "steps"):
            continue  # of a side input: they are the same as those of the whole
        for inner, is_list in _inner_models(field.annotation):
            yield from _models(inner, f"{place}.{name}".lstrip(".") + ("[]" if is_list else ""))


def _inner_models(annotation: Any, is_list: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, is_list
    for argument in typing.get_args(annotation):
        yield from _inner_models(argument, is_list or typing.get_origin(annotation) is list)


def _message(fault: ErrorDetails, path: Path, data: Any) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(path, data)
    if kind == "missing":
        return "is missing"
    if kind == "union_tag_not_found":
        return f"type is missing; it is one of {_listed(_tags(path))}"
    if kind == "union_tag_invalid":
        return "type " + _not_among(context["tag"], _tags(path))
    if kind == "value_error":
        return str(context["error"])
    if path[-1:] in (("inputs",), ("output",)):
        return f"must be {_SHAPES[str(path[-1])]}, not {show(fault['input'])}"
    if kind == "literal_error":
        return _not_among(
            fault["input"], [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        )
    return f"must be {_allowed(kind, context)}, not {show(fault['input'])}{_quoting(kind, fault['input'])}"


_SHAPES = {
    "inputs": "a column, a list of columns, or a mapping from the model's inputs to columns",
    "output": "a column, or a mapping from the answers' keys to columns",
}
_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "a text that is not empty",
    "string_too_long": "a single character",
    "too_short": "a list that is long enough",
    "too_long": "a shorter list",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
}


def _allowed(kind: str, context: Mapping[str, Any]) -> str:
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"{words} {context[bound]:g}"
    if kind == "too_short" and "min_length" in context:
        return f"a list of at least {context['min_length']}"
    if kind == "too_long" and "max_length" in context:
        return f"a list of at most {context['max_length']}"
    return _KINDS.get(kind, f"something else ({kind.replace('_', ' ')})")


def show(value: Any) -> str:
    """Write a value of the file with its kind.

    >>> show("fast"), show(0), show(True), show(None), show([1])
    ("the text 'fast'", '0', 'the truth value true', 'empty', 'the list [1]')
    """
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    text = repr(value) if len(repr(value)) <= MAX_SHOWN_CHARS else repr(value)[:MAX_SHOWN_CHARS] + "…"
    kinds: dict[type, str] = {str: "the text ", list: "the list ", dict: "the mapping "}
    return kinds.get(type(value), "") + text


def _quoting(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        return f"; put it in quotes if the text '{shown}' is meant"
    return ""


def _not_among(value: Any, known: list[str]) -> str:
    hint = suggestion(value, known) if isinstance(value, str) else ""
    return f"must be one of {_listed(known)}, not {show(value)}" + (f";{hint}" if hint else "")


def _listed(words: list[str]) -> str:
    return ", ".join(words)


def _unknown_key(path: Path, data: Any) -> str:
    key, places = str(path[-1]), key_places()
    allowed = _allowed_keys(path[:-1], data)
    if key in places:
        where = " or ".join(place or "the top of the file" for place in places[key][:3])
        return f"is not known here; {key} belongs under {where}"
    hint = suggestion(key, allowed) or _elsewhere(key, places)
    return f"is no key;{hint or ' allowed are ' + _listed(allowed)}"


def _elsewhere(key: str, places: Mapping[str, list[str]]) -> str:
    hint = suggestion(key, places)
    if not hint:
        return ""
    word = hint.split("'")[1]
    return f"{hint.rstrip('?')} under {places[word][0] or 'the top of the file'}?"


def _allowed_keys(path: Path, data: Any) -> list[str]:
    pattern = re.sub(r"\[\d+\]", "[]", show_path(_unnamed(made_aside(path))))
    here = data
    for part in path:
        here = here[part]
    models = [model for place, model in _models(PipelineSpec, "") if place == pattern]
    tag = here.get("type") if isinstance(here, dict) else None
    tagged = [model for model in models if tag in _tags_of(model)]
    return sorted({name for model in tagged or models for name in model.model_fields})


def _unnamed(path: Path) -> Path:
    """Leave out the name of a side input, as places do."""
    return (*path[:1], *path[2:]) if path[:1] == ("side_inputs",) else path


def _tags(path: Path) -> list[str]:
    path = made_aside(path)
    place = show_path(path[:1]) + ("[]" if path[:1] == ("sinks",) else "")
    return [tag for at, model in _models(PipelineSpec, "") if at == place for tag in _tags_of(model)]


def _tags_of(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type")
    return typing.get_args(field.annotation) if field else ()
