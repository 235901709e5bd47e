"""Side inputs of a run: their rows gathered, their objects built, and handed to every process that uses them."""

from __future__ import annotations

import errno
import logging
import os
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.engine.commit.disk_budget import DiskBudget
from headrace.engine.mapped import save
from headrace.engine.scratch_folder import ScratchFolder
from headrace.engine.side_data import Rebuilt, Unneeded, key_of
from headrace.engine.spool import Spool
from headrace.errors import HeadraceError, RunInterrupted, SideInputError
from headrace.metrics.statistics import SideInputStatistics
from headrace.model.shared import shared
from headrace.plan.schemas import known_schema
from headrace.plan.side_inputs import broadcasts_of, plan_of
from headrace.records.failure import told
from headrace.records.types import TypeQuarrelError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from headrace.engine.side_data import SideData
    from headrace.engine.spool import MappedTable
    from headrace.plan.graph import Plan
    from headrace.plan.nodes import Broadcast
    from headrace.records.block import Block

    Run: TypeAlias = Callable[[Plan], Generator[Block, None, None]]

_log = logging.getLogger("headrace.side_inputs")


class SideInputs:
    """The side inputs of one plan: `build` before its stages are made, `close` when they have ended."""

    def __init__(self, plan: Plan, *, disk_limit_bytes: int | None = None) -> None:
        """`disk_limit_bytes` bounds what their rows take on the disk for temporary files."""
        self._disk = DiskBudget(disk_limit_bytes, of="rows of side inputs", instead=", or leave out columns")
        self._broadcasts = broadcasts_of(plan)
        self._data: dict[int, SideData] = {}
        self._statistics: list[SideInputStatistics] = []
        self._held = ExitStack()

    def build(self, run: Run, *, needed: bool = True) -> None:
        """Make them one after another; `run` runs a plan and yields its blocks in the order of the input.

        Raises:
            SideInputError: one cannot be made.
        """
        if not self._broadcasts:
            return
        if not needed:
            self._data = {id(broadcast): Unneeded() for broadcast in self._broadcasts.values()}
            return
        folder = ScratchFolder()
        self._held.callback(folder.close)
        for number, (name, broadcast) in enumerate(self._broadcasts.items()):
            place = folder.path / str(number)
            place.mkdir()
            try:
                self._make(name, broadcast, run, place)
            except RunInterrupted:
                raise
            except (HeadraceError, OSError, TypeQuarrelError) as error:
                raise SideInputError(f"side input {name!r} cannot be made: {_why(error, folder)}") from error

    def bound(self, side_inputs: Sequence[tuple[str, Broadcast]]) -> tuple[tuple[str, SideData], ...]:
        """Return where each of a step's side inputs is to be had."""
        return tuple((argument, self._data[id(broadcast)]) for argument, broadcast in side_inputs)

    @property
    def mapped_bytes(self) -> int:
        """Bytes of files that processes map."""
        return sum(side.mapped_bytes for side in self._statistics)

    def statistics(self) -> tuple[SideInputStatistics, ...]:
        """Return a snapshot of those that are made."""
        return tuple(self._statistics)

    def close(self) -> None:
        """Remove the files. Whoever has mapped them keeps them as long as he likes."""
        self._held.close()

    def _make(self, name: str, broadcast: Broadcast, run: Run, place: Path) -> None:
        began, spool, failed = time.perf_counter(), Spool(place, self._disk), 0
        plan = plan_of(broadcast)
        with closing(run(plan)) as blocks:
            for block in blocks:
                spool.add(block.batch)
                failed += len(block.failures)
        table = spool.finish(empty=known_schema(plan, plan.outputs[0].upstream))
        _log.info("side input %s: %d rows are there", name, spool.rows)
        made = SideInputStatistics(name=name, rows=spool.rows, failed=failed)
        data: SideData = table
        if broadcast.build is None:
            made = replace(made, mapped_bytes=os.path.getsize(table.path))
        else:
            data, made = _built(broadcast.build, table, place / "object", made)
        if not isinstance(data, Rebuilt) and data is not table:
            spool.discard()
        self._data[id(broadcast)] = data
        self._statistics.append(replace(made, secs=time.perf_counter() - began))


def _built(
    build: Callable[[Any], Any], table: MappedTable, place: Path, made: SideInputStatistics
) -> tuple[SideData, SideInputStatistics]:
    """Build the object of a table; return where processes get it from, and how much of it they share."""
    built = _call(build, table)
    data: SideData
    try:
        data = saved = save(built, place)
    except OSError:
        raise
    except Exception as error:  # objects may raise anything here
        data, made = Rebuilt(table, build), replace(made, rebuilt=told(error))
    else:
        made = replace(made, mapped_bytes=saved.mapped_bytes, process_bytes=saved.process_bytes)
    if made.process_bytes >= made.mapped_bytes:  # what is there is as good as what could be mapped
        shared(lambda: built, key=key_of(data))
    return data, made


def _why(error: Exception, folder: ScratchFolder) -> str:
    if isinstance(error, HeadraceError):
        return str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{told(error)}; it lies in {folder.path.parent}, and where TMPDIR names a folder with more room, there"
    return told(error)


def _call(build: Callable[[Any], Any], table: MappedTable) -> Any:
    try:
        return build(table.load())
    except (HeadraceError, OSError):
        raise
    except Exception as error:
        raise SideInputError(f"its build function failed: {told(error)}") from error
