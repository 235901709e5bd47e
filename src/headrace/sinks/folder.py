"""A folder of parts: files are written out of sight, made durable, and renamed into place.

A local part goes: hidden file in staging → fsync → (journal) → rename → fsync of the folder. A part for a store behind
a URL is written to a local folder and put into the store's staging (`stage`) → (journal) → copied to its name inside
the store, since stores make an object visible whole or not at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import ResumeError, SinkError
from headrace.sinks.disk import cannot_write
from headrace.sinks.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


STAGING = ".headrace/staging"
"""Where an output in a store keeps what is not visible yet."""
STAGED = "staged:"
"""Begins the hidden name of what lies there. Not a URL: those may hold secrets, and journals shall not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReceipt:
    """Where a prepared part lies hidden, and what it will be called.

    >>> PartReceipt.parse(PartReceipt(name="part-00000.csv", hidden=".x", nbytes=3).text()).name
    'part-00000.csv'
    """

    name: str
    """File name within the output folder."""
    hidden: str
    """The unfinished file: relative to the output folder if that is local, else absolute; or staged:NAME in a store."""
    nbytes: int

    def text(self) -> str:
        """Return the receipt as the short text that a journal keeps."""
        return json.dumps({"name": self.name, "hidden": self.hidden, "nbytes": self.nbytes})

    @classmethod
    def parse(cls, receipt: str) -> PartReceipt | None:
        """Read a receipt back; None when it is some other sink's."""
        try:
            value = json.loads(receipt)
            return cls(name=value["name"], hidden=value["hidden"], nbytes=value["nbytes"])
        except (ValueError, KeyError, TypeError):
            return None


def local_path(folder: str) -> str | None:
    """Return the path of a local folder, None for any other URL.

    >>> local_path("out/"), local_path("file:///data/out"), local_path("s3://bucket/out")
    ('out/', '/data/out', None)
    """
    if folder.startswith("file://"):
        return folder.removeprefix("file://")
    return None if "://" in folder else _where_the_run_began(folder)


@contextlib.contextmanager
def beginning_here() -> Iterator[None]:
    """Let relative paths of outputs stay what they are now, wherever users' code goes with os.chdir."""
    here = os.getcwd()
    _beginnings.append(here)
    try:
        yield
    finally:
        _beginnings.remove(here)


_beginnings: list[str] = []
"""The working directories in which the runs of this process began; the latest one counts."""


def _where_the_run_began(path: str) -> str:
    if not _beginnings or os.path.isabs(path):
        return path
    with contextlib.suppress(FileNotFoundError):  # where the working directory has been removed
        if os.getcwd() == _beginnings[-1]:
            return path
    return os.path.join(_beginnings[-1], path)


def part_name(number: int, extension: str) -> str:
    """Return the name of a part; names sort in the order of the input.

    >>> part_name(12, "parquet")
    'part-00012.parquet'
    """
    return f"part-{number:05d}.{extension}"


def hidden_path(staging: str, name: str) -> str:
    """Return where a part lies until it is published."""
    return os.path.join(staging, f".{name}.unfinished")


def seal(path: str, *, folder: str, name: str) -> PartReceipt:
    """Make a closed hidden file durable, and return its receipt.

    Raises:
        SinkError: the disk refuses.
    """
    try:
        sync(path)
        nbytes = os.path.getsize(path)
        sync(os.path.dirname(path) or ".")
    except OSError as error:
        raise cannot_write(os.path.join(folder, name), error) from error
    root = local_path(folder)
    hidden = os.path.abspath(path) if root is None else os.path.relpath(path, root)
    return PartReceipt(name=name, hidden=hidden, nbytes=nbytes)


def stage(receipt: str, *, folder: str, staging: Store, token: str) -> str:
    """Put a sealed file into a store's staging, under a name with `token` in it, and return the receipt that says so.

    A receipt of another kind of sink is returned as it is.
    """
    part = PartReceipt.parse(receipt)
    if part is None or part.hidden.startswith(STAGED):
        return receipt
    path = os.path.join(local_path(folder) or "", part.hidden)
    name = f"{token}-{part.name}"
    staging.put_file(path, name)
    os.unlink(path)
    return dataclasses.replace(part, hidden=f"{STAGED}{name}").text()


def publish(
    receipt: str, *, folder: str, storage_options: Mapping[str, Any] | None = None, staged_in: str | None = None
) -> None:
    """Make a sealed file visible; does nothing when it is visible already.

    `staged_in` is the URL of the staging, where that is not the folder's own.

    Raises:
        ResumeError: neither the hidden nor the visible file is there.
        SinkError: the disk or the store refuses.
    """
    part = PartReceipt.parse(receipt)
    if part is None:
        raise SinkError(f"{folder}: the journal holds a part of another kind of output: {receipt}")
    root = local_path(folder)
    if part.hidden.startswith(STAGED):
        _reveal(part, folder, storage_options, staged_in)
        return
    if root is None:
        if os.path.exists(part.hidden):
            Store(folder, storage_options).put_file(part.hidden, part.name)
            os.unlink(part.hidden)
        return
    # Normalised as text: the folder of dead letters, say, may be a link, whose ".." is somewhere else.
    hidden, final = os.path.normpath(os.path.join(root, part.hidden)), os.path.join(root, part.name)
    try:
        if os.path.exists(hidden):
            _move(hidden, final)
        elif not os.path.exists(final):
            raise _missing(final)
    except OSError as error:
        raise cannot_write(final, error) from error


def replace(
    receipt: str,
    *,
    folder: str,
    staging: str,
    rewrite: Callable[[str, str], None],
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Replace a published file by what `rewrite(old_path, new_path)` makes of it, whole or not at all.

    Raises:
        SinkError: the disk or the store refuses.
    """
    part = PartReceipt.parse(receipt)
    assert part is not None, receipt
    root = local_path(folder)
    new = hidden_path(staging, part.name)
    try:
        if root is not None:
            final = os.path.join(root, part.name)
            rewrite(final, new)
            sync(new)
            _move(new, final)
            return
    except OSError as error:
        raise cannot_write(f"{folder.rstrip('/')}/{part.name}", error) from error
    old = f"{new}.old"
    store = Store(folder, storage_options)
    store.get_file(part.name, old)
    rewrite(old, new)
    store.put_file(new, part.name)
    os.unlink(old)
    os.unlink(new)


def make_folder(path: str) -> None:
    """Make a folder, and those above it, that outlive a power cut."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(os.path.abspath(path))
    make_folder(above)
    os.makedirs(path, exist_ok=True)
    with contextlib.suppress(PermissionError):  # folders may be writable and yet not readable
        sync(above)


def sync(path: str) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync folders, and need not
            raise
    finally:
        os.close(descriptor)


def remove_quietly(path: str) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _move(hidden: str, final: str) -> None:
    folder = os.path.dirname(final) or "."
    try:
        os.replace(hidden, final)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        near = hidden_path(folder, os.path.basename(final))
        shutil.copyfile(hidden, near)
        sync(near)
        os.replace(near, final)
        os.unlink(hidden)
    sync(folder)


def _reveal(part: PartReceipt, folder: str, storage_options: Mapping[str, Any] | None, staged_in: str | None) -> None:
    """Give a staged object its name. Whoever comes late finds nothing staged, and the object where it belongs."""
    root, staged = local_path(folder), part.hidden.removeprefix(STAGED)
    own = f"{folder.rstrip('/')}/"
    staging = staged_in or own + STAGING
    if root is None and staging.startswith(own):
        store = Store(folder, storage_options)
        if not store.move(f"{staging.removeprefix(own)}/{staged}", part.name) and store.size(part.name) < 0:
            raise _missing(f"{store.url}/{part.name}")
        return
    # Another place than the staging, such as a folder of dead letters in another bucket.
    source = Store(staging, storage_options)
    data = source.get(staged)
    if root is None:
        target = Store(folder, storage_options)
        if data is not None:
            target.put(part.name, data)
        elif target.size(part.name) < 0:
            raise _missing(f"{target.url}/{part.name}")
    else:
        final = os.path.join(root, part.name)
        if data is not None:
            _write_locally(data, final)
        elif not os.path.exists(final):
            raise _missing(final)
    source.remove([staged])


def _write_locally(data: bytes, final: str) -> None:
    hidden = hidden_path(os.path.dirname(final), os.path.basename(final))
    try:
        os.makedirs(os.path.dirname(final) or ".", exist_ok=True)
        with open(hidden, "wb") as file:
            file.write(data)
        sync(hidden)
        _move(hidden, final)
    except OSError as error:
        raise cannot_write(final, error) from error


def _missing(final: str) -> ResumeError:
    return ResumeError(
        f"{final} is missing although it was finished; put it back, or start afresh with"
        ' if_exists="overwrite" (--overwrite)'
    )
