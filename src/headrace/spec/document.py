"""A YAML text as plain data, each value with its place: YAML 1.2, no tags, no key twice."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: keys of mappings and positions in lists, from the top."""

MAX_VALUES = 100_000
"""Aliases can make a small text into an enormous value; pipelines are nowhere near this."""


@dataclass(slots=True)
class Document:
    """What a YAML text says: `data`, where each value stands, and what is wrong with the text."""

    data: Any = None
    places: dict[Path, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def place(self, path: Path) -> str:
        r"""Return the place of a value, or of the nearest one around it.

        >>> parse("a:\n  b: 1").place(("a", "b", "c"))
        'line 2, column 3'
        """
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, "line 1, column 1")

    def complain(self, path: Path, message: str) -> None:
        """Add a problem with the value at `path`."""
        self.problems.append(f"{self.place(path)}: {message}")


def parse(text: str) -> Document:
    r"""Read a YAML text. What is wrong with it is in `problems`, all of it as far as it can be read.

    Only true and false are truth values: no, on, yes are texts, as are dates.

    >>> parse("columns: [id, no, on]").data
    {'columns': ['id', 'no', 'on']}
    >>> parse("a: 1\na: 2").problems
    ["line 2, column 1: key 'a' is given twice (first at line 1, column 1); keep one of them"]
    """
    document = Document()
    try:
        node = yaml.compose(text, Loader=_Yaml12Loader)
    except yaml.YAMLError as error:
        document.problems.append(_syntax_problem(error, text))
    except RecursionError:
        document.problems.append("this is no pipeline: lists or mappings stand in one another hundreds deep")
    else:
        if node is not None:
            document.data = _Builder(document).build(node, ())
    return document


def show_path(path: Path) -> str:
    """Write a path as people write it.

    >>> show_path(("steps", 0, "infer", "inputs"))
    'steps[0].infer.inputs'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class _Yaml12Loader(yaml.SafeLoader):
    """Tells texts from numbers and truth values by the core schema of YAML 1.2 rather than by that of 1.1."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the loader's own registry, filled below


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
):
    _Yaml12Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


class _Builder:
    """Turns nodes into data, and writes down places and problems on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.inside: list[yaml.Node] = []
        self.built = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.document.places.setdefault(path, _place(node.start_mark))
        self.built += 1
        if node in self.inside:
            return self._refuse(path, "an alias cannot stand inside what it stands for")
        if self.built > MAX_VALUES:
            return self._refuse(path, "the file is too large for a pipeline") if self.built == MAX_VALUES + 1 else None
        if node.tag not in _BUILDERS:
            return self._refuse(path, f"the tag {node.tag!r} is not allowed; a pipeline is plain data")
        self.inside.append(node)
        try:
            return _BUILDERS[node.tag](self, node, path)
        except ValueError:
            return self._refuse(path, f"{node.value!r} is no {node.tag.rpartition(':')[2]}")
        finally:
            self.inside.pop()

    def _refuse(self, path: Path, message: str) -> None:
        self.document.complain(path, message)

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.tag.endswith(":str"):
                where = _place(key_node.start_mark)
                self.document.problems.append(f"{where}: a key must be a text; put it in quotes if one is meant")
                continue
            at = (*path, key)
            if key in data:
                where, first = _place(key_node.start_mark), self.document.place(at)
                self.document.problems.append(
                    f"{where}: key {show_path(at)!r} is given twice (first at {first}); keep one of them"
                )
                continue
            self.document.places[at] = _place(key_node.start_mark)
            data[key] = self.build(value_node, at)
        return data

    def sequence(self, node: yaml.SequenceNode, path: Path) -> list[Any]:
        return [self.build(item, (*path, position)) for position, item in enumerate(node.value)]


_BUILDERS: dict[str, Any] = {
    "tag:yaml.org,2002:map": _Builder.mapping,
    "tag:yaml.org,2002:seq": _Builder.sequence,
    "tag:yaml.org,2002:str": lambda _, node, __: node.value,
    "tag:yaml.org,2002:null": lambda *_: None,
    "tag:yaml.org,2002:bool": lambda _, node, __: node.value.lower() == "true",
    "tag:yaml.org,2002:int": lambda _, node, __: _whole_number(node.value),
    "tag:yaml.org,2002:float": lambda _, node, __: float(
        node.value.replace(".inf", "inf").replace(".nan", "nan").lower()
    ),
}


def _whole_number(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _syntax_problem(error: yaml.YAMLError, text: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position].split("\n")
        place = f"line {len(before)}, column {len(before[-1]) + 1}"
        return f"{place}: this is no YAML: the character U+{ord(text[error.position]):04X} is not allowed in it"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return f"this is no YAML: {error}"
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1] and not line[: mark.column + 1].strip():
        return f"{_place(mark)}: a tab indents this line; YAML allows spaces only"
    parts = [part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part]
    return f"{_place(mark)}: this is no YAML: {', '.join(parts)}"
