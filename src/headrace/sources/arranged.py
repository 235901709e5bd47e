"""Sources of files that list their splits as an earlier run saw them, with new files behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.sources.extents import Portion
from headrace.sources.listing import FileSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sources.source import Source, Split


def files_of(split: Split) -> tuple[tuple[str, str], ...]:
    """Return path and stamp (size, and time or etag) of each file in a split; () where a split is no part of files.

    >>> from headrace.sources.extents import Extent
    >>> from headrace.sources.source import Split
    >>> files_of(Split(number=0, label="a", size_bytes=3, detail=Portion((Extent("a.csv"),), "v", ("3 1700",))))
    (('a.csv', '3 1700'),)
    """
    portion = split.detail
    if not isinstance(portion, Portion):
        return ()
    return tuple((extent.path, stamp) for extent, stamp in zip(portion.extents, portion.stamps, strict=True))


def may_arrange(source: Source) -> bool:
    """Say whether a source's files can be put in another order: not where one is listed twice."""
    files = getattr(source, "fileset", None)
    if not isinstance(files, FileSet):
        return False
    paths = [file.path for file in files.files()]
    return len(set(paths)) == len(paths)


def may_rename(source: Source, old: str, new: str) -> bool:
    """Say whether a file's rows are the same under both names."""
    added: Any = getattr(source, "added", None)
    return added is not None and bool(added.values(old) == added.values(new))


def as_listed(source: Source) -> None:
    """Let a source forget how it was arranged."""
    files = getattr(source, "fileset", None)
    if isinstance(files, FileSet):
        files.as_listed()
        source._cache.pop("splits", None)  # type: ignore[attr-defined]


def arrange(source: Source, groups: Sequence[Sequence[str]], new: Sequence[str]) -> Sequence[Split]:
    """List the splits of groups of files, as they were grouped once, and then those of new files."""
    files: FileSet = source.fileset  # type: ignore[attr-defined]
    files.arrange(groups, new)
    source._cache.pop("splits", None)  # type: ignore[attr-defined]
    return source.splits()
