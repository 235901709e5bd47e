"""Fingerprints: whether two runs use the same functions, settings and models, decided by content.

Code of the user counts by what it does, with all it refers to: names of files, line numbers, docstrings and comments
never count. Code of installed packages counts by name and version. What has no content to speak of (an open file, a
lock) is refused, with the path to it. Bytecode differs between minor versions of Python, so fingerprints do too.
"""

from __future__ import annotations

import contextlib
import copyreg
import enum
import functools
import hashlib
import importlib.util
import io
import logging
import pathlib
import re
import socket
import struct
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.plan.class_content import attributes_of
from headrace.plan.code_content import instructions, uses
from headrace.plan.data_content import LEAVES, Arrow, array_bytes, arrow_digest, arrow_type_bytes, tensor_array
from headrace.plan.origins import is_reachable, origin_of, version_of
from headrace.plan.source_content import source_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

HOOK = "__headrace_fingerprint__"


class Unfingerprintable(Exception):  # noqa: N818 - a fact, told to the user where a run cannot be resumed
    """Something has no content that could be compared; the text says what it is and where."""


def fingerprint(obj: Any) -> str:
    """Return a hex digest of what an object is and does; equal in every process, on every machine of one platform.

    Functions and classes of the user count by content, together with their globals, closures, defaults and bases.
    An object whose class has a method `__headrace_fingerprint__()` counts by what that returns.

    >>> fingerprint(lambda row: row["age"] + 1) == fingerprint(lambda row: row["age"] + 1)
    True
    >>> fingerprint(lambda row: row["age"] + 1) == fingerprint(lambda row: row["age"] + 2)
    False
    >>> fingerprint({"model": threading.Lock()})
    Traceback (most recent call last):
    headrace.plan.fingerprint.Unfingerprintable: item 'model' is a lock

    Raises:
        Unfingerprintable: some part of it has no content.
    """
    walk = _Walk()
    try:
        walk.visit(obj)
    except Unfingerprintable:
        raise
    except RecursionError:
        raise Unfingerprintable("it is nested too deeply") from None
    except Exception as error:  # from properties, hooks and __reduce__ methods of the user's, or source that is gone
        raise walk.refusal(f"not to be looked into: {type(error).__name__}: {error}") from error
    return walk.digest().hex()


class _Walk:
    """Visits an object graph depth first and hashes what it meets; what it meets again counts by its number."""

    def __init__(self, path: tuple[str, ...] = (), sets_above: frozenset[int] = frozenset()) -> None:
        self._hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        """Keeps what was numbered, so that no other object gets its id."""
        self._path = list(path)
        self._sets_above = sets_above

    def digest(self) -> bytes:
        return self._hash.digest()

    def refusal(self, kind: str) -> Unfingerprintable:
        where = " in ".join(reversed(self._path[-4:])) or "it"
        return Unfingerprintable(f"{where} is {kind}")

    def visit(self, obj: Any) -> None:
        leaf = LEAVES.get(type(obj))
        if leaf is not None:
            self._put(type(obj).__name__, leaf(obj))
            return
        if type(obj) is tuple:  # has no identity of its own: equal constants may be one object or several
            self._items("tuple", obj)
            return
        number = self._numbers.get(id(obj))
        if number is not None:
            self._put("again", str(number).encode())
            return
        self._numbers[id(obj)] = len(self._numbers)
        self._alive.append(obj)
        exact = _EXACT.get(type(obj))
        if exact is not None:
            exact(self, obj)
        elif not isinstance(obj, type) and hasattr(type(obj), HOOK):
            self._text("hook", type(obj).__qualname__)
            self.visit(getattr(obj, HOOK)())
        else:
            visitor = next((v for kind, v in _VISITORS if isinstance(obj, kind)), _Walk._instance)
            visitor(self, obj)

    # What is written: a tag, a length and bytes, so that no two graphs write the same.

    def _put(self, tag: str, data: bytes | memoryview = b"") -> None:
        name = tag.encode()
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        self._hash.update(struct.pack("<BQ", len(name), size) + name)
        self._hash.update(data)

    def _text(self, tag: str, text: str) -> None:
        self._put(tag, text.encode("utf8", "surrogatepass"))

    def _inside(self, label: str, value: Any) -> None:
        self._path.append(label)
        self.visit(value)
        self._path.pop()  # not in a finally: a refusal reads the path where it happened

    def _items(self, tag: str, items: Iterable[Any]) -> None:
        values = list(items)
        self._put(tag, str(len(values)).encode())
        for i, value in enumerate(values):
            self._inside(f"item {i}", value)

    def _named(self, tag: str, items: Iterable[tuple[str, Any]], label: str = "attribute") -> None:
        values = list(items)
        self._put(tag, str(len(values)).encode())
        for name, value in values:
            self._text("name", name)
            self._inside(f"{label} {name}", value)

    def _by_name(self, tag: str, module: str, name: str) -> None:
        version = version_of(module) if origin_of(module) == "installed" else ""
        self._text(tag, f"{module}:{name} {version}")

    # Containers and data.

    def _list(self, obj: list[Any]) -> None:
        self._items("list", obj)

    def _dict(self, obj: dict[Any, Any] | types.MappingProxyType[Any, Any]) -> None:
        self._put("dict", str(len(obj)).encode())
        for key, value in obj.items():
            self.visit(key)
            self._inside(f"item {key!r:.40}", value)

    def _set(self, obj: set[Any] | frozenset[Any]) -> None:
        if id(obj) in self._sets_above:
            self._put("set around this")
            return
        self.visit(type(obj))
        digests = []
        for value in obj:  # in an order that depends on the hash seed, hence each item for itself
            walk = _Walk((*self._path, "an item of the set"), self._sets_above | {id(obj)})
            walk.visit(value)
            digests.append(walk.digest())
        self._put("set", b"".join(sorted(digests)))

    def _array(self, obj: NDArray[Any]) -> None:
        self._text("array", f"{obj.dtype.str} {obj.shape}")
        if obj.dtype.names:
            self._named("fields", ((name, obj[name]) for name in obj.dtype.names), "field")  # skips the padding
        elif obj.dtype.hasobject:
            self._items("objects", obj.reshape(-1).tolist())
        else:
            self._put("bytes", array_bytes(obj))

    def _numpy_scalar(self, obj: np.generic) -> None:
        self._array(np.asarray(obj))

    def _dtype(self, obj: np.dtype[Any]) -> None:
        self._text("dtype", repr(obj.descr if obj.names else obj.str))

    def _arrow(self, obj: pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray) -> None:
        self._put("arrow", arrow_digest(obj))

    def _arrow_type(self, obj: pa.Schema | pa.DataType) -> None:
        self._put("arrow type", arrow_type_bytes(obj))

    def _file_path(self, obj: pathlib.PurePath) -> None:
        self._text("path", str(obj))

    def _pattern(self, obj: re.Pattern[Any]) -> None:
        self.visit(("pattern", obj.pattern, obj.flags))

    def _enum(self, obj: enum.Enum) -> None:
        self._text("member", str(obj.name))
        self.visit(type(obj))

    def _logger(self, _obj: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self._put("logger")  # says what happens, changes nothing

    # Code.

    def _function(self, obj: types.FunctionType) -> None:
        module = obj.__globals__.get("__name__")  # where the code is: wrappers bear the name of what they wrap
        foreign = origin_of(module) != "user"
        registry = getattr(obj, "registry", None)
        if foreign:
            self._by_name("function", str(module), obj.__code__.co_qualname)
            if is_reachable(obj, obj.__module__, obj.__qualname__):
                return
            if isinstance(registry, types.MappingProxyType):  # made by functools.singledispatch
                self.visit(registry)
                return
        self._path.append(f"function {obj.__qualname__}")
        self._instructions(obj.__code__)
        if not foreign:
            self._references(obj.__code__, obj.__globals__)
        self._items("defaults", obj.__defaults__ or ())
        self._named("keywords", sorted((obj.__kwdefaults__ or {}).items()), "default")
        self._closure(obj)
        self._path.pop()

    def _instructions(self, code: types.CodeType) -> None:
        steps = list(instructions(code))
        self._put("code", str(len(steps)).encode())
        for operation, operand in steps:
            self._text("do", operation)
            if isinstance(operand, types.CodeType):
                self._instructions(operand)
            else:
                self.visit(operand)

    def _references(self, code: types.CodeType, global_values: dict[str, Any]) -> None:
        used = uses(code)
        for name, attributes in sorted(used.globals.items()):
            if name not in global_values:
                continue
            value = global_values[name]
            self._text("global", name)
            if attributes is not None and isinstance(value, types.ModuleType) and origin_of(value.__name__) == "user":
                # Of a module of the user's own, only what is used counts.
                here = [(a, getattr(value, a)) for a in sorted(attributes) if hasattr(value, a)]
                self._named("of module", here, f"global {name}:")
            else:
                self._inside(f"global {name}", value)
        for name, taken in sorted(used.imports):
            with contextlib.suppress(ImportError):
                module = importlib.util.resolve_name(name, global_values.get("__package__") or "")
                self._imported(module, taken)

    def _imported(self, module: str, taken: tuple[str, ...] = ()) -> None:
        if origin_of(module) == "user":
            for name in (module, *(f"{module}.{name}" for name in taken)):  # what is taken may be a module itself
                self._items("module", source_content(name))
        else:
            self._by_name("module", module, "")

    def _module(self, obj: types.ModuleType) -> None:
        self._imported(obj.__name__)

    def _closure(self, obj: types.FunctionType) -> None:
        values = []
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # not filled yet
                values.append((name, cell.cell_contents))
        self._named("closure", values, "variable")

    def _code_object(self, obj: types.CodeType) -> None:
        self._instructions(obj)

    def _method(self, obj: types.MethodType) -> None:
        self.visit(("method", obj.__func__, obj.__self__))

    def _builtin(self, obj: Any) -> None:
        owner = getattr(obj, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            self._by_name("builtin", getattr(obj, "__module__", None) or "builtins", obj.__qualname__)
        else:
            self.visit(("builtin", obj.__name__, owner))

    def _descriptor(self, obj: Any) -> None:
        self.visit(("descriptor", obj.__name__, obj.__objclass__))

    def _partial(self, obj: functools.partial[Any]) -> None:
        self._inside("function of the partial", obj.func)
        self._named("arguments", ((str(i), value) for i, value in enumerate(obj.args)), "argument")
        self._named("keywords", obj.keywords.items(), "argument")

    def _wrapper(self, obj: Any) -> None:
        self._text("wrapper", type(obj).__name__)
        for attribute in ("__func__", "func", "fget", "fset", "fdel", "__wrapped__"):
            part = getattr(obj, attribute, None)
            if part is not None:
                self._text("part", attribute)
                self.visit(part)

    # Classes and instances.

    def _class(self, obj: type) -> None:
        if origin_of(obj.__module__) != "user":
            self._by_name("class", obj.__module__, obj.__qualname__)
            return
        self._text("class", obj.__name__)
        self._path.append(f"class {obj.__name__}")
        self._items("bases", obj.__bases__)
        if type(obj) is not type:
            self.visit(type(obj))
        self._named("attributes", attributes_of(obj))
        self._path.pop()

    def _instance(self, obj: Any) -> None:
        cls = type(obj)
        if is_reachable(obj, getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)):
            self._by_name("global", obj.__module__, obj.__qualname__)
            return
        tensor = tensor_array(obj)
        if tensor is not None:
            self._text("tensor", f"{obj.dtype} {tuple(obj.shape)}")
            self._array(tensor)
            return
        kind = next((words for types_, words in _WITHOUT_CONTENT if isinstance(obj, types_)), None)
        if kind is not None:
            raise self.refusal(kind)
        self._parts(cls, self._reduced(obj))

    def _reduced(self, obj: Any) -> Any:
        """Take an object apart as pickle does: that honours `__getstate__`, slots, and types written in C."""
        cls = type(obj)
        try:
            reduce = copyreg.dispatch_table.get(cls)
            return reduce(obj) if reduce else obj.__reduce_ex__(4)
        except Exception as error:
            raise self.refusal(f"a {cls.__module__}.{cls.__qualname__}, which has no content to compare") from error

    def _parts(self, cls: type, parts: Any) -> None:
        if isinstance(parts, str):
            self._by_name("global", cls.__module__, parts)
            return
        make, arguments, state, items, pairs = (*parts, None, None, None)[:5]
        self.visit(("instance", make, arguments))
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            if isinstance(part, dict) and all(isinstance(key, str) for key in part):
                self._path.append(cls.__name__)
                self._named("state", sorted(part.items()))
                self._path.pop()
            else:
                self.visit(part)
        self._items("items", items or ())
        self._dict(dict(pairs or ()))


_EXACT: dict[type, Callable[[_Walk, Any], None]] = {list: _Walk._list, dict: _Walk._dict}

_VISITORS: tuple[tuple[Any, Callable[[_Walk, Any], None]], ...] = (
    (type, _Walk._class),
    ((set, frozenset), _Walk._set),
    (types.FunctionType, _Walk._function),
    (types.MethodType, _Walk._method),
    (types.ModuleType, _Walk._module),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _Walk._builtin),
    ((types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType), _Walk._descriptor),
    (types.CodeType, _Walk._code_object),
    (functools.partial, _Walk._partial),
    ((staticmethod, classmethod, property, functools.cached_property, type(functools.cache(repr))), _Walk._wrapper),
    (enum.Enum, _Walk._enum),
    (np.ndarray, _Walk._array),
    (np.generic, _Walk._numpy_scalar),
    (np.dtype, _Walk._dtype),
    (Arrow, _Walk._arrow),
    ((pa.Schema, pa.DataType), _Walk._arrow_type),
    (pathlib.PurePath, _Walk._file_path),
    (re.Pattern, _Walk._pattern),
    ((logging.Logger, logging.LoggerAdapter), _Walk._logger),
    (types.MappingProxyType, _Walk._dict),
)

_WITHOUT_CONTENT: tuple[tuple[Any, str], ...] = (
    (io.IOBase, "an open file"),
    (socket.socket, "a socket"),
    ((type(threading.Lock()), type(threading.RLock())), "a lock"),
    ((threading.Condition, threading.Semaphore, threading.Event, threading.Barrier), "a lock"),
    (threading.Thread, "a thread"),
    (threading.local, "data of a thread"),
    ((types.GeneratorType, types.AsyncGeneratorType), "a generator"),
    (types.CoroutineType, "a coroutine"),
    ((weakref.ref, weakref.ProxyType), "a weak reference"),
    ((types.FrameType, types.TracebackType), "a traceback"),
)
