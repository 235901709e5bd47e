"""Records of `logging` and `warnings` on their way from a worker to the parent's loggers, at a bounded rate."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

MAX_RECORDS_PER_SEC = 20
"""For each line of code that logs; what is beyond is counted."""

_KEPT = ("name", "levelno", "levelname", "msg", "pathname", "lineno", "funcName", "created", "exc_text")


@dataclass(frozen=True, slots=True)
class LogLevels:
    """The parent's levels, so that workers send no more than is looked at."""

    disable: int
    by_logger: dict[str, int]
    """"" is the root."""

    @classmethod
    def here(cls) -> LogLevels:
        """Return the levels set in this process."""
        loggers = logging.root.manager.loggerDict.items()
        levels = {name: log.level for name, log in loggers if isinstance(log, logging.Logger) and log.level}
        return cls(logging.root.manager.disable, {"": logging.root.level, **levels})

    def apply(self) -> None:
        """Set the levels in this process."""
        logging.disable(self.disable)
        for name, level in self.by_logger.items():
            logging.getLogger(name or None).setLevel(level)


@dataclass(slots=True)
class _Window:
    opened_at: float
    admitted: int = 0
    suppressed: int = 0
    last: Any = None


@dataclass(slots=True)
class RateLimit:
    """Decides which of many like records go on: at most `per_sec` a second and key, the others are counted.

    >>> limit = RateLimit(per_sec=2)
    >>> [limit.admit("spam", now=0.1 * i) for i in range(4)], limit.admit("other", now=0.3)
    ([True, True, False, False], True)
    >>> limit.overdue(now=1.5)
    [(None, 2)]
    """

    per_sec: int
    _windows: dict[Hashable, _Window] = field(default_factory=dict)

    def admit(self, key: Hashable, now: float, record: Any = None) -> bool:
        """Say whether the record goes on. Ask `overdue` first: it tells what an earlier second left out."""
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now)
        window.last = record
        if window.admitted < self.per_sec:
            window.admitted += 1
            return True
        window.suppressed += 1
        return False

    def overdue(self, now: float, everything: bool = False) -> list[tuple[Any, int]]:
        """Close the windows older than a second; return (a record, how many like it were left out) where any were."""
        closed = [key for key, w in self._windows.items() if everything or now - w.opened_at >= 1.0]
        windows = [self._windows.pop(key) for key in closed]
        return [(w.last, w.suppressed) for w in windows if w.suppressed]


class LogCarrier(logging.Handler):
    """Sends a worker's records to its parent; `send` is called with a dict of plain values."""

    def __init__(self, send: Callable[[dict[str, Any]], None], *, per_sec: int = MAX_RECORDS_PER_SEC) -> None:
        super().__init__()
        self._send_record = send
        self._limit = RateLimit(per_sec)
        self._formatter = logging.Formatter()

    def install(self) -> None:
        """Take all records that reach the root logger, and all warnings."""
        logging.root.addHandler(self)
        warnings.showwarning = self._show_warning

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, or count it where there are too many like it."""
        try:
            now = time.monotonic()
            self._send_summaries(now)
            if self._limit.admit((record.name, record.pathname, record.lineno), now, record):
                self._send_record(self._plain(record, record.getMessage()))
        except OSError:
            pass  # the parent is gone, and so are we in a moment
        except Exception:  # as logging does: a bad call of a logger must not stop the work
            self.handleError(record)

    def send_summaries(self, *, everything: bool = False) -> None:
        """Send "… and 312 more like it" for what was left out; `everything` includes the second that is running."""
        self.acquire()
        try:
            self._send_summaries(time.monotonic(), everything)
        finally:
            self.release()

    def _send_summaries(self, now: float, everything: bool = False) -> None:
        for record, suppressed in self._limit.overdue(now, everything):
            text = record.getMessage().split("\n")[0]
            self._send_record(self._plain(record, f"{text} … and {suppressed:,} more like it"))

    def _plain(self, record: logging.LogRecord, message: str) -> dict[str, Any]:
        if record.exc_info and not record.exc_text:
            record.exc_text = self._formatter.formatException(record.exc_info)
        return {**{name: getattr(record, name) for name in _KEPT}, "msg": message}

    def _show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        self.handle(logging.LogRecord("py.warnings", logging.WARNING, filename, lineno, text.rstrip(), None, None))


def deliver(plain: dict[str, Any], *, process_name: str) -> None:
    """Hand a record that came from a worker to this process's logger of the same name."""
    logger = logging.getLogger(plain["name"])
    if logger.isEnabledFor(plain["levelno"]):
        logger.handle(logging.makeLogRecord({**plain, "args": None, "processName": process_name}))
