"""The input of this run beside that of earlier runs of the job: what changed, and which splits there are to read.

Splits that earlier runs recorded keep their numbers and their files; the files that have come since make splits of
their own behind them. So rows that are finished stay what they are, and only new files are run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import ResumeError
from headrace.metrics.quantities import count
from headrace.sources.arranged import arrange, files_of, may_arrange, may_rename
from headrace.sources.source import Split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.engine.commit.entries import SplitRecord
    from headrace.engine.commit.input_status import Progress
    from headrace.sources.source import Source

OnChange: TypeAlias = Literal["fail", "restart", "continue_new_input"]

SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChanges:
    """Files (or splits, where a source has no files) that are not as they were."""

    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def spoils(self) -> bool:
        """Whether finished rows may come from what is no longer there."""
        return bool(self.changed or self.removed)

    def told(self) -> str:
        """Name the changes one by one.

        >>> InputChanges(changed=("a.csv",), removed=("b.csv",), added=("c.csv",)).told()
        'a.csv changed; b.csv was removed; c.csv is new'
        """
        found = [
            *(f"{name} changed" for name in self.changed),
            *(f"{name} was removed" for name in self.removed),
            *(f"{name} is new" for name in self.added),
        ]
        more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        return "; ".join(found[:SHOWN]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledInput:
    """The splits of a source as this run shall number them: first the recorded ones, then the new ones."""

    splits: tuple[Split, ...]
    changes: InputChanges = InputChanges()
    affected: frozenset[int] = frozenset()
    """Indices of recorded splits whose files changed or went: they cannot be read any more as they were."""
    may_continue: bool = False
    """Whether it is known file by file what is new, so that the rest may stay as it is."""


def settle(
    source: Source,
    recorded: Sequence[SplitRecord],
    splits: Sequence[Split],
    *,
    rerun: Callable[[int], bool] = lambda _index: True,
) -> SettledInput:
    """Compare a source's splits with those that earlier runs recorded, in order.

    `rerun` says whether the files of an affected split that did not change are new input too.
    """
    if not recorded or _same(source, recorded, splits):
        return SettledInput(splits=tuple(splits))
    if not all(record.files or record.closed for record in recorded) or not may_arrange(source):
        return SettledInput(splits=tuple(splits), changes=_changed_splits(source, recorded, splits))
    return _Files(source, recorded, splits).settle(rerun)


def refuse(
    changes: InputChanges, *, output: str, rows_done: int, why: str = "", may_continue: bool = True
) -> ResumeError:
    """Make the error that names the changes and the ways out."""
    going_on = (
        'to keep them and run what is new or changed as new input pass on_change="continue_new_input"'
        " (--on-change continue-new-input); "
        if may_continue
        else ""
    )
    return ResumeError(
        f"the input is not what it was when {output} was begun: {changes.told()}{why}."
        f" {count(rows_done, 'row is', 'rows are')} finished there; {going_on}to start afresh pass"
        f' on_change="restart" (--on-change restart) or if_exists="overwrite" (--overwrite), or write to another folder'
    )


def refuse_retry(changes: InputChanges, *, output: str) -> ResumeError:
    """Make the error of a retry whose rows can no longer be read as they were."""
    return ResumeError(
        f"failed rows of {output} cannot be run again, since their input is not what it was: {changes.told()}."
        " Put it back as it was; or run the job itself once more, without a retry and with"
        ' on_change="continue_new_input" (--on-change continue-new-input) or'
        ' on_change="restart" (--on-change restart)'
    )


def _same(source: Source, recorded: Sequence[SplitRecord], splits: Sequence[Split]) -> bool:
    return len(recorded) == len(splits) and all(
        not record.closed and record.label == split.label and record.version == source.version(split)
        for record, split in zip(recorded, splits, strict=True)
    )


def _changed_splits(source: Source, recorded: Sequence[SplitRecord], splits: Sequence[Split]) -> InputChanges:
    """Compare split by split, for sources that know nothing of files; all that is not as it was spoils the result."""
    pairs = list(zip(recorded, splits, strict=False))
    changed = [
        split.label if record.label == split.label else f"{split.label} (where {record.label} was)"
        for record, split in pairs
        if record.label != split.label or not _unchanged(source, record, split)
    ]
    gone = tuple(record.label for record in recorded[len(pairs) :])
    added = tuple(split.label for split in splits[len(pairs) :])
    return InputChanges(changed=(*changed, *added), removed=gone)


def _unchanged(source: Source, record: SplitRecord, split: Split) -> bool:
    """A touched split is the same when its digest is; what had not been read has none."""
    if record.version == source.version(split):
        return True
    return record.fingerprint is not None and record.fingerprint == source.fingerprint(split)


class _Files:
    """One comparison, file by file."""

    def __init__(self, source: Source, recorded: Sequence[SplitRecord], splits: Sequence[Split]) -> None:
        self._source, self._recorded = source, recorded
        self._now = {path: stamp for split in splits for path, stamp in files_of(split)}
        self._before = {path: stamp for record in recorded if not record.closed for path, stamp in record.files}
        given_up = {path: stamp for record in recorded if record.closed for path, stamp in record.files}
        self._given_up = {path: stamp for path, stamp in given_up.items() if path not in self._before}
        self._renamed = self._find_renamed()
        self._removed = [p for p in self._before if p not in self._now and p not in self._renamed]
        self._changed = {p for p in self._before if p in self._now and _size(self._before[p]) != _size(self._now[p])}
        # Files of a split that was given up may be finished, and are no new input while they are as they were.
        self._changed |= {p for p, stamp in self._given_up.items() if self._now.get(p, stamp) != stamp}
        known = {*self._before, *self._renamed.values(), *self._given_up}
        self._added = [path for path in self._now if path not in known]

    def settle(self, rerun: Callable[[int], bool]) -> SettledInput:
        # Splits of files that are there with the size they had are looked at more closely, once they are put in order.
        intact = self._intact()
        found = arrange(self._source, [paths for paths, _ in self._groups(intact)], [])
        for indices, pieces in self._pairs(intact, found):
            if len(indices) != len(pieces) or not all(
                _unchanged(self._source, self._recorded[i], piece) for i, piece in zip(indices, pieces, strict=True)
            ):
                self._changed.update(self._touched(indices))
        intact = self._intact()
        groups = self._groups(intact)
        affected = [i for i, r in enumerate(self._recorded) if i not in intact and not r.closed]
        again = {self._name_of(path) for i in affected if rerun(i) for path, _ in self._recorded[i].files}
        fresh = {*self._added, *self._changed, *again}
        found = arrange(self._source, [paths for paths, _ in groups], [path for path in self._now if path in fresh])
        kept = {i: piece for ids, pieces in self._pairs(intact, found) for i, piece in zip(ids, pieces, strict=True)}
        splits = [kept.get(i) or _closed(record) for i, record in enumerate(self._recorded)]
        splits += found[len(kept) :]
        return SettledInput(
            splits=tuple(replace(split, number=number) for number, split in enumerate(splits)),
            changes=InputChanges(
                changed=tuple(path for path in (*self._before, *self._given_up) if path in self._changed),
                removed=tuple(self._removed),
                added=tuple(self._added),
            ),
            affected=frozenset(affected),
            may_continue=True,
        )

    def _find_renamed(self) -> dict[str, str]:
        """Pair files that are gone with new ones of the same size and time (or etag), where that leaves no doubt."""
        gone = {path: stamp for path, stamp in self._before.items() if path not in self._now}
        new = {path: stamp for path, stamp in self._now.items() if path not in self._before}
        times = Counter(gone.values()) + Counter(new.values())
        by_stamp = {stamp: path for path, stamp in new.items() if times[stamp] == 2 and " " in stamp.strip()}
        pairs = ((path, by_stamp[stamp]) for path, stamp in gone.items() if stamp in by_stamp)
        return {old: path for old, path in pairs if may_rename(self._source, old, path)}

    def _name_of(self, path: str) -> str:
        return self._renamed.get(path, path)

    def _intact(self) -> set[int]:
        spoilt = {*self._removed, *self._changed}
        return {
            i
            for i, record in enumerate(self._recorded)
            if not record.closed and not any(path in spoilt for path, _ in record.files)
        }

    def _groups(self, intact: set[int]) -> list[tuple[list[str], list[int]]]:
        """Return the files of recorded splits, as they are called now, and the splits; a cut file is one group."""
        groups: list[tuple[list[str], list[int]]] = []
        for i in sorted(intact):
            paths = [self._name_of(path) for path, _ in self._recorded[i].files]
            if groups and len(paths) == 1 and groups[-1][0] == paths:
                groups[-1][1].append(i)
            else:
                groups.append((paths, [i]))
        return groups

    def _pairs(self, intact: set[int], found: Sequence[Split]) -> Iterator[tuple[list[int], list[Split]]]:
        by_path: dict[str, list[Split]] = {}
        for split in found:
            by_path.setdefault(files_of(split)[0][0], []).append(split)
        for paths, indices in self._groups(intact):
            yield indices, by_path.get(paths[0], [])

    def _touched(self, indices: Sequence[int]) -> list[str]:
        files = [(path, stamp) for i in indices for path, stamp in self._recorded[i].files]
        touched = [path for path, stamp in files if self._now.get(self._name_of(path)) != stamp]
        return touched or [path for path, _ in files]


def _size(stamp: str) -> str:
    return stamp.split(" ", 1)[0]


def _closed(record: SplitRecord) -> Split:
    """Stand for a split that cannot be read any more."""
    return Split(number=record.number, label=record.label, size_bytes=0)


def progress_over(outputs: Iterable[Progress]) -> Progress:
    """Return how far a split is over several outputs.

    >>> progress_over(["done", "done"]), progress_over(["done", "untouched"]), progress_over(["untouched"])
    ('done', 'begun', 'untouched')
    """
    found = set(outputs)
    if found == {"done"}:
        return "done"
    return "untouched" if found <= {"untouched"} else "begun"
