"""`--set a.b=c`: single values of a pipeline given on the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.spec.document import Document, Path, parse, show_path

if TYPE_CHECKING:
    from collections.abc import Sequence


def override(document: Document, settings: Sequence[str]) -> None:
    r"""Put settings such as "steps[0].infer.max_batch_size=8" into a document; values are YAML.

    Mappings that are not there are made. What cannot be set is added to the document's problems.

    >>> document = parse("source: {type: csv}\nsteps: [{limit: 5}]")
    >>> override(document, ["source.path=in.csv", "steps[0].limit=10", "sink.path=out"])
    >>> document.data
    {'source': {'type': 'csv', 'path': 'in.csv'}, 'steps': [{'limit': 10}], 'sink': {'path': 'out'}}
    """
    for setting in settings:
        problem = _set(document, setting)
        if problem:
            document.problems.append(f"--set {setting}: {problem}")


def _set(document: Document, setting: str) -> str | None:
    name, equals, text = setting.partition("=")
    path = _parse_path(name.strip())
    if not equals or path is None:
        return "write it as KEY.KEY=VALUE, for instance steps[0].infer.max_batch_size=8"
    value = parse(text)
    if value.problems:
        return f"the value is no YAML ({value.problems[0]})"
    if document.data is None:
        document.data = {}
    here: Any = document.data
    for depth, part in enumerate(path):
        problem = _cannot_hold(here, part, show_path(path[:depth]) or "the pipeline")
        if problem:
            return problem
        if depth < len(path) - 1:
            here = _enter(here, part)
    here[path[-1]] = value.data
    document.places = {at: place for at, place in document.places.items() if at[: len(path)] != path}
    document.places[path] = f"--set {setting}"
    return None


def _parse_path(text: str) -> Path | None:
    """Read "steps[0].infer" or "steps.0.infer"."""
    parts = re.sub(r"\[(\d+)\]", r".\1", text).split(".")
    if not all(parts):
        return None
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _cannot_hold(here: Any, part: str | int, name: str) -> str | None:
    if isinstance(part, int):
        if not isinstance(here, list):
            return f"{name} is no list"
        return None if part < len(here) else f"{name} has {len(here)} items, the first of which is [0]"
    return None if isinstance(here, dict) else f"{name} holds no keys"


def _enter(here: Any, part: Any) -> Any:
    if isinstance(here, dict) and here.get(part) is None:
        here[part] = {}
    return here[part]
