"""How a worker process is started, and how it is kept from outliving its parent."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.engine.processes.logs import LogLevels

WORKER_MODULE = "headrace.engine.processes.worker"

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "PJRT_NPROC",  # JAX
)
"""What numeric libraries read to size their thread pools, when they are loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a worker is told before its task."""

    name: str
    sys_path: list[str]
    argv: list[str]
    """The parent's arguments: what a script's functions find in `sys.argv` does not depend on where they run."""
    pythonpath: str | None
    """The parent's PYTHONPATH, which finding Headrace in the parent's path replaced for the start."""
    levels: LogLevels


def thread_environment(share_of_cores: int) -> dict[str, str]:
    """Return the variables that hold a worker's libraries to its share of the cores, save those the user has set.

    >>> sorted(thread_environment(2).values())[0] if "OMP_NUM_THREADS" not in os.environ else "2"
    '2'
    """
    threads = str(max(1, share_of_cores))
    return {name: threads for name in THREAD_VARIABLES if name not in os.environ}


def start_worker(fds: Sequence[int], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker by exec; it inherits the given descriptors (socket, crash dump) and no others.

    The worker has a session of its own: Ctrl-C in a terminal reaches the parent alone, and a worker can be killed
    together with whatever the user's code has started in it.
    """
    options = [argument for option in sys.warnoptions for argument in ("-W", option)]
    # -P: the current folder must not come before the installed packages. The parent's whole path is handed over
    # instead, for finding Headrace itself too; the worker restores PYTHONPATH.
    command = [sys.executable, "-P", *options, "-m", WORKER_MODULE, str(os.getpid()), *map(str, fds)]
    path = os.pathsep.join(p for p in sys.path if p)
    return _starter.run(command, tuple(fds), {**os.environ, **env, "PYTHONPATH": path})


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to end this process with its parent (Linux), even in the middle of a native call.

    Elsewhere the end of the socket has to do.
    """
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)  # it was gone before we could ask


class _Starter:
    """Starts processes from one thread that stays.

    Linux takes the *thread* that started a process for its parent, where the process wants to end with its parent.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Future[Any], Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pid = 0

    def run(self, command: Sequence[str], pass_fds: tuple[int, ...], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._pid != os.getpid():  # the first order, in this process or in a fork of it
                threading.Thread(target=self._serve, name="headrace-starter", daemon=True).start()
                self._pid = os.getpid()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._orders.put((future, (command, pass_fds, env)))
        return future.result()

    def _serve(self) -> None:
        while True:
            future, (command, pass_fds, env) = self._orders.get()
            try:
                process = subprocess.Popen(  # our own interpreter and module
                    command, pass_fds=pass_fds, env=env, stdin=subprocess.DEVNULL, start_new_session=True
                )
                future.set_result(process)
            except BaseException as error:  # goes to whoever ordered it
                future.set_exception(error)
            del future


_starter = _Starter()
