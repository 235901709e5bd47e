"""Whether the kernel has killed for want of memory: it counts that, for a container and for the machine."""

from __future__ import annotations

import re
from pathlib import Path


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel's out-of-memory killer has ended, as far as this process can see; else 0.

    Looked at before and after a process was killed by SIGKILL, it tells an end for want of memory from one by hand.
    """
    return sum(_count(path) for path in (*_of_the_control_group(root), root / "proc/vmstat"))


def _of_the_control_group(root: Path) -> list[Path]:
    """Return the files in which control groups of version 2 and 1 count, for the group that this process is in."""
    found: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.events"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.oom_control"
        else:
            continue
        # A container often sees its own group at the top, under the path that it has outside.
        inner = top / group.lstrip("/") / name
        found.append(inner if inner.exists() else top / name)
    return found


def _count(path: Path) -> int:
    try:
        match = re.search(r"^oom_kill (\d+)$", path.read_text(), flags=re.MULTILINE)
    except OSError:
        return 0
    return int(match.group(1)) if match else 0
