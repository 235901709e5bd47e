"""What surrounds the loading of a model."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_gc() -> Iterator[None]:
    """Pause the garbage collector: importing a framework makes it run hundreds of times and find nothing.

    >>> with without_gc():
    ...     gc.isenabled()
    False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
