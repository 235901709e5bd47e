"""`module:function`: how a pipeline in YAML names the user's code."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from headrace.errors import PlanError, suggestion


def load_reference(reference: str) -> Any:
    """Import what a reference such as "steps:clean" or "pkg.steps:Model.score" names.

    Modules are looked for in the current folder first, then among the installed packages.

    >>> load_reference("math:sqrt")(9.0)
    3.0
    >>> load_reference("math:sqroot")
    Traceback (most recent call last):
    headrace.errors.PlanError: module 'math' has no 'sqroot'; did you mean 'sqrt'?
    """
    module_name, colon, name = reference.partition(":")
    if not (colon and _dotted(module_name) and _dotted(name)):
        raise PlanError(f"{reference!r} names no code; write it as module:function, for instance steps:clean")
    value: Any = _import(module_name)
    owner = f"module {module_name!r}"
    for part in name.split("."):
        if not hasattr(value, part):
            raise PlanError(f"{owner} has no {part!r};{_near(part, value)}")
        value = getattr(value, part)
        owner = f"{owner.replace('module ', '')} {part!r}"
    return value


def load_function(reference: str) -> Any:
    """Import a function, or a class whose instances are called."""
    value = load_reference(reference)
    if not callable(value):
        raise PlanError(f"{reference!r} is no function but a {type(value).__name__}")
    return value


def _dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _near(name: str, owner: Any) -> str:
    names = [known for known in vars(owner) if not known.startswith("_")] if hasattr(owner, "__dict__") else []
    mine = [known for known in names if getattr(getattr(owner, known), "__module__", None) == owner.__name__]
    return suggestion(name, names) or f" it has {', '.join(sorted(mine or names)[:10]) or 'no names at all'}"


def _import(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        # Scripts that pip installs do not look into the current folder by themselves.
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise PlanError(f"importing {name!r} failed: {error}; install that package") from error
        files = [file.stem for file in Path(here).glob("*.py")]
        hint = suggestion(name, files) or " it is looked for in the current folder and among the installed packages"
        raise PlanError(f"there is no module {name!r};{hint}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may do anything when imported, sys.exit() too
        raise PlanError(f"importing {name!r} failed: {type(error).__name__}: {error}{_where(error)}") from error


def _where(error: BaseException) -> str:
    """Name the line of the user's file that an import failed at."""
    if isinstance(error, SyntaxError):
        return ""  # its text names file and line
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
