"""What the disk refuses, said so that a person can act on it."""

from __future__ import annotations

import errno
import os
import shutil

from headrace.errors import SinkError

FULL = (errno.ENOSPC, errno.EDQUOT)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def cannot_write(path: str, error: OSError) -> SinkError:
    """Return the error that says what, where and what to do next.

    >>> print(cannot_write("out/part-00000.csv", PermissionError(13, "Permission denied")))
    cannot write out/part-00000.csv: permission denied; give this user the right to write there, or choose another \
output
    """
    return SinkError(f"cannot write {path}: {_reason(path, error)}")


def _reason(path: str, error: OSError) -> str:
    if error.errno in FULL:
        return (
            f"the disk is full{_free(path)}; free some space and run the same command again,"
            " what is finished stays and is not done again"
        )
    if error.errno == errno.EFBIG:
        return "the file grows beyond what is allowed; raise the limit (ulimit -f), or ask for smaller parts"
    if error.errno in FORBIDDEN:
        read_only = error.errno == errno.EROFS
        why = "the file system is read-only" if read_only else "permission denied"
        return f"{why}; give this user the right to write there, or choose another output"
    if error.errno in IN_THE_WAY:
        return "a file or folder of another kind is in the way; move it, or choose another output"
    text = error.strerror or str(error) or type(error).__name__
    return f"{text}; mend it and run the same command again, what is finished stays"


def _free(path: str) -> str:
    folder = os.path.abspath(path)
    while folder != os.path.dirname(folder) and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f" ({free / 1e6:.0f} MB free)"
