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
    from collections.abc import Callable, Iterable, Iterator, Mapping


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


def publish(receipt: str, *, folder: str, storage_options: Mapping[str, Any] | None = None) -> None:
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
        _upload(part, folder, storage_options)
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
    url = f"{folder.rstrip('/')}/{part.name}"
    fs, path = filesystem(folder, storage_options)
    with reaching(url):
        fs.get_file(f"{path}/{part.name}", old)
    rewrite(old, new)
    with reaching(url):
        fs.put_file(new, f"{path}/{part.name}")
    os.unlink(old)
    os.unlink(new)


def filesystem(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it.

    Raises:
        SinkError: the URL's protocol is unknown, its package is missing, or it refuses the options.
    """
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url, **dict(storage_options or {}))
    except (ImportError, ValueError, TypeError, OSError) as error:
        raise SinkError(f"cannot write to {url}: {error}; check the URL and storage_options=") from error
    return fs, path.rstrip("/")


def names_in(url: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """List the names in a remote folder as it is now; [] where there is none yet.

    Raises:
        SinkError: the store cannot be reached, or has no such bucket.
    """
    fs, path = filesystem(url, storage_options)
    with reaching(url):
        fs.invalidate_cache(path)
        try:
            return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(path, detail=False))
        except FileNotFoundError:
            if _has_buckets(fs):
                fs.info(path.split("/", 1)[0])
            return []


def remove(url: str, names: Iterable[str], storage_options: Mapping[str, Any] | None = None) -> None:
    """Remove files from a remote folder.

    Raises:
        SinkError: the store cannot be reached or refuses.
    """
    fs, path = filesystem(url, storage_options)
    with reaching(url):
        for name in names:
            fs.rm_file(f"{path}/{name}")


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn whatever a store's client raises into a SinkError that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise SinkError(f"cannot write {url}: there is no such bucket or folder; make it, or check the URL") from error
    except PermissionError as error:
        raise SinkError(
            f"cannot write {url}: {str(error).rstrip('.') or 'permission denied'}; check your credentials and what they"
            " allow"
        ) from error
    except Exception as error:  # clients have exceptions of their own for networks and credentials
        text = str(error).rstrip(".") or type(error).__name__
        raise SinkError(f"cannot write {url}: {text}; check the network, the endpoint and your credentials") from error


def _has_buckets(fs: Any) -> bool:
    """Say whether folders need not be made, and the first part of a path is a bucket, which is not ours to make."""
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    return not {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}.isdisjoint(protocols)


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


def _upload(part: PartReceipt, folder: str, storage_options: Mapping[str, Any] | None) -> None:
    fs, path = filesystem(folder, storage_options)
    if os.path.exists(part.hidden):
        with reaching(f"{folder.rstrip('/')}/{part.name}"):
            if not _has_buckets(fs):
                fs.makedirs(path, exist_ok=True)
            fs.put_file(part.hidden, f"{path}/{part.name}")
        os.unlink(part.hidden)
