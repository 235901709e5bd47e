"""How commands end: exit codes, and one message for each error."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOOD = 0
RUN_FAILED = 1
BAD_USAGE = 2
FAILED_ROWS = 3
INTERRUPTED = 130

MENDED_BY_THE_CALLER = (
    errors.PlanError,
    errors.MissingDependencyError,
    errors.NoInputError,
    errors.SchemaError,
    errors.OutputExistsError,
    errors.ResumeError,
)
"""Errors that are found before anything runs."""

PYTHON_BESIDE_FLAG = re.compile(r'\b\w+="\w+" \((--[^)]+)\)')
"""Advice for both kinds of caller, such as `if_exists="overwrite" (--overwrite)`."""

FunctionT = TypeVar("FunctionT", bound="Callable[..., Any]")


@dataclass(slots=True)
class Settings:
    """What is known of a command beside its own options."""

    debug: bool = False
    arguments: tuple[str, ...] = ()
    """As they were given."""


def debuggable(command: FunctionT) -> FunctionT:
    """Add --debug to a command."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.ensure_object(Settings).debug |= value

    option = click.option(
        "--debug", is_flag=True, expose_value=False, callback=remember, help="Show the traceback of an error."
    )
    return option(command)


@contextmanager
def checking() -> Iterator[None]:
    """Mark a part of a command that puts the pipeline together: whatever fails there is the caller's to mend."""
    try:
        yield
    except errors.HeadraceError as error:
        error.__dict__["found_by_check"] = True
        raise


def code_of(error: BaseException) -> int:
    """Return the exit code for an error.

    >>> code_of(errors.PlanError("no such column")), code_of(errors.StageError("row 3")), code_of(ValueError("ours"))
    (2, 1, 1)
    >>> code_of(errors.RunInterrupted("stopped", signal_number=15))
    143
    """
    if isinstance(error, errors.RunInterrupted):
        return 128 + error.signal_number
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, MENDED_BY_THE_CALLER) or "found_by_check" in getattr(error, "__dict__", {}):
        return BAD_USAGE
    return RUN_FAILED


def message_of(error: BaseException) -> str:
    """Write an error for people; what is no error of Headrace's own tree is a mistake in Headrace.

    >>> print(message_of(errors.NoInputError("data/*.csv matches no file")))
    Error: data/*.csv matches no file
    >>> print(message_of(errors.ResumeError('to start afresh pass if_exists="overwrite" (--overwrite)')))
    Error: to start afresh pass --overwrite
    """
    if isinstance(error, errors.RunInterrupted):
        return str(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted"
    if isinstance(error, errors.HeadraceError):
        return "Error: " + PYTHON_BESIDE_FLAG.sub(r"\1", str(error))
    return (
        f"Error: {type(error).__name__}: {error}\nThis is a mistake in Headrace; --debug shows where. Please report it."
    )
