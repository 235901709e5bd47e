"""How much memory this process may use: the machine's, or less where a container says so."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")

_LIMITS = {"": ("memory.max", "memory.high"), "memory": ("memory.limit_in_bytes",)}
"""By controller, as /proc/self/cgroup names it ("" is version 2): the files that hold a limit."""


def available_memory() -> int:
    """Return the bytes of memory that this process and its children may use in all."""
    try:
        membership = Path("/proc/self/cgroup").read_text()
    except OSError:  # no Linux
        membership = ""
    return min([physical_memory(), *cgroup_limits(membership, CGROUPS)])


def physical_memory() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cgroup_limits(membership: str, mount: Path) -> list[int]:
    """Return every limit that holds for a process: its own groups' and those of all groups above them.

    `membership` is the text of /proc/self/cgroup, `mount` where the groups are to be seen. Inside a container the
    group's path may be the host's; then only its end, or nothing but the mount itself, is there.
    """
    limits: list[int] = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in {"", "memory"}.intersection(controllers.split(",")):
            group = PurePosixPath(path.lstrip("/"))
            for above in (group, *group.parents):
                limits += [limit for name in _LIMITS[controller] if (limit := _read(mount / controller / above / name))]
    return limits


def _read(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is none
