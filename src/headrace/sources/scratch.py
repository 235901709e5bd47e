"""Memory that a thread uses again and again: fresh megabytes cost more than what is written into them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Scratch(threading.local):
    """Room that grows to the largest size asked for; each thread has its own.

    >>> Scratch().room(3).shape
    (3,)
    """

    def __init__(self) -> None:
        self._room = np.empty(0, dtype=np.uint8)

    def room(self, size: int) -> NDArray[np.uint8]:
        """Return `size` bytes, which the next call in this thread gives away again."""
        if len(self._room) < size:
            self._room = np.empty(size, dtype=np.uint8)
        return self._room[:size]
