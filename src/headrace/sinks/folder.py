"""A folder of parts: files are written out of sight, made durable, and renamed into place.

A local part goes: hidden file in staging → fsync → (journal) → rename → fsync of the folder. A part for a store behind
a URL is staged in a local folder and uploaded when it is published, since stores make an object visible whole or not
at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import ResumeError, SinkError
from headrace.sinks.disk import cannot_write

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReceipt:
    """Where a prepared part lies hidden, and what it will be called.

    >>> PartReceipt.parse(PartReceipt(name="part-00000.csv", hidden=".x", nbytes=3).text()).name
    'part-00000.csv'
    """

    name: str
    """File name within the output folder."""
    hidden: str
    """The unfinished file: relative to the output folder where that is local, else absolute."""
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
    return None if "://" in folder else folder


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


def publish(receipt: str, *, folder: str) -> None:
    """Make a sealed file visible; does nothing when it is visible already.

    Raises:
        ResumeError: neither the hidden nor the visible file is there.
        SinkError: the disk or the store refuses.
    """
    part = PartReceipt.parse(receipt)
    if part is None:
        raise SinkError(f"{folder}: the journal holds a part of another kind of output: {receipt}")
    root = local_path(folder)
    if root is None:
        _upload(part, folder)
        return
    # Normalised as text: the folder of dead letters, say, may be a link, whose ".." is somewhere else.
    hidden, final = os.path.normpath(os.path.join(root, part.hidden)), os.path.join(root, part.name)
    try:
        if os.path.exists(hidden):
            _move(hidden, final)
        elif not os.path.exists(final):
            raise ResumeError(
                f"{final} is missing although it was finished; put it back, or start afresh with"
                ' if_exists="overwrite" (--overwrite)'
            )
    except OSError as error:
        raise cannot_write(final, error) from error


def replace(receipt: str, *, folder: str, staging: str, rewrite: Callable[[str, str], None]) -> None:
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
        old = f"{new}.old"
        fs, path = filesystem(folder)
        fs.get_file(f"{path}/{part.name}", old)
        rewrite(old, new)
        fs.put_file(new, f"{path}/{part.name}")
        os.unlink(old)
        os.unlink(new)
    except OSError as error:
        raise cannot_write(f"{folder.rstrip('/')}/{part.name}", error) from error


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it.

    Raises:
        SinkError: the URL's protocol is unknown or its package is missing.
    """
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise SinkError(f"cannot write to {url}: {error}") from error
    return fs, path.rstrip("/")


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


def _upload(part: PartReceipt, folder: str) -> None:
    fs, path = filesystem(folder)
    try:
        if os.path.exists(part.hidden):
            fs.makedirs(path, exist_ok=True)
            fs.put_file(part.hidden, f"{path}/{part.name}")
            os.unlink(part.hidden)
    except OSError as error:
        raise cannot_write(f"{folder.rstrip('/')}/{part.name}", error) from error
