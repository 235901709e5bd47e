"""How much of the disk rows may take that wait there: finished ones for their part, those of side inputs for use."""

from __future__ import annotations

import shutil
import threading

from headrace.errors import SinkError
from headrace.metrics.quantities import amount
from headrace.sinks.disk import cannot_write

RESERVE_BYTES = 256 * 2**20
"""Free space that is left to the parts themselves, and to everybody else; a twentieth of a small disk."""
TIGHT_SHARE = 0.5
"""From this share of the budget on, only rows are read that others wait for; what is on its way has the other half."""


class DiskBudget:
    """Counts the segments of all outputs of a run, or the rows of its side inputs. Thread-safe.

    >>> budget = DiskBudget(1000)
    >>> budget.take(400, "."), budget.tight("."), budget.take(200, "."), budget.tight(".")
    (None, False, None, True)
    """

    def __init__(
        self,
        limit_bytes: int | None = None,
        *,
        reserve_bytes: int | None = None,
        of: str = "finished rows that wait for earlier ones",
        instead: str = ", or a larger memory_limit",
    ) -> None:
        """`limit_bytes=None` takes what there is, down to a reserve of free space.

        `of` says what is counted, `instead` what else than a larger limit helps where there is too much of it.
        """
        self._of, self._instead = of, instead
        self._limit_bytes = limit_bytes
        self._reserve_bytes = reserve_bytes
        self._used = 0
        self._lock = threading.Lock()

    @property
    def limit_bytes(self) -> int | None:
        """What was asked for."""
        return self._limit_bytes

    def take(self, nbytes: int, folder: str) -> None:
        """Count bytes that are about to be written.

        Raises:
            SinkError: there is no room for them.
        """
        with self._lock:
            if self._limit_bytes is not None and self._used + nbytes > self._limit_bytes:
                raise SinkError(
                    f"{self._of} would take more than disk_limit={self._limit_bytes:,} bytes of {folder}; pass a larger"
                    f" disk_limit{self._instead}, and run the same command again: what is finished stays"
                )
            free, reserve = self._room(folder)
            if free < nbytes + reserve:
                raise SinkError(
                    f"cannot write {folder}: the disk is full ({amount(free)} free, of which"
                    f" {amount(reserve)} are left alone; {self._of} need"
                    f" {amount(nbytes)}); free some space and run the same command again, what is finished stays"
                )
            self._used += nbytes

    def take_over(self, nbytes: int) -> None:
        """Count what an earlier run has left."""
        self.give_back(-nbytes)

    def give_back(self, nbytes: int) -> None:
        """Count bytes no longer."""
        with self._lock:
            self._used -= nbytes

    def tight(self, folder: str) -> bool:
        """Say whether no more should be begun than has to be."""
        if not self._used:
            return False
        if self._limit_bytes is not None and self._used > self._limit_bytes * TIGHT_SHARE:
            return True
        free, reserve = self._room(folder)
        return free < reserve / TIGHT_SHARE

    def _room(self, folder: str) -> tuple[int, int]:
        """Return the free space and how much of it is not to be touched."""
        try:
            disk = shutil.disk_usage(folder)
        except OSError as error:
            raise cannot_write(folder, error) from error
        reserve = min(RESERVE_BYTES, disk.total // 20) if self._reserve_bytes is None else self._reserve_bytes
        return disk.free, reserve
