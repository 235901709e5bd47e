"""What `headrace infer` reads: the reader that the files' names tell, with options as pipeline files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.formats import format_of, is_tab_separated
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dataset import Dataset


def read_inputs(
    paths: Sequence[str], *, input_format: str | None, dtypes: Mapping[str, str], options: Mapping[str, Any]
) -> Dataset:
    """Make the dataset of the files; `options` are those of the reader, by name.

    Raises PlanError where an option is unknown or has a wrong value, naming all that have.
    """
    import headrace as hr

    kind = input_format or format_of(paths)
    given = dict(options)
    if dtypes:
        if kind not in ("csv", "json"):
            raise click.UsageError(f"--dtype is for csv and json; {kind} has types of its own")
        given["dtypes"] = {**given.get("dtypes", {}), **dtypes}
    if options:
        given = checked_options(kind, given)
    if kind == "csv" and is_tab_separated(paths):
        given.setdefault("delimiter", "\t")
    dataset: Dataset = getattr(hr, f"read_{kind}")(list(paths), **given)
    return dataset


def checked_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as `read_<kind>` takes them, checked as a pipeline file's are.

    >>> checked_options("images", {"mode": "RGB", "size": [8, 8]})
    {'mode': 'RGB', 'size': (8, 8)}
    >>> checked_options("csv", {"delimitr": ";"})
    Traceback (most recent call last):
    headrace.errors.PlanError: --read delimitr: is no key; did you mean 'delimiter'?
    """
    from pydantic import ValidationError

    from headrace.spec.document import Document
    from headrace.spec.model import PipelineSpec
    from headrace.spec.problems import add_problems

    source = {**options, "type": kind, "path": ["-"]}
    document = Document({"source": source, "steps": [], "sink": {"type": "parquet", "path": "-"}})
    document.places = {("source", name): "--read" for name in options}
    try:
        spec = PipelineSpec.model_validate(document.data)
    except ValidationError as error:
        add_problems(document, error)
        raise PlanError("\n".join(p.replace("--read: source.", "--read ", 1) for p in document.problems)) from None
    found: dict[str, Any] = spec.source.options("type", "path")
    if found.get("size") is not None:
        found["size"] = tuple(found["size"])
    return found
