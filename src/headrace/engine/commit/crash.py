"""Places where a test may end the process by SIGKILL, to prove that any place will do."""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "HEADRACE_CRASH_AT"

CRASH_POINTS = (
    "open.claimed",
    "open.created",
    "open.published",
    "segment.half",
    "segment.appended",
    "part.written",
    "part.prepared",
    "letters.prepared",
    "journal.before",
    "journal.after",
    "part.published",
    "letters.published",
    "segments.released",
    "rewrite.marked",
    "rewrite.replaced",
    "rewrite.recorded",
    "finish.before",
    "finish.marked",
    "finish.cleaned",
)

RETRY_POINTS = ("retry.begun", "retry.prepared", "retry.finished", "letters.republished")
COMPACTION_POINTS = ("compact.prepared", "compact.committed", "settle.published", "settle.removed")
IN_STORES = ("log.entered", "snapshot.written", "segment.copied")
"""What only outputs in stores come by."""
ANSWER_POINTS = ("answers.kept",)
"""What they come by where answers are durable by row."""

_passed: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Do nothing, unless HEADRACE_CRASH_AT is set to name or name:n: then kill the process at the n-th pass."""
    target = os.environ.get(VARIABLE)
    if target is None:
        return
    assert name in CRASH_POINTS + RETRY_POINTS + COMPACTION_POINTS + IN_STORES + ANSWER_POINTS, name
    wanted, _, nth = target.partition(":")
    if wanted == name:
        _passed[name] += 1
        if _passed[name] >= int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)
