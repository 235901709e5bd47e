"""What surrounds the loading of a model."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.handler import ModelHandler

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


_importing = threading.RLock()


@contextmanager
def importing() -> Iterator[None]:
    """Let one thread at a time import frameworks.

    Two that enter Transformers or timm at different modules see each other's half-made ones, or wait for each other.

    >>> with importing():
    ...     import headrace
    """
    with _importing:
        yield


def import_framework(handler: ModelHandler[Any]) -> None:
    """Have a handler import what its model will need; errors are left for `load_model` to meet and explain."""
    with importing(), suppress(Exception), without_gc():
        handler.preload()
