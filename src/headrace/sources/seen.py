"""Objects behind URLs that are read by several requests: whether all of these were of one object."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.sources.extents import Portion
from headrace.sources.storage import filesystem, is_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.sources.source import Split

ONE_REQUEST_BYTES = 5 * 2**20
"""Objects up to here are read whole by one request (the block size of fsspec), so that their rows are of one object."""
STAMPS = ("ETag", "etag", "version_id", "VersionId", "generation", "md5Hash", "mtime", "created", "LastModified")


class SeenObjects:
    """What stores said of objects when a run first read of them. Thread-safe.

    A store that says nothing, or cannot be asked, is believed.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None) -> None:
        # An instance of its own, which remembers no listing, and leaves alone what others remember.
        self._options = {**(storage_options or {}), "use_listings_cache": False}
        self._seen: dict[str, str] = {}
        self._lock = threading.Lock()

    def look(self, split: Split) -> None:
        """Remember what the objects of a split are, where that is not known yet."""
        for path, _ in _objects_of(split):
            if path not in self._seen:
                now = self._state(path)
                with self._lock:
                    self._seen.setdefault(path, now)

    def changed(self, split: Split) -> str | None:
        """Return an object of a split that is another than when it was first seen, or had another size than listed.

        It was cut for the size that it had in the listing.
        """
        for path, size in _objects_of(split):
            before = self._seen.get(path)
            if before and (not before.startswith(f"{size} ") or self._state(path) not in (before, "")):
                return path
        return None

    def _state(self, path: str) -> str:
        """Return an object's size and stamp, "" where the store does not say."""
        with suppress(Exception):  # clients have exceptions of their own; reading meets and explains what matters
            fs, inner = filesystem(path, self._options)
            info = fs.info(inner)
            stamp = next((str(info[name]) for name in STAMPS if info.get(name)), "")
            return f"{info['size']} {stamp}" if stamp else ""
        return ""


def _objects_of(split: Split) -> Iterator[tuple[str, int]]:
    """Yield the objects of a split that one request does not read, with their size as listed."""
    portion = split.detail
    if isinstance(portion, Portion):
        for extent, stamp in zip(portion.extents, portion.stamps, strict=False):
            size = int(stamp.split(" ", 1)[0])
            if is_url(extent.path) and size > ONE_REQUEST_BYTES:
                yield extent.path, size
