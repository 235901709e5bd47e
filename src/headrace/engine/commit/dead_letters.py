"""Dead letters: failed rows as JSON Lines files, committed together with the range they come from."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from headrace.sinks import folder
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.records.failure import RowFailure


class DeadLetters:
    """Writes `failures-00000.jsonl`, … into a folder (a path or a URL).

    A line holds stage, error_type, message, traceback, attempt, file, position (row in the file, from 0), row (as it
    entered the stage) and model_id.
    """

    def __init__(self, path: str, staging: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self._storage_options = storage_options
        self._staging = staging

    def prepare(self, number: int, failures: Iterable[RowFailure]) -> str:
        """Write a file out of sight and return its receipt.

        Raises:
            SinkError: the disk refuses.
        """
        name = f"failures-{number:05d}.jsonl"
        hidden = folder.hidden_path(self._staging, name)
        local = folder.local_path(self.path)
        try:
            if local is not None:
                os.makedirs(local, exist_ok=True)
            with open(hidden, "w", encoding="utf-8") as file:
                file.writelines(line(failure) for failure in failures)
        except OSError as error:
            folder.remove_quietly(hidden)
            raise cannot_write(os.path.join(self.path, name), error) from error
        return folder.seal(hidden, folder=self.path, name=name).text()

    def publish(self, receipt: str) -> None:
        """Make a file visible; idempotent."""
        folder.publish(receipt, folder=self.path, storage_options=self._storage_options)


def line(failure: RowFailure) -> str:
    """Return one failed row as a line of JSON.

    >>> from headrace.records.failure import RowFailure
    >>> line(RowFailure(stage="map_1", ordinal=3, row='{"id": 3}', error_type="ValueError", message="bad"))[:60]
    '{"stage": "map_1", "error_type": "ValueError", "message": "b'
    """
    value = {
        "stage": failure.stage,
        "error_type": failure.error_type,
        "message": failure.message,
        "traceback": failure.traceback,
        "attempt": failure.attempt,
        "file": failure.file,
        "position": failure.position,
        "row": _row(failure.row),
        "model_id": failure.model_id,
    }
    return json.dumps(value, ensure_ascii=True) + "\n"


def _row(text: str) -> object:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return text
