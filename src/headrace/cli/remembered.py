"""The command that made an output, kept beside it as plain data, so that `headrace retry` can give it again."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from headrace.errors import ResumeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dataset import Job

FILE = "job.json"
OWN_FLAGS = frozenset({"--overwrite", "--retry-failed", "-q", "--quiet", "--json", "--debug"})
"""What a retry says for itself."""
SECRET = re.compile(r"storage_options|secret|passw|token|credential|api.?key", re.IGNORECASE)


def remember(arguments: Sequence[str], jobs: Sequence[Job]) -> None:
    """Note the arguments of the command that wrote the local outputs of some jobs.

    Nothing is noted where an argument may be a secret, which no file should hold.
    """
    kept = [argument for argument in arguments if argument not in OWN_FLAGS]
    if any(SECRET.search(argument) for argument in kept):
        return
    for job in jobs:
        home = _home(job.node.sink.folder)
        if home is not None and os.path.isdir(home):
            note = {"arguments": kept, "folder": os.getcwd(), "output": os.path.dirname(home)}
            new = os.path.join(home, f".{FILE}.unfinished")
            with open(new, "w", encoding="utf-8") as file:
                json.dump(note, file, indent=2)
            os.replace(new, os.path.join(home, FILE))


def recall(output: str) -> list[str]:
    """Return the arguments of the command that wrote an output, and go to the folder in which it was given.

    Raises:
        ResumeError: it is not known, or has not come to its end, or the output or that folder has moved.
    """
    from headrace.engine.commit.status import read_status

    advice = "give the command that made it once more, with --retry-failed"
    home = _home(output)
    if home is not None and not os.path.isdir(home):
        raise ResumeError(f"{output}: there is nothing to retry, since no job has written here")
    note = _read(os.path.join(home, FILE)) if home is not None else None
    if home is not None and note is None and read_status(output).state == "unfinished":
        raise ResumeError(
            f"{output}: failed rows are run again when all others are done;"
            " run the command that made it to its end first"
        )
    if home is None or note is None:
        raise ResumeError(f"{output}: which command made it is not known; {advice} (in Python: job.retry())")
    if note["output"] != os.path.dirname(home):
        raise ResumeError(f"{output} was made as {note['output']} and has been moved; {advice}")
    try:
        os.chdir(note["folder"])
    except OSError as error:
        raise ResumeError(
            f"{output} was made from {note['folder']}, which cannot be entered ({error.strerror}); {advice}"
        ) from error
    return list(note["arguments"])


def _home(output: str | None) -> str | None:
    from headrace.engine.commit.home import HIDDEN
    from headrace.sinks.folder import local_path

    root = None if output is None else local_path(output)
    return None if root is None else os.path.join(os.path.abspath(root), HIDDEN)


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            note: dict[str, Any] = json.load(file)
    except (OSError, ValueError):  # none there, or not to be read: the command has to be given once more
        return None
    return note
