"""Exceptions on their way from a worker to its parent."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, RunError
from headrace.records.failure import told


class RemoteTraceback(Exception):  # noqa: N818 - the cause of an error, for its text alone
    """Where an error happened in the worker; the cause of the error that is raised in the parent."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteError:
    """An exception as it travels."""

    type_: type[HeadraceError] | None
    """None for an exception that is none of Headrace's, hence a bug."""
    message: str
    state: dict[str, Any]
    traceback: str


def pack_error(error: BaseException) -> RemoteError:
    """Make an exception ready to travel; what of its attributes cannot be pickled is left behind."""
    ours = isinstance(error, HeadraceError) and _travels(type(error))
    return RemoteError(
        type_=type(error) if ours else None,  # type: ignore[arg-type]
        message=str(error) if isinstance(error, HeadraceError) else told(error),
        state={k: v for k, v in vars(error).items() if ours and k != "__notes__" and _travels(v)},
        traceback="".join(traceback.format_exception(error)),
    )


def unpack_error(remote: RemoteError, *, stage: str) -> HeadraceError:
    """Return the exception to raise in the parent: a Headrace error as itself, anything else as a RunError.

    >>> unpack_error(pack_error(RunError("stage 'map_1': row 7 failed")), stage="map_1")
    RunError("stage 'map_1': row 7 failed")
    """
    error: HeadraceError
    if remote.type_ is not None:
        # Not through __init__: subclasses build their message from arguments that are gone.
        error = remote.type_.__new__(remote.type_)
        error.args = (remote.message,)
        error.__dict__.update(remote.state)
    else:
        error = RunError(
            f"stage {stage!r}: its worker process failed in a way that Headrace did not expect: {remote.message}. "
            f"This is probably a bug in Headrace; please report it with this traceback:\n{remote.traceback}"
        )
    error.__cause__ = RemoteTraceback(remote.traceback)
    return error


def _travels(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # objects may raise anything here
        return False
    return True
