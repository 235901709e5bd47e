"""What can be sent to a worker process, and which part of an object cannot."""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_DEPTH = 20


def pack(obj: Any, what: str) -> bytes:
    """Pickle an object for a worker; functions and classes of `__main__` go by value.

    Raises:
        PlanError: some part of it cannot be pickled; the message names the part.
    """
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(obj)
    except Exception as error:
        path, part = _culprit(obj)
        where = f"{path} of {what}" if path else what
        raise PlanError(
            f"{where} is a {_type_name(part)} and cannot be sent to a worker process ({error}). "
            "Make it inside the worker, in setup() of a callable class or in load_model() of a handler, "
            'or keep the stage in this process with isolation="thread"'
        ) from error
    return data


def check_can_travel(obj: Any, what: str) -> None:
    """Raise unless an object can be sent to a worker process; `what` names it, as in "function of step 'map_1'".

    >>> check_can_travel(len, "function of step 'map_1'")
    >>> import threading
    >>> lock = threading.Lock()
    >>> check_can_travel(lambda row: lock, "function of step 'map_1'")
    Traceback (most recent call last):
    headrace.errors.PlanError: global lock of function of step 'map_1' is a _thread.lock and cannot be sent ...

    Raises:
        PlanError: it cannot; the message names the part that cannot, and what to do.
    """
    pack(obj, what)


def _culprit(obj: Any) -> tuple[str, Any]:
    """Follow the parts that fail to pickle down to the last one; return the path to it, innermost first, and itself."""
    path: list[str] = []
    seen: set[int] = set()
    while len(path) < _MAX_DEPTH and id(obj) not in seen:
        seen.add(id(obj))
        failing = next(((label, part) for label, part in _parts(obj) if not _pickles(part)), None)
        if failing is None:
            break
        path.append(failing[0])
        obj = failing[1]
    return " of ".join(reversed(path)), obj


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the named parts that pickling an object would pickle."""
    if isinstance(obj, types.FunctionType):
        closure = inspect.getclosurevars(obj)
        yield from ((f"variable {name}", value) for name, value in closure.nonlocals.items())
        yield from ((f"global {name}", value) for name, value in closure.globals.items())
        yield from ((f"default {i}", value) for i, value in enumerate(obj.__defaults__ or ()))
        yield from ((f"default {name}", value) for name, value in (obj.__kwdefaults__ or {}).items())
    elif isinstance(obj, types.MethodType):
        yield f"object of method {obj.__name__}", obj.__self__
    elif isinstance(obj, functools.partial):
        yield "function of the partial", obj.func
        yield from ((f"argument {i}", value) for i, value in enumerate(obj.args))
        yield from ((f"argument {name}", value) for name, value in obj.keywords.items())
    elif isinstance(obj, dict):
        yield from ((f"item {key!r:.40}", value) for key, value in obj.items())
    elif isinstance(obj, (list, tuple, set, frozenset)):
        yield from ((f"item {i}", value) for i, value in enumerate(obj))
    elif isinstance(obj, type):
        yield from ((f"attribute {name} of class {obj.__name__}", value) for name, value in vars(obj).items())
    else:
        state = dict(getattr(obj, "__dict__", {}))
        for cls in type(obj).__mro__:
            slots = vars(cls).get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if hasattr(obj, slot):
                    state[slot] = getattr(obj, slot)
        owner = type(obj).__name__
        yield from ((f"attribute {name} of {owner}", value) for name, value in state.items())


def _pickles(obj: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(obj)
    except Exception:  # objects may raise anything here
        return False
    return True


def _type_name(obj: Any) -> str:
    cls = type(obj)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
