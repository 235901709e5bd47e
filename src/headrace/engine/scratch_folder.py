"""A folder for the files of one run that are nobody else's, on the machine's disk for temporary files."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX, _LOCK = "headrace-run-", ".lock"


class ScratchFolder:
    """Makes a folder, and removes it when it is closed; those of runs that were killed are removed by the next run.

    Each has a locked file beside it, so that whose run is at work is known also among containers.

    >>> folder = ScratchFolder()
    >>> folder.path.is_dir()
    True
    >>> folder.close()
    >>> folder.path.exists()
    False
    """

    def __init__(self) -> None:
        _remove_left_over()
        self._fd, self._lock = tempfile.mkstemp(prefix=_PREFIX, suffix=_LOCK)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.path = Path(self._lock.removesuffix(_LOCK))
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove the folder. What is mapped stays readable for whoever has mapped it."""
        _remove(self._lock)
        os.close(self._fd)


def _remove_left_over() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*{_LOCK}"):
        with suppress(OSError):  # another run's, at work; another user's; gone meanwhile
            fd = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(str(lock))
            finally:
                os.close(fd)


def _remove(lock: str) -> None:
    shutil.rmtree(lock.removesuffix(_LOCK), ignore_errors=True)
    with suppress(OSError):
        os.unlink(lock)
