"""Objects under a URL: put whole, created only once, moved, listed; a busy store is asked again."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from headrace.errors import SinkError
from headrace.metrics.quantities import duration
from headrace.sinks.patience import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

AnswerT = TypeVar("AnswerT")

BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Protocols with buckets, which are not ours to make, and without folders, which need not be made."""
WHOLE = BUCKETS | {"memory"}
"""Protocols whose objects appear whole or not at all."""
COPIES_LATER = frozenset({"az", "abfs", "abfss"})
"""Protocols that may answer before a copy is made."""
BUSY_ERRNOS = frozenset({errno.EIO, errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT, getattr(errno, "EREMOTEIO", errno.EIO)})
BUSY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

FIRST_DELAY_SECS, MAX_DELAY_SECS = 0.25, 8.0
ATTEMPTS_BEFORE_ANY_ANSWER = 2
"""A wrong address or a missing network is told at once."""
_answered: set[tuple[str, str]] = set()
"""Protocols and buckets of which it is known that they work."""


class Store:
    """The objects under one URL, by keys relative to it. Thread-safe.

    Raises:
        SinkError: the URL's protocol is unknown or its package missing; or, from any method, the store cannot be
            reached, refuses, or stays busy.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = url.rstrip("/")
        self._fs, self._root = filesystem(url, storage_options)
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self._buckets, self._whole = bool(protocols & BUCKETS), bool(protocols & WHOLE)
        self._copies_later = bool(protocols & COPIES_LATER)
        self._place = (min(protocols), self._root.split("/", 1)[0])

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the bytes of every object directly under a folder, by name; {} where there is no such folder."""
        path = self._path(folder)
        with reaching(self.url):
            try:
                entries = self._ask(lambda: self._list(path))
            except FileNotFoundError:
                if self._buckets:
                    self._ask(lambda: self._fs.info(self._root.split("/", 1)[0]))  # a bucket must be there
                return {}
        files = {e["name"].rstrip("/").rsplit("/", 1)[-1]: int(e["size"] or 0) for e in entries if e["type"] == "file"}
        return {name: size for name, size in files.items() if not name.endswith(".unfinished")}

    def names(self) -> list[str]:
        """Return the names of objects and folders directly under the URL, sorted."""
        with reaching(self.url):
            try:
                found = self._ask(lambda: self._list(self._root))
            except FileNotFoundError:
                return sorted(self.sizes())  # looks whether the bucket is there
        return sorted(entry["name"].rstrip("/").rsplit("/", 1)[-1] for entry in found)

    def size(self, key: str) -> int:
        """Return the bytes of an object, -1 if it is missing."""
        with reaching(self.url):
            try:
                return int(self._ask(lambda: self._info(self._path(key)))["size"])
            except FileNotFoundError:
                return -1

    def get(self, key: str) -> bytes | None:
        """Return an object's bytes, None if it is missing."""
        with reaching(f"{self.url}/{key}"):
            try:
                return bytes(self._ask(lambda: self._fs.cat_file(self._path(key))))
            except FileNotFoundError:
                return None

    def get_file(self, key: str, path: str) -> None:
        """Fetch an object into a local file."""
        with reaching(f"{self.url}/{key}"):
            self._ask(lambda: self._fs.get_file(self._path(key), path))

    def put(self, key: str, data: bytes) -> None:
        """Write an object, whole, over an older one if there is one."""
        self._write(key, lambda path: self._fs.pipe_file(path, data))

    def put_file(self, path: str, key: str) -> None:
        """Write a local file's bytes as an object, whole."""
        self._write(key, lambda target: self._fs.put_file(path, target))

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one; return whether what is there now are these bytes.

        Bytes that nobody else can write tell a lost answer from a lost race. File servers cannot do this at one stroke.
        """
        path = self._path(key)

        def request() -> None:
            try:
                if self._whole:
                    self._fs.pipe_file(path, data, mode="create")
                elif self._fs.exists(path):
                    raise FileExistsError(path)
                else:
                    self._aside(path, lambda target: self._fs.pipe_file(target, data))
            except OSError as error:
                if is_taken(error):
                    raise FileExistsError(path) from error
                raise

        with reaching(f"{self.url}/{key}"):
            try:
                self._ask(request)
            except FileExistsError:
                return self.get(key) == data
        return True

    def move(self, key: str, to: str) -> bool:
        """Give an object another key; return False if there is no such object, which may have been moved before."""
        source, target = self._path(key), self._path(to)

        def request() -> None:
            if not self._whole:
                self._make_folder(target)
                self._fs.mv(source, target)
            elif self._copies_later:
                self._fs.pipe_file(target, self._fs.cat_file(source))
            else:
                self._fs.cp_file(source, target)

        with reaching(f"{self.url}/{to}"):
            try:
                self._ask(request)
            except FileNotFoundError:
                return False
        self.remove([key])
        return True

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are gone already are passed over."""
        for key in keys:
            with reaching(f"{self.url}/{key}"), contextlib.suppress(FileNotFoundError):
                self._ask(lambda key=key: self._fs.rm_file(self._path(key)))  # type: ignore[misc]

    def keys(self, folder: str) -> list[str]:
        """Return the keys of all objects under a folder, however deep."""
        path = self._path(folder)
        with reaching(f"{self.url}/{folder}"):
            self._fs.invalidate_cache()
            found = self._ask(lambda: self._fs.find(path))
        return [name[len(self._root) + 1 :] for name in found]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _list(self, path: str) -> list[dict[str, Any]]:
        self._fs.invalidate_cache()
        entries: list[dict[str, Any]] = self._fs.ls(path, detail=True)
        return [entry for entry in entries if entry["name"].rstrip("/") != path]

    def _info(self, path: str) -> dict[str, Any]:
        self._fs.invalidate_cache()
        info: dict[str, Any] = self._fs.info(path)
        return info

    def _write(self, key: str, write: Callable[[str], object]) -> None:
        path = self._path(key)
        with reaching(f"{self.url}/{key}"):
            self._ask(lambda: write(path) if self._whole else self._aside(path, write))

    def _aside(self, path: str, write: Callable[[str], object]) -> None:
        """On a file server, where half a file can be seen: write under another name first."""
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/.{name}.{uuid4().hex[:8]}.unfinished"
        self._make_folder(path)
        write(aside)
        self._fs.mv(aside, path)

    def _make_folder(self, path: str) -> None:
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _ask(self, request: Callable[[], AnswerT]) -> AnswerT:
        """Make a request, again and again where the store is busy or away, as long as patience lasts."""
        delay, attempt, since = FIRST_DELAY_SECS, 1, time.monotonic()
        while True:
            try:
                answer = request()
            except Exception as error:
                if not is_busy(error) or (self._place not in _answered and attempt >= ATTEMPTS_BEFORE_ANY_ANSWER):
                    raise
                waited = time.monotonic() - since
                left = patience().left_secs(waited=waited)
                if left <= 0:
                    _answered.discard(self._place)  # it has had its chance: what follows need not wait as long
                    raise _StayedAwayError(waited) from error
            else:
                _answered.add(self._place)
                return answer
            patience().pause(min(left, delay * random.uniform(0.5, 1.0)))
            delay, attempt = min(MAX_DELAY_SECS, 2 * delay), attempt + 1


class _StayedAwayError(Exception):
    """A store has been asked for as long as patience lasts; its cause is what the client said last."""

    def __init__(self, waited_secs: float) -> None:
        super().__init__(waited_secs)
        self.waited_secs = waited_secs


def filesystem(url: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it.

    Raises:
        SinkError: the URL's protocol is unknown, its package is missing, or it refuses the options.
    """
    import fsspec

    options = asking_once(url, storage_options or {})
    try:
        fs, path = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError, OSError) as error:
        raise SinkError(f"cannot write to {url}: {error}; check the URL and storage_options=") from error
    return fs, path.rstrip("/")


def asking_once(url: str, storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with which the client of S3 asks once, since its attempts would multiply ours.

    Who has set the number of attempts gets it.

    >>> asking_once("s3://bucket/out", {"anon": True})
    {'anon': True, 'config_kwargs': {'retries': {'total_max_attempts': 1}}}
    """
    options = dict(storage_options)
    set_already = "AWS_MAX_ATTEMPTS" in os.environ or "retries" in options.get("config_kwargs", {})
    if url.split("://", 1)[0] in ("s3", "s3a") and not set_already:
        options["config_kwargs"] = {**options.get("config_kwargs", {}), "retries": {"total_max_attempts": 1}}
    return options


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn whatever a store's client raises into a SinkError that says what to do."""
    try:
        yield
    except SinkError:
        raise
    except FileNotFoundError as error:
        raise SinkError(f"cannot write {url}: there is no such bucket or folder; make it, or check the URL") from error
    except PermissionError as error:
        raise SinkError(
            f"cannot write {url}: {str(error).rstrip('.') or 'permission denied'}; check your credentials and what they"
            " allow"
        ) from error
    except _StayedAwayError as away:
        raise SinkError(
            f"cannot write {url}: {_text(away.__cause__)}; the store was busy or out of reach for"
            f" {duration(away.waited_secs)} (max_outage_secs). What is finished stays: run the same command again when"
            " the store is back, and it goes on from there"
        ) from away.__cause__
    except Exception as error:  # clients have exceptions of their own for networks and credentials
        raise SinkError(
            f"cannot write {url}: {_text(error)}; check the network, the endpoint and your credentials"
        ) from error


def _text(error: BaseException | None) -> str:
    return str(error).rstrip(".") or type(error).__name__


def is_busy(error: BaseException) -> bool:
    """Say whether an error may pass: a busy or broken server, a slow or broken network.

    >>> is_busy(TimeoutError()), is_busy(OSError(errno.EBUSY, "Slow Down")), is_busy(PermissionError(13, "no"))
    (True, True, False)
    """
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in BUSY_ERRNOS
    if status_of(error) in BUSY_STATUS:
        return True
    # Clients have time-outs and broken connections of their own, under no common class.
    return any("Timeout" in kind.__name__ or "Connect" in kind.__name__ for kind in type(error).__mro__)


def is_taken(error: OSError) -> bool:
    """Say whether an object could not be created because there is one: not every store says it with the right error."""
    return isinstance(error, FileExistsError) or status_of(error.__cause__) == 412


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status that a client's exception carries, whatever it calls it."""
    response = getattr(error, "response", None)
    found: Any = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    for name in ("status", "status_code", "code"):
        found = getattr(error, name, None) if found is None else found
    return int(found) if isinstance(found, int) or (isinstance(found, str) and found.isdecimal()) else None
