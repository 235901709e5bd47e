"""Writes docs/reference/ from the docstrings, the commands' help and the JSON Schema: `python docs/make_reference.py`.

The words are the code's own, so that there is one place to change them; a test tells when the pages are out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import headrace
from headrace import errors, testing
from headrace.cli.main import commands
from headrace.dataset.iteration import Iteration
from headrace.handlers.catboost import CatBoostModelHandler
from headrace.handlers.function import FunctionModelHandler
from headrace.handlers.huggingface import HuggingFaceModelHandler, HuggingFacePipelineModelHandler
from headrace.handlers.jax import JaxModelHandler
from headrace.handlers.keras import KerasModelHandler
from headrace.handlers.keras_hub import KerasHubModelHandler
from headrace.handlers.lightgbm import LightGBMModelHandler
from headrace.handlers.onnx import OnnxModelHandler
from headrace.handlers.sentence_transformers import SentenceTransformerModelHandler
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.handlers.tensorflow import TensorFlowModelHandler
from headrace.handlers.timm import TimmModelHandler
from headrace.handlers.torch import TorchModelHandler
from headrace.handlers.xgboost import XGBoostModelHandler
from headrace.metrics import statistics
from headrace.metrics.report import Report
from headrace.model.handler import ModelHandler
from headrace.model.vector_index import VectorIndex
from headrace.runners.result import RunResult
from headrace.sinks.sink import PartWriter, Sink
from headrace.sources.source import Source, Split
from headrace.spec.schema import json_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FOLDER = Path(__file__).parent / "reference"
WIDTH = 100
NOTICE = "<!-- Made by docs/make_reference.py (`make docs`) from the code: change the docstrings, not this page. -->"
SECTION = re.compile(r"^(Args|Raises|Returns):$")

READING = [getattr(headrace, name) for name in headrace.__all__ if name.startswith(("read", "from_", "range"))]
STATISTICS = [
    statistics.RunStatistics,
    statistics.SourceStatistics,
    statistics.StageStatistics,
    statistics.StepStatistics,
    statistics.ModelStatistics,
    statistics.RecallStatistics,
    statistics.UpdateStatistics,
    statistics.ModelChange,
    statistics.SinkStatistics,
    statistics.SideInputStatistics,
]


def pages() -> dict[str, str]:
    """Return every page of the reference by its file name."""
    made = {
        "reading.md": _page("Reading", "What makes a `Dataset`.", READING),
        "dataset.md": _page(
            "Dataset",
            "Steps return a new dataset; nothing runs before it must.",
            [headrace.Dataset, Iteration, headrace.Retry, headrace.SideInput, VectorIndex, headrace.shared],
        ),
        "jobs.md": _page("Jobs", "Running, and what a run leaves.", [headrace.Job, headrace.run, RunResult, Report]),
        "statistics.md": _page("Statistics", "What a run did, as frozen values.", STATISTICS),
        "handlers.md": _page(
            "Handlers",
            "The contract of a model, and the handlers that are there. `headrace handlers` lists their short names.",
            [
                ModelHandler,
                headrace.PredictionResult,
                headrace.KeyedModelHandler,
                headrace.MemoryBudget,
                headrace.WatchFilePattern,
                headrace.ModelMetadata,
                headrace.PredictionCache,
                headrace.PadSequences,
                headrace.FitPictures,
                SklearnModelHandler,
                OnnxModelHandler,
                TorchModelHandler,
                HuggingFaceModelHandler,
                HuggingFacePipelineModelHandler,
                TimmModelHandler,
                SentenceTransformerModelHandler,
                XGBoostModelHandler,
                LightGBMModelHandler,
                CatBoostModelHandler,
                KerasModelHandler,
                KerasHubModelHandler,
                TensorFlowModelHandler,
                JaxModelHandler,
                FunctionModelHandler,
            ],
        ),
        "sources-and-sinks.md": _page(
            "Sources and sinks",
            "The contracts of what is read and written; see [how to write your own](../how-to/own-source-and-sink.md).",
            [Source, Split, Sink, PartWriter],
        ),
        "testing.md": _page("Testing", inspect.getdoc(testing) or "", [getattr(testing, n) for n in testing.__all__]),
        "errors.md": _errors(),
        "command-line.md": _command_line(),
        "pipeline-file.md": _pipeline_file(),
    }
    links = "\n".join(f"- [{text.splitlines()[0].removeprefix('# ')}]({name})" for name, text in made.items())
    return {"README.md": f"# Reference\n\n{NOTICE}\n\n{links}\n", **made}


# -- Python ----------------------------------------------------------------------------------------------------------


def _page(title: str, words: str, objects: list[Any]) -> str:
    return "\n".join([f"# {title}\n\n{NOTICE}\n\n{words}\n", *(_entry(obj) for obj in objects)])


def _entry(obj: Any) -> str:
    """Describe a class with its public members, or a function."""
    call = _code(_signature(obj)) if _is_called(obj) else ""
    parts = [f"## `{obj.__name__}`\n", call, _prose(inspect.getdoc(obj) or "")]
    if inspect.isclass(obj):
        fields = "".join(_field(name, kind, words) for name, kind, words in _fields(obj))
        parts += [fields, *(_member(name, member) for name, member in _members(obj))]
    return "\n".join(part for part in parts if part)


def _is_called(obj: Any) -> bool:
    """Say whether users write the call: not of contracts, values that runs fill in, or what other calls return."""
    if not inspect.isclass(obj):
        return True
    contract = getattr(obj, "_is_protocol", False) or inspect.isabstract(obj)
    return not contract and not is_dataclass(obj) and obj not in (headrace.Dataset, headrace.Job)


def _member(name: str, member: Any) -> str:
    if isinstance(member, property):
        assert member.fget is not None
        kind = inspect.signature(member.fget).return_annotation
        return f"### `{name}: {kind}`\n\n{_prose(inspect.getdoc(member) or '')}"
    return f"### `{name}`\n\n{_code(_signature(member))}\n{_prose(inspect.getdoc(member) or '')}"


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties that say something, each class's own before those it inherits."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        if not owner.__module__.startswith("headrace"):
            continue
        for name, member in vars(owner).items():
            if isinstance(member, (classmethod, staticmethod)):
                member = member.__func__
            if name.startswith("_") or name in seen or not (inspect.isfunction(member) or isinstance(member, property)):
                continue
            seen.add(name)
            if inspect.getdoc(member):
                yield name, member


def _fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """Yield name, type with default, and words of a dataclass's fields and a class's annotated attributes."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if statement.target.id.startswith("_"):
            continue
        words = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            words = " ".join(str(following.value.value).split())
        default = "" if statement.value is None else f" = {ast.unparse(statement.value)}"
        yield statement.target.id, ast.unparse(statement.annotation) + default, words


def _field(name: str, kind: str, words: str) -> str:
    return f"- `{name}: {kind}`" + (f": {words}" if words else "") + "\n"


def _signature(obj: Any) -> str:
    """Return the call as it is written, one parameter a line where it is long."""
    parameters = [p for p in inspect.signature(obj).parameters.values() if p.name != "self"]
    returns = "" if inspect.isclass(obj) else f" -> {inspect.signature(obj).return_annotation}"
    written = _parameters(parameters)
    line = f"{obj.__name__}({', '.join(written)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{obj.__name__}(", *(f"    {parameter}," for parameter in written), f"){returns}"])


def _parameters(parameters: list[inspect.Parameter]) -> list[str]:
    written: list[str] = []
    starred = False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            written.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        kind = "" if p.annotation is p.empty else f": {p.annotation}"
        default = "" if p.default is p.empty else f" = {p.default!r}" if kind else f"={p.default!r}"
        written.append(f"{star}{p.name}{kind}{default}")
    return written


def _prose(doc: str) -> str:
    """Turn a docstring into Markdown: sections into lists, examples into code."""
    out: list[str] = []
    lines = re.sub(r" *# doctest: .*", "", doc).splitlines()
    while lines:
        line = lines.pop(0)
        if SECTION.match(line):
            body = _taken(lines, lambda text: not text or text.startswith(" "))
            out += ["", f"**{line}**", "", *_items(textwrap.dedent("\n".join(body)))]
        elif line.startswith(">>>"):
            out += ["```py", line, *_taken(lines, bool), "```"]
        else:
            out.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip() + "\n"


def _taken(lines: list[str], wanted: Callable[[str], bool]) -> list[str]:
    taken = []
    while lines and wanted(lines[0]):
        taken.append(lines.pop(0))
    return taken


def _items(body: str) -> Iterator[str]:
    for item in re.split(r"\n(?=\S)", body.strip()):
        names, _, words = " ".join(item.split()).partition(": ")
        yield f"- `{names}`: {words}" if words else f"- {names}"
    yield ""


def _code(text: str) -> str:
    return f"```py\n{text}\n```\n"


def _errors() -> str:
    tree = (inspect.getdoc(errors) or "").partition("\n\n")
    classes = [c for c in vars(errors).values() if inspect.isclass(c) and c.__module__ == errors.__name__]
    entries = "".join(f"- `{c.__name__}`: {(inspect.getdoc(c) or '').partition(chr(10) * 2)[0]}\n" for c in classes)
    return f"# Errors\n\n{NOTICE}\n\n{tree[0]}\n\n```text\n{tree[2]}\n```\n\n{_unwrapped(entries)}"


def _unwrapped(text: str) -> str:
    return re.sub(r"\n(?!- |$)", " ", text)


# -- command line ----------------------------------------------------------------------------------------------------


def _command_line() -> str:
    settings = {**commands.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    whole = click.Context(commands, info_name="headrace", **settings)
    parts = [f"# Command line\n\n{NOTICE}\n", _help(commands, whole)]
    for name, command in commands.commands.items():
        inner = click.Context(command, info_name=name, parent=whole, terminal_width=WIDTH, max_content_width=WIDTH)
        parts.append(f"## `headrace {name}`\n\n{_help(command, inner)}")
    return "\n".join(parts)


def _help(command: click.Command, context: click.Context) -> str:
    return f"```text\n{command.get_help(context).strip()}\n```\n"


# -- pipeline files --------------------------------------------------------------------------------------------------


def _pipeline_file() -> str:
    schema = json_schema()
    parts = [
        f"# Pipeline file\n\n{NOTICE}\n",
        "The keys of `pipeline.yaml`, as `headrace schema` gives them to editors; see [pipelines in YAML]"
        "(../how-to/pipeline-yaml.md). A key without a default may be left out unless it is **required**.\n",
        f"## The file\n\n{schema['description']}\n\n{_table(schema)}",
    ]
    for name, definition in sorted(schema["$defs"].items()):
        parts.append(f"## {name}\n\n{definition['description']}\n\n{_table(definition)}")
    return "\n".join(parts)


def _table(definition: Mapping[str, Any]) -> str:
    rows = ["| key | value | default | |", "| --- | --- | --- | --- |"]
    for key, value in definition["properties"].items():
        default = "**required**" if key in definition.get("required", ()) else _default(value)
        rows.append(f"| `{key}` | {_kind(value)} | {default} | {value.get('description', '')} |")
    return "\n".join(rows) + "\n"


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    return (
        ""
        if default is None or isinstance(default, dict)
        else f"`{str(default).lower() if default is True else default}`"
    )


def _kind(value: Mapping[str, Any]) -> str:
    """Say in words what a key takes."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in value:
            return " or ".join(_kind(one) for one in value[several] if one.get("type") != "null")
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if value.get("type") == "array":
        return f"list of {_kind(value.get('items', {}))}"
    words = {"object": "mapping", "string": "text", "boolean": "`true` or `false`", "number": "number"}
    kind = words.get(value.get("type", ""), value.get("type", "anything"))
    return f"{kind} from {value['minimum']}" if "minimum" in value else kind


def main() -> None:
    """Write the pages, and remove those that are no more."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()


if __name__ == "__main__":
    main()
