"""The worker's side: `python -m headrace.engine.processes.worker PARENT_PID SOCKET_FD CRASH_FD MARK_FD`."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace.engine.failing import leaving
from headrace.engine.processes.crashes import LOST_STATUS
from headrace.engine.processes.logs import LogCarrier
from headrace.engine.processes.mark import Mark, MarkedCalls
from headrace.engine.processes.pool import Pool
from headrace.engine.processes.remote_errors import RemoteError, pack_error
from headrace.engine.processes.shared_blocks import Parcel, unpack_block
from headrace.engine.processes.start import Hello, die_with_parent
from headrace.engine.processes.wire import Frame, Kind, Wire
from headrace.errors import PlanError
from headrace.model import shared

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.engine.task import Task
    from headrace.records.block import Block

PIECES_AHEAD = 2
"""Pieces that a worker may have sent before their consumer asks for the next one: one is looked at, one is ready."""

STATISTICS_SECS = 0.005
"""A task that answers at once tells its numbers no more often."""


class Worker:
    """Runs one task: opens it, answers blocks with pieces, and closes it."""

    def __init__(self, wire: Wire, calls: MarkedCalls, parent_pid: int) -> None:
        self._wire, self._calls, self._parent_pid = wire, calls, parent_pid
        self._pool = Pool()
        self._carrier = LogCarrier(lambda plain: wire.send(Kind.LOG, plain))
        self._task: Task | None = None
        self._name = ""
        self._told_at = 0.0
        self._held = ExitStack()
        """What the task's functions share, until the task is closed."""

    def run(self) -> None:
        """Serve the parent until it says goodbye. When it is gone without a word, the process ends at once."""
        threading.Thread(target=self._watch, name="headrace-watch", daemon=True).start()
        self._held.enter_context(shared.running())
        try:
            self._serve()
        except _Goodbye:
            pass
        except Exception as error:
            self._refuse(pack_error(error))
        except BaseException as error:  # SystemExit from a user's code: the parent must hear of it
            self._refuse(pack_error(leaving(self._name, error)))
        self._say_goodbye()

    def _watch(self) -> None:
        """Notice the parent's death while users' code is at work."""
        self._wire.wait_for_end(lambda: os.getppid() == self._parent_pid)
        _end_all()

    def _serve(self) -> None:
        hello = self._receive()
        assert hello.kind is Kind.HELLO, hello
        self._name = hello.value.name
        self._settle_in(hello.value)
        self._task = _unpack_task(hello.data, hello.value.name)
        attend = getattr(self._task, "attend", None)
        if callable(attend):
            attend(self._calls)
        self._task.open()
        self._wire.send(Kind.OPENED, self._account())
        work = self._answer if getattr(self._task, "one_piece", False) else self._process
        while True:
            work(self._task, self._next_block())

    def _settle_in(self, hello: Hello) -> None:
        sys.path[:] = hello.sys_path
        sys.argv[:] = hello.argv
        if hello.pythonpath is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = hello.pythonpath
        hello.levels.apply()
        self._carrier.install()

    def _next_block(self) -> Block:
        frame = self._next(Kind.BLOCK)
        assert frame.data is not None
        head, sentences = frame.value
        self._calls.refuse(sentences)
        return unpack_block(head, frame.data)

    def _process(self, task: Task, block: Block) -> None:
        room = PIECES_AHEAD
        for piece in task.process(block):
            if room == 0:
                self._next(Kind.MORE)
                room = 1
            self._send(Kind.PIECE, piece, self._counts())
            room -= 1
        self._carrier.send_summaries()
        self._wire.send(Kind.DONE, (None, *self._account()))

    def _answer(self, task: Task, block: Block) -> None:
        """Work on a block that is answered with one: all goes in one frame, since small ones take no longer."""
        (piece,) = task.process(block)
        del block
        self._carrier.send_summaries()
        now = time.monotonic()
        if now - self._told_at < STATISTICS_SECS:
            self._send(Kind.DONE, piece, None, None)
            return
        self._told_at = now
        self._send(Kind.DONE, piece, *self._account())

    def _send(self, kind: Kind, block: Block, *values: Any) -> None:
        parcel = Parcel(block, self._pool)
        self._wire.send(kind, (parcel.head, *values), parcel.payload(self._pool))
        parcel.close()

    def _receive(self) -> Frame:
        frame = self._wire.receive()
        if frame is None:
            _end_all()
        assert frame is not None
        return frame

    def _next(self, wanted: Kind) -> Frame:
        while True:
            frame = self._receive()
            if frame.kind is wanted:
                return frame
            if frame.kind is Kind.CLOSE:
                raise _Goodbye
            # What is left is room that the block before did not use up.

    def _refuse(self, error: RemoteError) -> None:
        """Answer everything with the error until the parent says goodbye."""
        self._wire.send(Kind.FAILED, error)
        while (frame := self._receive()).kind is not Kind.CLOSE:
            if frame.kind is Kind.BLOCK:
                self._wire.send(Kind.FAILED, error)

    def _say_goodbye(self) -> None:
        error = None
        try:
            if self._task is not None:
                self._task.close()
            self._held.close()
        except BaseException as raised:  # as above
            error = pack_error(raised)
        self._carrier.send_summaries(everything=True)
        self._wire.send(Kind.CLOSED, (*self._account(), error))

    def _account(self) -> tuple[dict[str, Any], Any]:
        statistics = getattr(self._task, "statistics", None)
        return self._counts(), statistics() if callable(statistics) else None

    def _counts(self) -> dict[str, Any]:
        return {} if self._task is None else dict(self._task.counts())


def _end_all() -> None:
    """End this process, together with whatever the user's code has started.

    The parent closes its end of the wire only when this process has ended: so it died.
    """
    os.killpg(os.getpgrp(), signal.SIGKILL)


class _Goodbye(Exception):  # noqa: N818 - not an error
    """The parent has asked the worker to end."""


def _unpack_task(data: pa.Buffer | None, name: str) -> Task:
    assert data is not None
    try:
        task: Task = pickle.loads(data)  # from our own parent
    except Exception as error:
        raise PlanError(
            f"stage {name!r}: its worker process cannot rebuild the functions and objects sent to it "
            f"({type(error).__name__}: {error}). Modules they come from must be importable there: install the package, "
            "or put its folder on PYTHONPATH"
        ) from error
    return task


def main(parent_pid: int, socket_fd: int, crash_fd: int, mark_fd: int) -> None:
    """Run a worker over an inherited socket; returns when the parent has closed it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends us in good order
    die_with_parent(parent_pid)
    for fd in (socket_fd, crash_fd, mark_fd):
        os.set_inheritable(fd, False)
    faulthandler.enable(open(crash_fd, "wb", closefd=False))  # noqa: SIM115 - stays open as long as the process
    wire = Wire(socket.socket(fileno=socket_fd))
    # A fork that the user's code makes must not write into the middle of our frames, nor keep the socket open.
    os.register_at_fork(after_in_child=wire.abandon)
    try:
        Worker(wire, MarkedCalls(Mark(mark_fd)), parent_pid).run()
    except OSError:  # of the socket: those of the user's code are sent
        os._exit(LOST_STATUS)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
