"""Anonymous files: memory that travels between processes as a descriptor."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedFile:
    """An anonymous file with `size` bytes in it from `offset` on; whoever holds one closes it."""

    fd: int
    size: int
    offset: int = 0

    def close(self) -> None:
        """Give the descriptor up; mappings of the file stay."""
        os.close(self.fd)


def anonymous_file(name: str) -> int:
    """Open an empty file that no folder lists, and that is gone with its last descriptor and mapping."""
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create(name, os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix=name)
    os.unlink(path)
    return fd
