"""The tree of exceptions; nothing else reaches a user on purpose.

HeadraceError
├── PlanError                 the pipeline is wrong; raised before any data is read
│   ├── UnknownColumnError    a step names a column that is not there
│   ├── UnsupportedByRunner   the plan needs what its runner cannot do
│   └── SpecError             pipeline.yaml is wrong
├── MissingDependencyError    an extra is not installed
├── SourceError               the input cannot be read
│   ├── NoInputError          a path or pattern matches nothing
│   └── SchemaError           files disagree about a column's type
├── ModelError                the model, not the data, is at fault
│   ├── ModelLoadError        the model cannot be loaded
│   ├── UnknownKeyError       a row's key names no model
│   ├── ModelTooLargeError    the model is larger than the whole memory budget
│   └── AnswerError           the number, shape or kind of answers does not fit the batch
├── SinkError                 the output cannot be written
│   ├── OutputExistsError     the output folder holds something that is not this job's
│   └── ResumeError           the output (or the state of an iteration) is another job's, or was damaged
├── RunError                  the run failed
│   ├── StageError            a row or batch failed under on_error="fail"
│   ├── TooManyFailuresError  (nearly) every row fails, so that going on is pointless
│   ├── WorkerCrashedError    a worker process died
│   ├── SideInputError        the data or the object of a side input cannot be made
│   └── BalanceError          the counts do not add up: a bug in Headrace, never the user's fault
└── RunInterrupted            Ctrl-C or SIGTERM; what was committed stays

RowError                      one row's failure, answered or raised by a user's function
RowTimeout                    one row (or batch) took longer than its timeout_secs
RowCrash                      one row (or batch) took its worker process down with it
RowTooLarge                   one row, alone in its batch, needs more memory than there is
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterable


class HeadraceError(Exception):
    """Any failure that Headrace expects; catch it to catch them all. Secrets inside URLs are masked.

    >>> print(HeadraceError("cannot read https://ann:pa55@host/a.csv"))
    cannot read https://***@host/a.csv
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(masked(arg) if isinstance(arg, str) else arg for arg in args))


class PlanError(HeadraceError):
    """The pipeline is wrong; the caller's to mend, and raised before any data is read."""


class UnknownColumnError(PlanError):
    """A step names a column that is not there.

    >>> str(UnknownColumnError("txt", ["id", "text"], step="map_2"))
    "step 'map_2' needs column 'txt', which is not there; did you mean 'text'? Existing columns: id, text"
    """

    def __init__(self, column: str, existing: Iterable[str], *, step: str) -> None:
        names = list(existing)
        hint = suggestion(column, names)
        listed = ", ".join(names) or "none"
        super().__init__(f"step {step!r} needs column {column!r}, which is not there;{hint} Existing columns: {listed}")


class UnsupportedByRunner(PlanError):  # noqa: N818 - reads as the fact it states
    """The plan needs something that its runner cannot do; the message says which runner can."""


class SpecError(PlanError):
    """A pipeline file is wrong; `problems` lists every fault found in it."""

    def __init__(self, file: str, problems: list[str]) -> None:
        self.file = file
        self.problems = problems
        super().__init__("\n".join([f"{file}: {problem}" for problem in problems]))


class MissingDependencyError(HeadraceError):
    """An optional package is not installed.

    >>> str(MissingDependencyError("onnxruntime", extra="onnx", needed_by="OnnxModelHandler"))
    "OnnxModelHandler needs the package onnxruntime; install it with: pip install 'headrace[onnx]'"
    """

    def __init__(self, package: str, *, extra: str, needed_by: str) -> None:
        super().__init__(f"{needed_by} needs the package {package}; install it with: pip install 'headrace[{extra}]'")


class SourceError(HeadraceError):
    """The input cannot be read; the message names the file."""

    may_pass: bool = False
    """Whether it may well go away by itself, like a connection that broke."""


class NoInputError(SourceError):
    """A path or pattern matches no file at all (an empty file is not an error)."""


class SchemaError(SourceError):
    """Two files, or a file and `dtypes=`, disagree about the type of a column."""


class ModelError(HeadraceError):
    """The model or its handler is at fault rather than the data."""


class ModelLoadError(ModelError):
    """The model cannot be loaded; the message names the file and the cause."""


class UnknownKeyError(ModelError):
    """A row's key names none of the models of a `KeyedModelHandler`; the message lists those that there are."""


class ModelTooLargeError(ModelError):
    """The model takes more memory than the budget of all models; the message says both sizes."""


class AnswerError(ModelError):
    """A handler's answers do not fit its batch in number, shape or kind."""

    count: int | None = None
    """How many answers there were, where their number is what does not fit."""


class SinkError(HeadraceError):
    """The output cannot be written."""


class OutputExistsError(SinkError):
    """The output folder holds something that does not belong to this job."""


class ResumeError(SinkError):
    """An output or an iteration was begun by another job (or was damaged); going on would mix two results."""


class RunError(HeadraceError):
    """The run failed; what had been committed before stays and is whole."""


class StageError(RunError):
    """A row or batch failed in a stage whose `on_error` is "fail"."""

    row: int | None = None
    """The row's number within the batch that the raiser was given, where one row is to blame."""


class TooManyFailuresError(RunError):
    """So many rows fail that going on is pointless."""


class WorkerCrashedError(RunError):
    """A worker process died; the message says how."""

    how: str = ""
    """The message without the name of the stage."""
    out_of_memory: bool = False
    """Whether the kernel killed it for want of memory."""
    timed_out: bool = False
    """Whether it was killed for a call that took longer than its `timeout_secs`."""
    call: Any = None
    """What it was doing (`headrace.model.calls.Call`); None where it was in no call of users' code."""


class SideInputError(RunError):
    """The rows of a side input, or what is built of them, cannot be made; no step that uses it has begun."""


class BalanceError(RunError):
    """The run's counts do not add up. This is a bug in Headrace: please report it."""


class RunInterrupted(HeadraceError, KeyboardInterrupt):  # noqa: N818 - an interruption is not an error of anybody's
    """The run was stopped by Ctrl-C or SIGTERM; the same command goes on where it was.

    It is a KeyboardInterrupt too, so that code which handles Ctrl-C handles it. Where nobody does, a script ends with
    its message in place of a traceback, and with the exit status of the signal (130 or 143 in a shell).
    """

    def __init__(self, message: str, *, signal_number: int = 2) -> None:
        self.signal_number = signal_number
        super().__init__(message)


class RowError(Exception):
    """One row's failure, answered by a handler in the row's place or raised by a row function.

    It is a value for users' code, not one of Headrace's own failures, hence outside the tree.

    >>> [RowError("picture too dark"), "cat"]
    [RowError('picture too dark'), 'cat']
    """


class RowTimeout(TimeoutError):  # noqa: N818 - reads as the fact it states
    """One row, or a batch that cannot be halved, took longer than its step's `timeout_secs`.

    It stands in the dead letters, and may be named in `Retry(on=…)`.
    """

    attempt: int = 1


class RowCrash(Exception):  # noqa: N818 - reads as the fact it states
    """One row, or a batch that cannot be halved, took its worker process down with it; as `RowTimeout` otherwise."""

    attempt: int = 1


class RowTooLarge(MemoryError):  # noqa: N818 - reads as the fact it states
    """One row, alone in its batch, needs more memory than the model's device or this machine has.

    It stands in the dead letters, and is not tried again.
    """


def first_line(error: BaseException) -> str:
    r"""Return the kind of an error and the first line of its text; what frameworks add below is for their developers.

    >>> first_line(OSError("no such layer: 'Gate'\n\nFull object config: ..."))
    "OSError: no such layer: 'Gate'"
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return " did you mean 'x'?" for the nearest known word, or "".

    >>> suggestion("bach_size", ["batch_size", "inputs"])
    " did you mean 'batch_size'?"
    >>> suggestion("zzz", ["batch_size"])
    ''
    """
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" did you mean {near[0]!r}?" if near else ""
