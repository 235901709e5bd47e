"""Tasks for worker processes, each bad in its own way."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.engine.task import StepCounts
from headrace.errors import StageError, UnknownColumnError
from headrace.records.block import Block, dense_block


def block_of(rows: int, first: int = 0) -> Block:
    batch = pa.record_batch({"id": np.arange(first, first + rows), "text": [f"row {i}" for i in range(rows)]})
    return dense_block(batch, split=3, first=first)


def wide_block(nbytes: int) -> Block:
    return dense_block(pa.record_batch({"x": np.arange(nbytes // 8)}), split=0, first=0)


class Echo:
    """Gives every block back, cut into pieces of `piece_rows`."""

    def __init__(self, piece_rows: int | None = None) -> None:
        self.piece_rows = piece_rows
        self.rows = 0
        self.opened_in = 0

    def open(self):
        self.opened_in = os.getpid()

    def process(self, block):
        cuts = range(self.piece_rows, block.num_rows, self.piece_rows) if self.piece_rows else []
        for piece in block.cut(list(cuts)):
            self.rows += piece.num_rows
            yield piece

    def counts(self):
        return {"echo": StepCounts(rows_in=self.rows, rows_out=self.rows)}

    def statistics(self):
        return {"pid": self.opened_in}

    def close(self):
        pass


class Leaving(Echo):
    """Leaves a file when it is closed."""

    def __init__(self, mark: Path, piece_rows: int | None = None) -> None:
        super().__init__(piece_rows)
        self.mark = mark

    def close(self):
        self.mark.write_text("closed")


class Marking(Echo):
    """Writes down each piece before it is sent."""

    def __init__(self, mark: Path) -> None:
        super().__init__(piece_rows=1)
        self.mark = mark

    def process(self, block):
        for piece in super().process(block):
            with self.mark.open("a") as file:
                file.write(f"{piece.start[0]}\n")
            yield piece


class Sleeping(Echo):
    """Says that it has begun, and sleeps for minutes."""

    def __init__(self, mark: Path, with_child: bool = False) -> None:
        super().__init__()
        self.mark = mark
        self.with_child = with_child

    def process(self, block):
        child = None
        if self.with_child:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        self.say(os.getpid(), child.pid if child else "")
        time.sleep(300)
        yield block

    def say(self, *words):
        unfinished = self.mark.with_suffix(".tmp")
        unfinished.write_text(" ".join(map(str, words)))
        unfinished.rename(self.mark)


class Raising(Echo):
    def process(self, block):
        yield block
        raise self.error()

    def error(self):
        return StageError("stage 'map_1', row 7 of in.csv: too long")


class UnknownColumn(Raising):
    def error(self):
        return UnknownColumnError("txt", ["id", "text"], step="map_1")


class Buggy(Raising):
    def error(self):
        return ZeroDivisionError("inside")


class Exiting(Echo):
    def process(self, block):
        raise SystemExit(3)
        yield


class FailsToOpen(Echo):
    def open(self):
        raise StageError("setup() of Lang failed: no such language")


class FailsToClose(Echo):
    def close(self):
        raise StageError("close() of Lang failed")


class EndlessToClose(Echo):
    def close(self):
        time.sleep(300)


class Dying(Echo):
    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.signal_number = signal_number

    def process(self, block):
        os.kill(os.getpid(), self.signal_number)
        yield block


class ExitingHard(Echo):
    def process(self, block):
        os._exit(7)
        yield block


class Segfaulting(Echo):
    def process(self, block):
        self.read_nowhere()
        yield block

    def read_nowhere(self):
        ctypes.string_at(0)


class DyingWithHeir(Echo):
    """Dies while a child of its own holds the socket open."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def process(self, block):
        child = ctypes.CDLL(None).fork()  # past Python, which would close the socket
        if child == 0:
            time.sleep(300)
        self.mark.write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
        yield block


class HoldingTheLock(Sleeping):
    """Sleeps in native code that lets no other thread run."""

    def process(self, block):
        self.say(os.getpid())
        ctypes.PyDLL(None).sleep(300)
        yield block


class ForkingAndTalking(Echo):
    """Forks children that log; what they write must not get into the worker's frames."""

    def process(self, block):
        for _ in range(5):
            child = os.fork()
            if child == 0:
                logging.getLogger("mine.child").warning("from a fork")
                os._exit(0)
            os.waitpid(child, 0)
            logging.getLogger("mine.parent").warning("from the worker")
            yield block.cut([])[0]


class Talking(Echo):
    def process(self, block):
        logging.getLogger("mine.lang").warning("row %s is odd", block.start[0], stacklevel=1)
        logging.getLogger("mine.lang").debug("not looked at")
        try:
            raise ValueError("inner")
        except ValueError:
            logging.getLogger("mine.lang").exception("it happened")
        warnings.warn("old column", FutureWarning, stacklevel=1)
        print("to stdout")
        print("to stderr", file=sys.stderr)
        yield block


class Chattering(Echo):
    def process(self, block):
        for i in range(500):
            logging.getLogger("mine.spam").warning("spam %d", i)
        yield block


class Describing(Echo):
    """Answers with what its process is like."""

    def process(self, block):
        import headrace

        facts = {
            "pid": os.getpid(),
            "omp": os.environ.get("OMP_NUM_THREADS"),
            "pythonpath": os.environ.get("PYTHONPATH"),
            "path": sys.path[:],
            "argv": sys.argv[:],
            "headrace": headrace.__file__,
            "stdin": sys.stdin.read() if sys.stdin else None,
            "ignores_sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
            "fds": sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)),
        }
        yield block.with_batch(pa.RecordBatch.from_pylist([facts]))


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}") and "/proc/" not in os.readlink(f"/proc/self/fd/{fd}")
