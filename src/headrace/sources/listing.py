"""Paths, globs, folders and URLs to a list of files, in an order that never changes."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import NoInputError, PlanError, SourceError, suggestion
from headrace.masking import masked
from headrace.sources.storage import File, filesystem, is_url, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_SHOWN_PATHS = 2


@dataclass(frozen=True, kw_only=True)
class FileSet:
    """The files that paths stand for; listed once, on demand.

    Files named one by one are always taken, in the order given. Folders are searched to the bottom, sorted by path,
    without names that begin with "." or "_"; of what they hold, and of what a glob without a suffix of its own
    ("data/*") matches, only names that fit `patterns` are taken, the others are counted as passed over.
    """

    paths: tuple[str, ...] = field(metadata={"compared": "by content"})
    patterns: tuple[str, ...] = ()
    """Globs on file names, compared without regard to case; () takes every file."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        paths: Paths,
        *,
        patterns: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> FileSet:
        """Make a file set of what a user passes as `paths`.

        >>> FileSet.of("data/*.csv").paths
        ('data/*.csv',)
        """
        single = isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable)
        listed = [paths] if single else list(paths)  # type: ignore[arg-type]
        if not listed:
            raise NoInputError("no paths given: the list is empty; pass a file, folder, glob or URL")
        for path in listed:
            if not isinstance(path, (str, os.PathLike)):
                raise PlanError(f"paths must be text or path objects, not {type(path).__name__} ({path!r})")
        return cls(
            paths=tuple(_plain(os.fspath(p)) for p in listed),  # type: ignore[arg-type]
            patterns=tuple(patterns),
            storage_options=dict(storage_options) if storage_options else None,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}  # a million files need not travel to every worker

    @property
    def label(self) -> str:
        """The paths in short, for messages."""
        more = len(self.paths) - _SHOWN_PATHS
        return masked(", ".join(self.paths[:_SHOWN_PATHS])) + (f" and {more} more" if more > 0 else "")

    def files(self) -> list[File]:
        """List the files.

        Raises:
            NoInputError: a path does not exist, or a folder or glob yields nothing.
            SourceError: a folder cannot be read.
        """
        if "files" not in self._cache:
            found: list[File] = []
            passed_over = 0
            for path in self.paths:
                taken, passed = self._expand(path)
                found += taken
                passed_over += passed
            self._cache.update(files=found, passed_over=passed_over)
        files: list[File] = self._cache["files"]
        return files

    def arrange(self, groups: Sequence[Sequence[str]], new: Sequence[str]) -> None:
        """Let `files` list these groups of paths, which share no split with others, and then the new ones."""
        by_path = {file.path: file for file in self._cache.setdefault("listed", self.files())}
        grouped = [replace(by_path[path], group=i) for i, group in enumerate(groups) for path in group]
        self._cache["files"] = [*grouped, *(replace(by_path[path], group=None) for path in new)]

    def as_listed(self) -> None:
        """Let `files` list all files again in their own order."""
        if "listed" in self._cache:
            self._cache["files"] = self._cache["listed"]

    @property
    def passed_over(self) -> int:
        """How many files in the folders were not taken because of their names."""
        self.files()
        return int(self._cache["passed_over"])

    def _expand(self, path: str) -> tuple[list[File], int]:
        try:
            listed = _remote(path, self.storage_options) if is_url(path) else _local(path)
        except OSError as error:
            raise unreadable(path, error) from error
        if not listed.filtered or not self.patterns:
            taken = listed.files
        else:
            fits = _matcher(self.patterns)
            taken = [f for f in listed.files if fits(f.path.rsplit("/", 1)[-1])]
        passed = len(listed.files) - len(taken)
        if not taken:
            raise NoInputError(self._nothing(path, passed))
        return taken, passed

    def _nothing(self, path: str, passed: int) -> str:
        if passed:
            wanted = ", ".join(self.patterns[:4])
            return (
                f"{path} holds no file that fits {wanted} ({passed} others were passed over); "
                "name the files, or pass a glob with their suffix"
            )
        if is_pattern(path):
            return (
                f"{path} matches no file; check the pattern (** searches folders to the bottom) and the working folder"
            )
        return f"{path} holds no files; check the path (names that begin with '.' or '_' are left out)"


@dataclass(frozen=True, slots=True)
class _Listed:
    files: list[File]
    filtered: bool
    """Whether the file set's patterns apply."""


def is_pattern(path: str) -> bool:
    """Say whether the path has wildcards.

    >>> is_pattern("data/*.csv"), is_pattern("data/a.csv")
    (True, False)
    """
    return glob.has_magic(path)


def is_hidden(path: str) -> bool:
    """Say whether any part of a path below its folder begins with "." or "_"."""
    return any(part[:1] in (".", "_") for part in path.split("/") if part)


def _hides(path: str, pattern: str) -> bool:
    """Say whether a glob's match is hidden, unless the pattern itself asks for such names."""
    name, wanted = path.rsplit("/", 1)[-1], pattern.rsplit("/", 1)[-1]
    return name[:1] in (".", "_") and wanted[:1] != name[:1]


def _plain(path: str) -> str:
    return path[len("file://") :] if path.startswith("file://") else os.path.expanduser(path)


def _has_suffix(pattern: str) -> bool:
    return "." in pattern.rstrip("/").rsplit("/", 1)[-1]


def _matcher(patterns: Sequence[str]) -> Any:
    lowered = [p.lower() for p in patterns]
    suffixes = tuple(p[1:] for p in lowered if p.startswith("*") and not glob.has_magic(p[1:]))
    others = [p for p in lowered if not (p.startswith("*") and not glob.has_magic(p[1:]))]

    def fits(name: str) -> bool:
        name = name.lower()
        return name.endswith(suffixes) or any(fnmatchcase(name, p) for p in others)

    return fits


def _local(path: str) -> _Listed:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        if is_pattern(path):
            return _Listed(_local_glob(path), filtered=not _has_suffix(path))
        raise NoInputError(_missing(path)) from None
    if stat.S_ISDIR(info.st_mode):
        return _Listed(sorted(_walk(path.rstrip("/") or "/", set()), key=_path), filtered=True)
    return _Listed([_file(path, info)], filtered=False)


def _local_glob(pattern: str) -> list[File]:
    found: dict[str, File] = {}
    for path in glob.iglob(pattern, recursive=True):
        info = os.stat(path)
        if not stat.S_ISDIR(info.st_mode):
            if not _hides(path, pattern):
                found[path] = _file(path, info)
        elif "**" not in pattern:
            found.update((f.path, f) for f in _walk(path.rstrip("/"), set()))
    return [found[path] for path in sorted(found)]


def _walk(folder: str, seen: set[str]) -> Iterator[File]:
    real = os.path.realpath(folder)
    if real in seen:  # a symbolic link that leads back up
        return
    seen.add(real)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name[:1] in (".", "_"):
                continue
            if entry.is_dir():
                yield from _walk(entry.path, seen)
            elif entry.is_file():
                yield _file(entry.path, entry.stat())


def _file(path: str, info: os.stat_result) -> File:
    size = info.st_size if stat.S_ISREG(info.st_mode) else -1
    return File(path, size, str(info.st_mtime_ns))


def _path(file: File) -> str:
    return file.path


def _missing(path: str) -> str:
    if os.path.islink(path):
        return f"{path} is a link to {os.readlink(path)}, which does not exist; mend the link, or leave it out"
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return f"{path} does not exist; check the path (the working folder is {os.getcwd()})"
    return f"{path} does not exist;{suggestion(name, names)} check the path (the working folder is {os.getcwd()})"


def _remote(url: str, storage_options: Mapping[str, Any] | None) -> _Listed:
    fs, inner = filesystem(url, storage_options)
    try:
        fs.invalidate_cache(inner)  # what was listed minutes ago, by another pipeline, may have changed
        if is_pattern(inner) and not (url.startswith("http") and "*" not in inner):
            entries = fs.glob(inner, detail=True)
            shown = {p: i for p, i in entries.items() if i["type"] != "directory" and not _hides(p, inner)}
            found = [_remote_file(fs, p, i) for p, i in shown.items()]
            return _Listed(sorted(found, key=_path), filtered=not _has_suffix(inner))
        info = fs.info(inner)
        if info["type"] != "directory":
            return _Listed([_remote_file(fs, inner, info)], filtered=False)
        entries = fs.find(inner, detail=True)
    except (SourceError, FileNotFoundError):
        raise NoInputError(f"{url} does not exist; check bucket and path") from None
    except Exception as error:
        raise unreadable(url, error) from error
    root = len(inner.rstrip("/"))
    found = [_remote_file(fs, p, i) for p, i in entries.items() if not is_hidden(p[root:])]
    return _Listed(sorted(found, key=_path), filtered=True)


def _remote_file(fs: Any, path: str, info: Mapping[str, Any]) -> File:
    size = info.get("size")
    stamps = (
        info.get(k) for k in ("version_id", "VersionId", "generation", "ETag", "etag", "md5Hash", "mtime", "created")
    )
    stamp = next((str(s) for s in stamps if s), "")
    url = path if re.match(r"^\w+://", path) else fs.unstrip_protocol(path)
    return File(url, -1 if size is None else int(size), stamp)
