"""Whether the package behind a handler is here, found out without importing it."""

from __future__ import annotations

import importlib.util

from headrace.errors import MissingDependencyError


def is_installed(module: str) -> bool:
    """Say whether a top-level module could be imported.

    >>> is_installed("json"), is_installed("no_such_framework")
    (True, False)
    """
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def require(module: str, *, package: str, extra: str, needed_by: str) -> None:
    """Raise if a module is not installed.

    Raises:
        MissingDependencyError: it is not; names the pip command.
    """
    if not is_installed(module):
        raise MissingDependencyError(package, extra=extra, needed_by=needed_by)
