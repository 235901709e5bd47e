"""Looking at files and folders that may be models, on local disks and behind URLs."""

from __future__ import annotations

import glob
import hashlib
import os
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.model.files import is_local, local_path, versions_of
from headrace.model.versions import Found, is_unfinished
from headrace.sources.storage import filesystem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def matches(pattern: str) -> list[Found]:
    """Return what matches a pattern now, without what is hidden or has the name of something unfinished.

    Raises:
        SourceError: the store cannot be reached.
        Exception: whatever else its file system raises.
    """
    if is_local(pattern):
        wanted = str(local_path(pattern))
        found = [_local(path) for path in glob.iglob(wanted, recursive=True) if not is_unfinished(path, wanted)]
        return [one for one in found if one is not None]
    fs, inner = filesystem(pattern, None)
    fs.invalidate_cache()  # what was listed a moment ago may have changed
    entries = fs.glob(inner, detail=True)
    seen = [_remote(fs, path, info) for path, info in entries.items() if not is_unfinished(path, inner)]
    return [one for one in seen if one is not None]


def look_at(path: str) -> Found | None:
    """Return what lies at a path or URL now; None: nothing."""
    if is_local(path):
        return _local(str(local_path(path)))
    fs, inner = filesystem(path, None)
    fs.invalidate_cache()
    with suppress(FileNotFoundError):
        if path.startswith("http"):
            return _remote(fs, inner, fs.info(inner))
        # Listed, as patterns are: what a store says of one file alone may have other stamps.
        beside = fs.ls(inner.rstrip("/").rpartition("/")[0], detail=True)
        for info in beside:
            if info["name"].strip("/") == inner.strip("/"):
                return _remote(fs, inner, info)
    return None


def _local(path: str) -> Found | None:
    with suppress(FileNotFoundError, NotADirectoryError):  # it has gone since it was listed
        if not os.path.isdir(path):
            info = os.stat(path)
            return _found(path, [(path, info.st_size, info.st_mtime_ns / 1e9, f"{info.st_mtime_ns} {info.st_ino}")])
        files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        infos = [(file, os.stat(file)) for file in files]
        return _found(path, [(f, i.st_size, i.st_mtime_ns / 1e9, f"{i.st_mtime_ns} {i.st_ino}") for f, i in infos])
    return None


def _remote(fs: Any, path: str, info: Mapping[str, Any]) -> Found | None:
    entries = fs.find(path, detail=True) if info["type"] == "directory" else {path: info}
    url = str(fs.unstrip_protocol(path))
    return _found(
        url, [(file, int(i.get("size") or 0), _changed(i), " ".join(versions_of(i))) for file, i in entries.items()]
    )


def _found(path: str, files: Sequence[tuple[str, int, float, str]]) -> Found | None:
    """Put what is known of a version's files (name, size, time, stamps) together; None where there are none."""
    if not files:
        return None
    state = hashlib.sha256("\n".join(f"{name}\0{size}\0{stamps}" for name, size, _, stamps in files).encode())
    return Found(
        path=path,
        modified=max(time for _, _, time, _ in files),
        nbytes=sum(size for _, size, _, _ in files),
        state=state.hexdigest(),
    )


def _changed(info: Mapping[str, Any]) -> float:
    """Return when a store says that a file was changed, in seconds since 1970; 0 where it does not."""
    for key in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
        value = info.get(key)
        if isinstance(value, str):
            with suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
    return 0.0
