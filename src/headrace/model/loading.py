"""What surrounds the loading of a model."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMEWORK_MODULES = 100
"""So many modules at once are a framework: hundreds of thousands of objects that stay as long as the process."""


@contextmanager
def without_gc() -> Iterator[None]:
    """Pause the garbage collector: importing a framework makes it run hundreds of times and find nothing.

    A framework that was imported meanwhile is taken out of its sight for good (`gc.freeze`, as servers do): it would be
    looked through at every full collection, and several times when the process ends, for a tenth of a second or more.
    So is all else that there is at that moment: what of it becomes a cycle of garbage later stays in memory.

    >>> with without_gc():
    ...     gc.isenabled()
    False
    """
    was_on, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if len(sys.modules) - modules >= FRAMEWORK_MODULES:
                gc.freeze()
            gc.enable()
