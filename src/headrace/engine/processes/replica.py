"""A task in a worker process, with the interface of a task."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.engine.processes.crashes import describe_exit, last_frames
from headrace.engine.processes.logs import LogLevels, deliver
from headrace.engine.processes.mark import Mark
from headrace.engine.processes.memory_killer import oom_kills
from headrace.engine.processes.patience import Patience
from headrace.engine.processes.pool import Pool
from headrace.engine.processes.remote_errors import unpack_error
from headrace.engine.processes.shared_blocks import Parcel, pack_bytes, unpack_block
from headrace.engine.processes.shared_files import anonymous_file
from headrace.engine.processes.start import Hello, start_worker, thread_environment
from headrace.engine.processes.travel import pack
from headrace.engine.processes.wire import Frame, Kind, Wire
from headrace.errors import HeadraceError, RunError, WorkerCrashedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.engine.processes.pool import Loan
    from headrace.engine.processes.shared_files import SharedFile
    from headrace.engine.processes.suspects import Sentence
    from headrace.engine.task import StepCounts, Task
    from headrace.model.calls import Call
    from headrace.records.block import Block

_EXIT_GRACE_SECS = 5.0
"""How long a worker may take to exit once its task is closed: threads and exit handlers of the user's code."""


class ProcessReplica:
    """Runs a task in a worker process of its own. One thread at a time drives it; any thread may `kill()` it.

    The task is pickled when the replica is opened; errors of the worker's task are raised here as themselves.
    """

    def __init__(
        self,
        task: Task,
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        limits_secs: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        """Prepare a replica of stage `name`; nothing is started yet.

        `env` is added to the worker's environment; by default it holds numeric libraries to one thread. `limits_secs`
        says how long a call may take, by number of the step; a worker that takes longer is killed.
        """
        self._task = task
        self._name = name
        self._env = thread_environment(1) if env is None else env
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Wire | None = None
        self._pool = Pool()
        self._telling_os_errors = _TellingOsErrors(name)
        self._crash_fd: int | None = None
        self._mark: Mark | None = None
        self._patience = Patience(limits_secs)
        self._oom_kills = 0
        self._counts: Mapping[str, StepCounts] = {}
        self._statistics: Any = None
        self._killed = False

    @property
    def pid(self) -> int | None:
        """The worker's process id, once it has been started."""
        return self._process.pid if self._process else None

    def mark(self) -> tuple[int, Call | None]:
        """Return how often the worker has begun or ended a call, and the call that it is in; from any thread."""
        mark = self._mark
        return (0, None) if mark is None else mark.read()

    def open(self) -> None:
        """Start the worker and open the task in it.

        Raises:
            PlanError: the task cannot be pickled, or not be rebuilt in the worker.
            WorkerCrashedError: the worker died.
            HeadraceError: what the task's own `open()` raised.
        """
        task = pack(self._task, f"stage {self._name!r}")
        with self._telling_os_errors:
            self._start()
            if self._killed:
                self.kill()
            data = pack_bytes(task)
        hello = Hello(
            name=self._name,
            sys_path=list(sys.path),
            argv=list(sys.argv),
            pythonpath=os.environ.get("PYTHONPATH"),
            levels=LogLevels.here(),
        )
        self._send(Kind.HELLO, hello, data)
        self._counts, self._statistics = self._receive(Kind.OPENED).value

    def pack(self, block: Block) -> Parcel:
        """Pack a block for `process`, so that nobody has to keep it for the case that the worker dies."""
        with self._telling_os_errors:
            return Parcel(block, self._pool)

    def process(
        self, block: Block | Parcel, sentences: Mapping[Call, Sentence] = MappingProxyType({})
    ) -> Iterator[Block]:
        """Send a block and yield its pieces while the worker works, which never gets more than two pieces ahead.

        `sentences` names calls that the worker must not make.

        Raises:
            WorkerCrashedError: the worker died, or was killed by `kill()`.
            HeadraceError: what the task raised.
        """
        parcel = block if isinstance(block, Parcel) else self.pack(block)
        with self._telling_os_errors:
            payload = parcel.payload(self._pool)
        self._send(Kind.BLOCK, (parcel.head, dict(sentences)), payload)
        if parcel is not block:
            parcel.close()
        del block, parcel, payload  # the worker has it now: the memory here may go
        while (frame := self._receive(Kind.PIECE, Kind.DONE)).kind is Kind.PIECE:
            piece_head, self._counts = frame.value
            assert frame.data is not None
            piece = unpack_block(piece_head, frame.data)
            del frame
            yield piece
            del piece
            self._send(Kind.MORE)
        last_head, counts, statistics = frame.value
        if counts is not None:
            self._counts, self._statistics = counts, statistics
        if last_head is not None:
            assert frame.data is not None
            piece = unpack_block(last_head, frame.data)
            del frame
            yield piece

    def counts(self) -> Mapping[str, StepCounts]:
        """Return the counts as of the last piece, or of a moment before it where the task answers at once."""
        return self._counts

    def statistics(self) -> Any:
        """Return what the task's own `statistics()` said lately, and at the end; None where it has none."""
        return self._statistics

    def close(self, *, grace_secs: float = 10.0) -> None:
        """Close the task and end the worker, by force when it takes longer than `grace_secs`; safe to call twice.

        Raises:
            HeadraceError: what the task's own `close()` raised.
        """
        if self._process is None or self._wire is None:
            return
        error = None
        try:
            if not self._killed and self._process.poll() is None:
                error = self._say_goodbye(grace_secs)
        finally:
            self.kill()
            self._process.wait()
            self._release()
        if error is not None:
            raise error

    def kill(self) -> None:
        """End the worker and all that the user's code has started in it, at once; from any thread."""
        process = self._process
        if process is not None and process.returncode is not None:
            return
        self._killed = True
        if process is None:
            return  # it is being started at this moment, or never will be: `open` looks
        _kill_group(process.pid)
        process.kill()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._crash_fd = anonymous_file("headrace-crash")
        mark_fd = anonymous_file("headrace-mark")
        self._oom_kills = oom_kills()
        try:
            self._mark = Mark(mark_fd)
            self._process = start_worker((theirs.fileno(), self._crash_fd, mark_fd), self._env)
        except BaseException:
            ours.close()
            self._release()
            raise
        finally:
            theirs.close()
            os.close(mark_fd)
        self._wire = Wire(ours)

    def _say_goodbye(self, grace_secs: float) -> HeadraceError | None:
        """Let the worker close its task and exit; return what the task raised."""
        assert self._wire is not None
        assert self._process is not None
        deadline = time.monotonic() + grace_secs
        error = None
        try:
            self._wire.send(Kind.CLOSE)
            while (frame := self._wire.receive(lambda: self._check_before(deadline))) is not None:
                self._check_before(deadline)
                if frame.kind is Kind.LOG:
                    deliver(frame.value, process_name=self._name)
                elif frame.kind is Kind.CLOSED:
                    self._counts, self._statistics, remote = frame.value
                    error = unpack_error(remote, stage=self._name) if remote else None
                    self._process.wait(_EXIT_GRACE_SECS)
                    break
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            pass  # it died on its own, or is about to be killed
        return error

    @staticmethod
    def _check_before(deadline: float) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError

    def _release(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        if self._crash_fd is not None:
            os.close(self._crash_fd)
            self._crash_fd = None
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        self._pool.close()

    def _send(self, kind: Kind, value: Any = None, data: bytes | SharedFile | Loan | None = None) -> None:
        assert self._wire is not None, "the replica is not open"
        try:
            self._wire.send(kind, value, data)
        except OSError:
            raise self._crash() from None

    def _receive(self, *wanted: Kind) -> Frame:
        assert self._wire is not None, "the replica is not open"
        while True:
            with self._telling_os_errors:
                frame = self._wire.receive(self._look, every_secs=self._patience.look_secs)
            if frame is None:
                raise self._crash()
            if frame.kind is Kind.LOG:
                deliver(frame.value, process_name=self._name)
                self._look()  # who talks may hang all the same
            elif frame.kind is Kind.FAILED:
                raise unpack_error(frame.value, stage=self._name)
            else:
                assert frame.kind in wanted, (frame.kind, wanted)
                return frame

    def _look(self) -> None:
        """Notice a call that takes too long, and a death that does not close the socket: children may hold it open."""
        assert self._process is not None
        assert self._mark is not None
        if self._process.poll() is not None:
            raise self._crash()
        changes, call = self._mark.read()
        if self._patience.is_over(changes, call, time.monotonic()):
            self.kill()
            self._process.wait()
            raise self._lost("was killed, since a call took longer than its timeout_secs", call, timed_out=True)

    def _crash(self) -> WorkerCrashedError:
        assert self._process is not None
        assert self._mark is not None
        try:
            returncode = self._process.wait(_EXIT_GRACE_SECS)
        except subprocess.TimeoutExpired:
            self.kill()
            returncode = self._process.wait()
        if self._killed:
            return WorkerCrashedError(f"stage {self._name!r}: its worker process was stopped")
        _kill_group(self._process.pid)
        out_of_memory = returncode == -signal.SIGKILL and oom_kills() > self._oom_kills
        how = describe_exit(returncode, out_of_memory=out_of_memory)
        frames = last_frames(self._crash_dump())
        _, call = self._mark.read()
        return self._lost(f"{how}\nIt was here:\n{frames}" if frames else how, call, out_of_memory=out_of_memory)

    def _lost(self, how: str, call: Call | None, **facts: bool) -> WorkerCrashedError:
        assert self._process is not None
        how = f"its worker process (pid {self._process.pid}) {how}"
        error = WorkerCrashedError(f"stage {self._name!r}: {how}")
        error.__dict__.update(how=how, call=call, **facts)
        return error

    def _crash_dump(self) -> str:
        if self._crash_fd is None:
            return ""
        return os.pread(self._crash_fd, 100_000, 0).decode(errors="replace")


class _TellingOsErrors:
    """Turns what the system refuses (processes, descriptors, memory) into an error for the user.

    It stands around every frame; `contextlib` would take several times longer.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise RunError(
                f"stage {self._stage!r}: the system refuses what a worker process needs: {error}. Use a smaller "
                "concurrency=, or raise the limits of open files and processes (ulimit -n, ulimit -u)"
            ) from error


def _kill_group(worker_pid: int) -> None:
    """End what a worker has started, and the worker; its group is there as long as any of them is."""
    # macOS says "not permitted" of a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker_pid, signal.SIGKILL)
