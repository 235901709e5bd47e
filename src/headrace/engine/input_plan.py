"""What a run reads: the splits of all sources, settled with what the outputs know of earlier runs."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.inputs import InputChanges, SettledInput, progress_over, refuse, refuse_retry, settle
from headrace.plan.graph import UnitMap, nodes_behind
from headrace.plan.nodes import Read, Shuffle, Write
from headrace.sources.arranged import as_listed, files_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.engine.commit.committer import Committer
    from headrace.engine.commit.entries import SplitRecord
    from headrace.engine.inputs import OnChange
    from headrace.errors import ResumeError
    from headrace.plan.graph import Plan
    from headrace.sources.source import Split

_log = logging.getLogger("headrace.input")


class InputPlan:
    """The splits of a plan's sources: `settle` once all outputs are claimed, `record` once they are open."""

    def __init__(self, plan: Plan, *, on_change: OnChange, retry: bool) -> None:
        self._plan, self._on_change, self._retry = plan, on_change, retry
        self._behind: dict[int, list[Committer]] = {}
        self._before: dict[int, list[SplitRecord]] = {}
        self._changes: dict[int, InputChanges] = {}
        self.splits: dict[int, Sequence[Split]] = {}
        """By source (id of the node)."""
        self.closed: set[int] = set()
        """Numbers of splits that cannot be read any more as they were."""

    def settle(self, committers: Mapping[int, Committer]) -> None:
        """Find the splits to be read, comparing them with those that the outputs know; `committers` by id of the node.

        Raises:
            ResumeError: the input is not what it was, and nobody said what to do then.
            SourceError: it cannot be listed.
        """
        for output in self._plan.outputs:
            for node in nodes_behind(self._plan, output):
                if isinstance(node, Read) and isinstance(output, Write):
                    self._behind.setdefault(id(node), []).append(committers[id(output)])
        restarted = [c for read in self._plan.reads() for c in self._settle(read)]
        if restarted:
            for committer in {id(c): c for c in restarted}.values():
                committer.claim.restart()
            self.closed.clear()
            for read in self._plan.reads():
                as_listed(read.source)
                self._settle(read)
        self.units = UnitMap(self._plan, {key: len(found) for key, found in self.splits.items()})
        for read in self._plan.reads():
            self._check_numbers(read)

    def record(self) -> None:
        """Keep in the journals what is known of the splits."""
        for read in [] if self._retry else self._plan.reads():
            base = self.units.base[id(read)]
            numbers = range(base, base + len(self.splits[id(read)]))
            before = {record.number: record for record in self._before[id(read)]}
            for committer in self._behind.get(id(read), []):
                known = {record.number for record in self._known(read, committer) if record.number not in self.closed}
                committer.record_splits(
                    replace(before[n], closed=True) if n in self.closed else self._record_of(read, n - base)
                    for n in numbers
                    if n not in known
                )

    def note(self, read: Read, index: int) -> str | None:
        """Record a split's digest before its rows are read, so that a touched file can be told from a changed one.

        Returns the digest; None where no output keeps one.
        """
        committers, split = self._behind.get(id(read), []), self.splits[id(read)][index]
        if not committers:
            return None
        if (fingerprint := read.source.fingerprint(split)) != read.source.version(split):
            record = self._record_of(read, index, fingerprint=fingerprint)
            for committer in committers:
                committer.record_splits([record])  # else the version says all, and is recorded already
        return fingerprint

    def _settle(self, read: Read) -> list[Committer]:
        """Settle one source; return the outputs that have to start afresh for it."""
        found = list(read.source.splits())
        if read.shuffle_seed is not None:
            random.Random(read.shuffle_seed).shuffle(found)
        behind = self._behind.get(id(read), [])
        known = max((self._known(read, committer) for committer in behind), key=len, default=[])
        self._before[id(read)] = known
        if not known:
            self.splits[id(read)], self._changes[id(read)] = found, InputChanges()
            return []
        progress = [committer.claim.progress() for committer in behind]
        settled = settle(
            read.source,
            known,
            found,
            rerun=lambda i: progress_over([of(known[i].number) for of in progress]) == "untouched",
        )
        self.splits[id(read)], self._changes[id(read)] = settled.splits, settled.changes
        if self._retry:
            return self._settle_retry(read, known, settled)
        changes = settled.changes
        mixed = self._mixed(read)
        if not changes.spoils and not (mixed and changes.added):
            self.closed |= {record.number for record in known if record.closed}
            if changes.added:
                _log.info("%s: %s; only new files are run", self._plan.name_of(read), changes.told())
            return []
        if self._on_change == "restart":
            return behind
        may_continue = settled.may_continue and not mixed
        if self._on_change != "continue_new_input" or not may_continue:
            why = "; its rows are mixed, so that nothing can be added" if mixed else ""
            raise self._refuse(read, changes, why, may_continue=may_continue)
        for i in settled.affected:
            if len(known[i].files) > 1 and progress_over([of(known[i].number) for of in progress]) == "begun":
                why = f"; {known[i].label} are read as one, and had been read halfway"
                raise self._refuse(read, changes, why, may_continue=False)
        self.closed |= {r.number for i, r in enumerate(known) if r.closed or i in settled.affected}
        _log.warning("%s: %s; what is finished of them stays", self._plan.name_of(read), changes.told())
        return []

    def _settle_retry(self, read: Read, known: Sequence[SplitRecord], settled: SettledInput) -> list[Committer]:
        """Only splits with failed rows need be what they were; new files are no matter of a retry."""
        self.splits[id(read)] = settled.splits[: len(known)]
        affected = {known[i].number for i in settled.affected}
        needed = {split for committer in self._behind[id(read)] for split in committer.claim.failed_splits()}
        if needed & affected or (settled.changes.spoils and not settled.affected):
            raise refuse_retry(settled.changes, output=self._behind[id(read)][0].name)
        self.closed |= affected
        return []

    def _known(self, read: Read, committer: Committer) -> list[SplitRecord]:
        return [record for record in committer.splits() if record.source == self._plan.name_of(read)]

    def _mixed(self, read: Read) -> bool:
        """Whether a shuffle makes of all rows one order, in which none can be added."""
        if read.shuffle_seed is not None:
            return True
        behind = [nodes_behind(self._plan, output) for output in self._plan.outputs]
        return any(read in nodes and any(isinstance(node, Shuffle) for node in nodes) for nodes in behind)

    def _check_numbers(self, read: Read) -> None:
        """New splits get the numbers behind all others, so only the source that comes last may grow."""
        base = self.units.base[id(read)]
        for committer in self._behind.get(id(read), []):
            known = self._known(read, committer)
            if known and known[0].number != base:
                grown = next((c for c in self._changes.values() if c.added), InputChanges())
                why = f"; new files can be gone on with only in the source that comes last ({self._plan.name_of(read)})"
                raise self._refuse(read, grown, why, may_continue=False)

    def _refuse(self, read: Read, changes: InputChanges, why: str, *, may_continue: bool) -> ResumeError:
        committer = self._behind[id(read)][0]
        return refuse(
            changes, output=committer.name, rows_done=committer.claim.rows_done(), why=why, may_continue=may_continue
        )

    def _record_of(self, read: Read, index: int, *, fingerprint: str | None = None) -> SplitRecord:
        from headrace.engine.commit.entries import SplitRecord, pack

        split = self.splits[id(read)][index]
        return SplitRecord(
            number=self.units.base[id(read)] + index,
            label=split.label,
            version=read.source.version(split),
            fingerprint=fingerprint,
            source=self._plan.name_of(read),
            packed=pack(files_of(split)),
        )
