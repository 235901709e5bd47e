"""What the exit status of a dead worker means, in words that help."""

from __future__ import annotations

import re
import signal

_ADVICE = {
    signal.SIGKILL: (
        "The kernel tells of no kill for want of memory: so a person, a scheduler or a memory watcher did it, and the "
        "system's log may tell which"
    ),
    signal.SIGSEGV: "A native library that the stage uses crashed; isolate the row or update the library",
    signal.SIGBUS: "A native library crashed, or shared memory ran out: use a smaller concurrency=, or more memory",
    signal.SIGABRT: "A native library that the stage uses gave up; its message is above, on stderr",
    signal.SIGILL: "A native library was built for another processor; install a build for this one",
    signal.SIGTERM: "Somebody or something stopped it",
}


LOST_STATUS = 121
"""With this a worker exits whose socket to its parent has been closed by the code that it runs."""
_LOST = (
    "can no longer speak to this process. Does the code of the stage close file descriptors that it has not opened, "
    "as os.closerange does?"
)

OUT_OF_MEMORY = (
    "was killed by the kernel's out-of-memory killer. Use a smaller concurrency= or batch_size=, or more memory"
)


def describe_exit(returncode: int, *, out_of_memory: bool = False) -> str:
    """Say how a process ended, as `subprocess` codes it (negative: a signal).

    >>> describe_exit(3)
    'exited with status 3. Does the code of the stage call os._exit?'
    >>> describe_exit(-9).split(":")[0]
    'was killed by signal 9 (SIGKILL). The kernel tells of no kill for want of memory'
    """
    if out_of_memory:
        return OUT_OF_MEMORY
    if returncode == LOST_STATUS:
        return _LOST
    if returncode >= 0:
        return f"exited with status {returncode}. Does the code of the stage call os._exit?"
    try:
        number = signal.Signals(-returncode)
    except ValueError:
        return f"was killed by signal {-returncode}"
    advice = _ADVICE.get(number)
    return f"was killed by signal {number.value} ({number.name})" + (f". {advice}" if advice else "")


def last_frames(dump: str, limit: int = 5) -> str:
    r"""Return the innermost Python frames of the crashing thread from what `faulthandler` wrote, or "".

    Those of the engine, which has called the user's code, are left out.

    >>> last_frames('Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n'
    ...             '  File "model.py", line 3 in run\n  File "/lib/headrace/engine/steps.py", line 9 in run\n')
    'File "model.py", line 3 in run'
    """
    _, _, current = dump.partition("Current thread")
    frames = re.findall(r'^  (File ".*", line \d+ in .*)$', current.split("\n\n")[0], flags=re.MULTILINE)
    return "\n".join(frame for frame in frames[:limit] if "/headrace/engine/" not in frame)
