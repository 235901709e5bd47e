"""Advice of the Python API in the words of the command line: `on_error=` is `--on-error` there."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ALIKE = (
    r"\b(memory_budget|model_copies|large_model|idle_timeout_secs|isolation|watch|key|mode|labelled|num_gpus|accelerator"
    r"|min_ram)=(?:'([\w-]+)'|True\b|([\d.]*\d)|(?=[,;) ]|$))"
)
"""Arguments whose flags are called like them."""
_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\bon_error='(\w+)'", r"--on-error \1"),
    (r"\bmemory_limit='(\w+)'", r"--memory-limit \1"),
    (r"\b(larger) (memory|disk)_limit\b=?", r"\1 --\2-limit"),
    (r"\bmemory_limit is\b", "--memory-limit is"),
    (r"\bdtypes=\{'(\w+)': '(\w+)'\}", r"--dtype \1=\2"),
    (r"\b(delimiter|encoding|type_conflicts)='([^']+)'", r"""--read '\1="\2"'"""),
    (r"\b(column_names)=\[(…)\]", r"--read '\1=[\2]'"),
    (r"\b(column_names)=\['([^']*)'\]", r"""--read '\1=["\2"]'"""),
    (r"\b(length|weight)_fn\b=?", r"--\1-column"),
    (r"\bmax_batch_weight\b", "--max-batch-weight"),
    (r"\binputs=\{'([^']+)': 'your column', …\}", r"--inputs '\1=YOUR COLUMN,…'"),
    (r"\binputs=(?!\w|\{)", "--inputs"),
    (r'\boutput="(\w+)"', r"--output-column \1"),
    (r"\boutput=(?!\w|\{)", "--output-column"),
    (r"\bmax_failed_(rows|ratio)=", r"--max-failed-\1 "),
    (r"\bcache=PredictionCache\(…\)", "--cache FOLDER"),
    (r"\bcache= and durability=(?!\w|')", "--cache and --durability"),
    (r"\bdurability='row'", "--durability row"),
    (r"\bmemory_budget: ", "--memory-budget: "),
    (_ALIKE, lambda found: _flag(found)),
    (r"\bpass version=(?!\w)", "pass --model-version"),
    (r"\btrust_remote_code=True", "--option trust_remote_code=true"),
)


def in_flags(message: str) -> str:
    """Put the options of `headrace infer` in place of the arguments that a message advises.

    >>> in_flags("pass on_error='dead_letter' to set such rows aside and go on")
    'pass --on-error dead_letter to set such rows aside and go on'
    >>> in_flags("pass dtypes={'zip': 'string'}, or another output=, or name the columns with inputs=")
    'pass --dtype zip=string, or another --output-column, or name the columns with --inputs'
    """
    for python, flag in _WORDS:
        message = re.sub(python, flag, message)
    return message


def _flag(found: re.Match[str]) -> str:
    """Write `name='value'`, `name=1`, `name=True` or `name=` as a flag of the same name."""
    name, value = "--" + found[1].replace("_", "-"), found[2] or found[3]
    return f"{name} {value}" if value else name


@contextmanager
def speaking_in_flags() -> Iterator[None]:
    """Rewrite the advice of an error that passes."""
    try:
        yield
    except HeadraceError as error:
        error.args = (in_flags(str(error)), *error.args[1:])
        raise
