"""Which format input files have: told by their names, never guessed from their content."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SUFFIXES = {
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
    "parquet": ("parquet", "pq"),
    "text": ("txt", "text", "log", "md"),
    "images": ("jpg", "jpeg", "png", "gif", "bmp", "tif", "tiff", "webp"),
}
COMPRESSIONS = ("gz", "zst", "bz2")
FORMATS = (*SUFFIXES, "binary_files")
MAX_LOOKED_AT = 1_000


def format_of(inputs: Sequence[str]) -> str:
    """Return the format of the inputs, by the suffix of each or of the files that a folder or pattern holds.

    >>> format_of(["a.csv", "b/*.csv.gz"])
    'csv'

    Raises PlanError where names tell nothing, or different things.
    """
    found = {name: text for text in inputs if (name := _format_of_input(text))}
    if len(found) == 1:
        return next(iter(found))
    if not found:
        for text in inputs:
            if kinds := _kinds_in(text):
                raise PlanError(
                    f"{text} holds files of several formats ({', '.join(sorted(kinds))}); pass --input-format to take "
                    "those of one"
                )
        raise PlanError(
            f"cannot tell the format of {', '.join(inputs)} by name; pass --input-format, one of {', '.join(FORMATS)}"
        )
    told = " but ".join(f"{text} looks like {name}" for name, text in found.items())
    raise PlanError(f"{told}; give inputs of one format, or pass --input-format")


def is_tab_separated(inputs: Iterable[str]) -> bool:
    """Say whether all inputs are named as tab-separated files.

    >>> is_tab_separated(["a.tsv.gz"]), is_tab_separated(["a.tsv", "b.csv"])
    (True, False)
    """
    return all(_suffix(text) == "tsv" for text in inputs)


def _format_of_input(text: str) -> str | None:
    by_name = _by_suffix(text)
    if by_name or "://" in text:
        return by_name
    found = _kinds_in(text)
    return found.pop() if len(found) == 1 else None


def _kinds_in(text: str) -> set[str]:
    return set() if "://" in text else {name for file in _files(text) if (name := _by_suffix(file))}


def _by_suffix(text: str) -> str | None:
    suffix = _suffix(text)
    return next((name for name, suffixes in SUFFIXES.items() if suffix in suffixes), None)


def _suffix(text: str) -> str:
    parts = os.path.basename(text).lower().split(".")
    if len(parts) > 2 and parts[-1] in COMPRESSIONS:
        parts.pop()
    return parts[-1] if len(parts) > 1 else ""


def _files(text: str) -> Iterator[str]:
    """List some of the files of a folder or pattern."""
    matches = glob.iglob(text, recursive=True)
    found = (file for match in matches for file in (_walk(match) if os.path.isdir(match) else (match,)))
    for _, file in zip(range(MAX_LOOKED_AT), found, strict=False):
        yield file


def _walk(folder: str) -> Iterator[str]:
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (name for name in files if not name.startswith((".", "_")))
