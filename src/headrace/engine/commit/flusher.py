"""The flusher: a thread that puts rows which have waited too long into a segment, and closes a part that stalls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.engine.commit.flushing import HORIZON_SECS, SMALL_BYTES, Allowance, FillRate, should_flush
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine.commit.filling import Filling
    from headrace.engine.commit.holdings import Holdings
    from headrace.engine.commit.piece import Piece
    from headrace.engine.commit.sizing import Sizing
    from headrace.engine.commit.trouble import Trouble

TICK_SECS = 0.05


class Flusher:
    """Saves what waits. `start` first, `stop` last; what is said to be under the mutex is called by who holds it."""

    def __init__(
        self,
        holdings: Holdings,
        sizing: Sizing,
        *,
        mutex: threading.RLock,
        clock: Callable[[], float],
        trouble: Trouble,
    ) -> None:
        """`mutex` guards the holdings and the parts that fill."""
        self._holdings, self._sizing = holdings, sizing
        self._mutex, self._clock, self._trouble = mutex, clock, trouble
        self._wake = threading.Condition(mutex)
        self._rate, self._allowance = FillRate(), Allowance()
        self._stopping = self._idle = False
        self._thread = threading.Thread(target=self._run, name="headrace-flush", daemon=True)

    def start(self, filling: Filling) -> None:
        """Begin to look after the rows that are held, and the part that they go into."""
        self._filling = filling
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns when a flush in work is done."""
        with self._mutex:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    def flush(self) -> None:
        """Do what is due."""
        with self._mutex:
            oldest = self._holdings.oldest_arrival
            now = self._clock()
            filling, fill = self._filling, self._filling.fill
            self._rate.observe(filling.progress, now=now)
            if filling.part is not None and filling.part.spent and not self.fills_soon():
                filling.close()
            if oldest is None or self._trouble.error:
                return
            if should_flush(now - oldest, fill=fill, fills_per_sec=self._rate.per_sec):
                try:
                    self._holdings.save()
                except HeadraceError as error:
                    self._trouble.tell(error)

    def arrived(self, piece: Piece, *, ending: bool) -> None:
        """Note that a piece has come, and save it at once where that costs nothing to speak of; under the mutex.

        Where the input is `ending` all goes into a part in a moment.
        """
        if piece.cost <= SMALL_BYTES and not ending and self._allowance.take(now=piece.arrived):
            self._holdings.save()
        if self._idle:
            self._wake.notify()

    def fills_soon(self) -> bool:
        """Say whether parts fill so fast that their rows need not be kept for a segment."""
        if self._sizing.size.rows is not None:
            return False  # a part whose rows were let go would be closed with fewer, were the flow to stall
        # Until the rate is known, whoever has filled enough to be encoded counts as fast.
        return not self._rate.known or self._rate.per_sec * HORIZON_SECS >= 1

    def _run(self) -> None:
        with self._mutex:
            while not self._stopping:
                self._idle = self._holdings.oldest_arrival is None
                self._wake.wait(None if self._idle else TICK_SECS)
                if not self._stopping:
                    self.flush()
