"""Comparing the input of this run with that of an earlier run of the same job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ResumeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.engine.commit.journal import SplitRecord
    from headrace.sources.source import Split

SHOWN = 5


def changes(
    recorded: Mapping[int, SplitRecord],
    splits: Sequence[tuple[int, Split]],
    *,
    version: Callable[[int, Split], str],
    fingerprint: Callable[[int, Split], str],
) -> list[str]:
    """Describe how the input differs from what the journal recorded; [] when it is the same.

    A split whose version (size, mtime, etag) changed is the same when its content's digest is. `splits` are pairs of
    plan-wide number and split.
    """
    found: list[str] = []
    for number, split in splits:
        before = recorded.get(number)
        if before is None:
            found.append(f"{split.label} is new")
        elif before.label != split.label:
            found.append(f"{split.label} is where {before.label} was")
        elif before.version != version(number, split) and (
            before.fingerprint is None or before.fingerprint != fingerprint(number, split)
        ):
            found.append(f"{split.label} changed")
    present = {number for number, _ in splits}
    found.extend(f"{before.label} is gone" for number, before in recorded.items() if number not in present)
    return found


def refuse(found: Sequence[str], *, output: str, rows_done: int) -> ResumeError:
    """Make the error that names the changes and the ways out."""
    shown = "; ".join(found[:SHOWN])
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ResumeError(
        f"the input is not what it was when {output} was begun: {shown}{more}. {rows_done} rows are finished there. "
        "To start afresh pass if_exists='overwrite' (--overwrite), or write to another folder"
    )
