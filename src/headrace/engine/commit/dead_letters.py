"""Dead letters: failed rows as files, committed together with the range they come from."""

from __future__ import annotations

import io
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.errors import SinkError
from headrace.sinks import folder
from headrace.sinks.disk import cannot_write
from headrace.sinks.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.records.failure import RowFailure

LettersFormat: TypeAlias = Literal["json", "parquet"]
SUFFIX: Mapping[LettersFormat, str] = {"json": "jsonl", "parquet": "parquet"}


class DeadLetters:
    """Writes `failures-00000.jsonl` (or `.parquet`), … into a folder (a path or a URL).

    A letter holds stage, error_type, message, traceback, attempt, file, position (row in the file, from 0), row (as it
    entered the stage; as JSON text in Parquet) and model_id.
    """

    def __init__(
        self,
        path: str,
        staging: str,
        *,
        format: LettersFormat = "json",
        storage_options: Mapping[str, Any] | None = None,
        staged_in: str | None = None,
    ) -> None:
        self.path = path
        self._staged_in = staged_in
        self._storage_options = storage_options
        self._staging = staging
        self._format = format

    def prepare(self, number: int, failures: Iterable[RowFailure]) -> str:
        """Write a file out of sight and return its receipt.

        Raises:
            SinkError: the disk refuses.
        """
        name = f"failures-{number:05d}.{SUFFIX[self._format]}"
        hidden = folder.hidden_path(self._staging, name)
        local = folder.local_path(self.path)
        try:
            if local is not None:
                folder.make_folder(local)
            if self._format == "parquet":
                _write_parquet(hidden, failures)
            else:
                with open(hidden, "w", encoding="utf-8") as file:
                    file.writelines(line(failure) for failure in failures)
        except OSError as error:
            folder.remove_quietly(hidden)
            raise cannot_write(os.path.join(self.path, name), error) from error
        return folder.seal(hidden, folder=self.path, name=name).text()

    def publish(self, receipt: str) -> None:
        """Make a file visible; idempotent."""
        folder.publish(receipt, folder=self.path, storage_options=self._storage_options, staged_in=self._staged_in)

    def excerpt(self, receipt: str, lines: Sequence[int], *, number: int) -> str:
        """Prepare a file that holds the given letters of another one, in the same format."""
        old = folder.PartReceipt.parse(receipt)
        assert old is not None, receipt
        suffix = old.name.rsplit(".", 1)[-1]
        name = f"failures-{number:05d}.{suffix}"
        hidden = folder.hidden_path(self._staging, name)
        with self._reading(old.name) as source:
            if suffix == "parquet":
                import pyarrow.parquet as pq

                pq.write_table(pq.read_table(source).take(list(lines)), hidden)
            else:
                letters = source.read().splitlines(keepends=True)
                with open(hidden, "wb") as file:
                    file.writelines(letters[line] for line in lines)
        return folder.seal(hidden, folder=self.path, name=name).text()

    def remove(self, receipt: str) -> None:
        """Remove a visible file; idempotent."""
        old = folder.PartReceipt.parse(receipt)
        assert old is not None, receipt
        local = folder.local_path(self.path)
        if local is not None:
            folder.remove_quietly(os.path.join(local, old.name))
        else:
            Store(self.path, self._storage_options).remove([old.name])

    @contextmanager
    def _reading(self, name: str) -> Iterator[Any]:
        local = folder.local_path(self.path)
        try:
            if local is not None:
                with open(os.path.join(local, name), "rb") as file:
                    yield file
                return
        except OSError as error:
            raise SinkError(
                f"the dead letters {os.path.join(self.path, name)} cannot be read ({error.strerror}); put the file back"
            ) from error
        data = Store(self.path, self._storage_options).get(name)
        if data is None:
            raise SinkError(f"the dead letters {self.path}/{name} are missing; put the object back")
        yield io.BytesIO(data)


def format_of(receipt: str) -> LettersFormat:
    """Return the format of a file of dead letters.

    >>> format_of('{"name": "failures-00000.parquet", "hidden": "", "nbytes": 1}')
    'parquet'
    """
    part = folder.PartReceipt.parse(receipt)
    return "parquet" if part is not None and part.name.endswith(".parquet") else "json"


def line(failure: RowFailure) -> str:
    """Return one failed row as a line of JSON.

    >>> from headrace.records.failure import RowFailure
    >>> line(RowFailure(stage="map_1", ordinal=3, row='{"id": 3}', error_type="ValueError", message="bad"))[:60]
    '{"stage": "map_1", "error_type": "ValueError", "message": "b'
    """
    value = _letter(failure)
    return json.dumps({**value, "row": _row(failure.row)}, ensure_ascii=True) + "\n"


def _letter(failure: RowFailure) -> dict[str, Any]:
    return {
        "stage": failure.stage,
        "error_type": failure.error_type,
        "message": failure.message,
        "traceback": failure.traceback,
        "attempt": failure.attempt,
        "file": failure.file,
        "position": failure.position,
        "row": failure.row,
        "model_id": failure.model_id,
    }


def _write_parquet(path: str, failures: Iterable[RowFailure]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = {"attempt": pa.int32(), "position": pa.int64()}
    letters = [_letter(failure) for failure in failures]
    columns = {}
    for name in letters[0]:
        values = [letter[name] for letter in letters]
        if name not in numbers:  # text of users' errors may hold what is no Unicode
            values = [None if v is None else v.encode("utf-8", "backslashreplace").decode() for v in values]
        columns[name] = pa.array(values, numbers.get(name, pa.string()))
    pq.write_table(pa.table(columns), path)


def _row(text: str) -> object:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return text
