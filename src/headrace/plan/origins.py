"""Where code comes from: the standard library, an installed package, or the user."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Literal, TypeAlias

Origin: TypeAlias = Literal["standard", "installed", "user"]


@functools.cache
def origin_of(module: str | None) -> Origin:
    """Say where a module comes from; what cannot be found is the user's.

    Headrace itself is "installed" also where it runs from a checkout.

    >>> origin_of("json.decoder"), origin_of("numpy.linalg"), origin_of("__main__")
    ('standard', 'installed', 'user')
    """
    if not module or module == "__main__":
        return "user"
    top = module.partition(".")[0]
    if top == "headrace":
        return "installed"
    if top in sys.stdlib_module_names:
        return "standard"
    return "installed" if _is_installed(file_of(module)) or top in _installed_beside(file_of(top)) else "user"


@functools.cache
def version_of(module: str) -> str:
    """Return the version of the distribution that an installed module belongs to, without its build's name.

    >>> import numpy
    >>> version_of("numpy.linalg") == numpy.__version__
    True
    """
    top = module.partition(".")[0]
    # What code uses is loaded, and says it itself; reading the metadata of a distribution takes milliseconds.
    version = getattr(sys.modules.get(top), "__version__", None)
    if not isinstance(version, str):
        version = _distribution_version(top)
    if version is None:
        import importlib.metadata

        names = importlib.metadata.packages_distributions().get(top, [])
        version = ", ".join(_distribution_version(name) or "" for name in sorted(set(names)))
    return version.partition("+")[0]


def file_of(module: str) -> str | None:
    """Return the file (or folder) of a module, without importing anything; None if there is none."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        file = getattr(loaded, "__file__", None) or next(iter(getattr(loaded, "__path__", [])), None)
        return None if file is None else str(file)
    spec = _found(module)
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or []), None)


def is_reachable(obj: Any, module: Any, qualname: Any) -> bool:
    """Say whether an object of an installed module is found there under its own name."""
    if not isinstance(module, str) or not isinstance(qualname, str) or origin_of(module) == "user":
        return False
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found is obj


def _found(module: str) -> importlib.machinery.ModuleSpec | None:
    """Find a module as the import system does, which would import its parent packages, however."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _installed_beside(file: str | None) -> frozenset[str]:
    """Return the top modules that pip has installed where one lies: into a --target, or a layer of a function."""
    if file is None:
        return frozenset()
    path = Path(file)
    return _installed_into(str(path.parent.parent if path.name == "__init__.py" else path.parent))


@functools.cache
def _installed_into(folder: str) -> frozenset[str]:
    if not any(name.endswith((".dist-info", ".egg-info")) for name in _names_in(folder)):
        return frozenset()  # before the import of what would look closer, which takes longer than all else here
    import importlib.metadata

    found = set()
    for distribution in importlib.metadata.distributions(path=[folder]):
        if distribution.read_text("RECORD") is not None:  # which a project under development has not
            found |= {file.parts[0].removesuffix(".py") for file in distribution.files or ()}
    return frozenset(found)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:  # a zip file, say
        return []


def _distribution_version(name: str) -> str | None:
    import importlib.metadata  # milliseconds, and seldom needed

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_installed(file: str | None) -> bool:
    if file is None:
        return False
    if "/site-packages/" in file or "/dist-packages/" in file:
        return True
    return any(file.startswith(sysconfig.get_path(key) + "/") for key in ("purelib", "platlib"))
