"""In which order the rows of an output's parts stand when they are put together anew: pure, from the journal alone."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.engine.commit.failed import FailedRow
    from headrace.engine.commit.retrying import Answered


@dataclass(frozen=True, slots=True)
class Run:
    """The next rows of a part."""

    part: int
    rows: int


def merged(parts: Sequence[Run], answered: Iterable[tuple[int, Answered]]) -> list[Run]:
    """Return all rows in the order of the input; `answered` are those of retries, with the part that they stand in.

    >>> from headrace.engine.commit.retrying import Answered
    >>> late = Answered(row=0, rows=1, split=0, ordinal=2, place=2)
    >>> merged([Run(0, 3), Run(1, 3), Run(2, 1)], [(2, late)])
    [Run(part=0, rows=2), Run(part=2, rows=1), Run(part=0, rows=1), Run(part=1, rows=3)]
    """
    inserted = sorted(answered, key=lambda pair: _position(pair[1]))
    retries = {part for part, _ in inserted}
    main = iter([run for run in parts if run.part not in retries])
    found: list[Run] = []
    at, rest = 0, next(main, None)
    for part, rows in inserted:
        while rest is not None and at < rows.place:
            count = min(rest.rows, rows.place - at)
            found.append(Run(rest.part, count))
            at += count
            rest = Run(rest.part, rest.rows - count) if count < rest.rows else next(main, None)
        found.append(Run(part, rows.rows))
    found += [rest, *main] if rest is not None else []
    return list(_joined(run for run in found if run.rows))


def cut(runs: Sequence[Run], rows: int) -> list[list[Run]]:
    """Cut runs into parts of so many rows.

    >>> cut([Run(0, 3), Run(1, 2)], 2)
    [[Run(part=0, rows=2)], [Run(part=0, rows=1), Run(part=1, rows=1)], [Run(part=1, rows=1)]]
    """
    found: list[list[Run]] = []
    room = 0
    for run in runs:
        left = run.rows
        while left:
            if not room:
                found.append([])
                room = rows
            count = min(left, room)
            found[-1].append(Run(run.part, count))
            left, room = left - count, room - count
    return found


def moved(failed: Sequence[FailedRow], answered: Iterable[tuple[int, Answered]]) -> list[int]:
    """Return the places of failed rows among the merged rows.

    >>> from headrace.engine.commit.failed import FailedRow
    >>> from headrace.engine.commit.retrying import Answered
    >>> moved(
    ...     [FailedRow(split=0, ordinal=o, place=2, stage="map") for o in (1, 3)],
    ...     [(2, Answered(row=0, rows=4, split=0, ordinal=2, place=2))],
    ... )
    [2, 6]
    """
    inserted = sorted((_position(rows), rows.rows) for _, rows in answered)
    positions = [position for position, _ in inserted]
    before = [0, *accumulate(rows for _, rows in inserted)]
    return [row.place + before[bisect_left(positions, _position(row))] for row in failed]


def _position(row: Answered | FailedRow) -> tuple[int, int, int]:
    return row.place, row.split, row.ordinal


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
    waiting: Run | None = None
    for run in runs:
        if waiting is not None and waiting.part == run.part:
            waiting = Run(run.part, waiting.rows + run.rows)
            continue
        if waiting is not None:
            yield waiting
        waiting = run
    if waiting is not None:
        yield waiting
