"""What a code object does, apart from where it stands: no file names, line numbers, docstrings or comments."""

from __future__ import annotations

import dis
import inspect
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS_OF_CALL = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
    | inspect.CO_ITERABLE_COROUTINE
)
_WITHOUT_EFFECT = frozenset({"NOP", "CACHE", "EXTENDED_ARG", "RESUME"})
_STORED_BY_THE_COMPILER = frozenset(
    {"__doc__", "__firstlineno__", "__static_attributes__", "__module__", "__qualname__"}
)
_OF_THE_FILE = frozenset({"__name__", "__file__", "__spec__", "__doc__", "__builtins__", "__loader__", "__package__"})
_FUSED = {
    f"{first}_{second}": (first, second)
    for first in ("LOAD_FAST", "STORE_FAST", "LOAD_FAST_BORROW")
    for second in ("LOAD_FAST", "STORE_FAST", "LOAD_FAST_BORROW")
}
"""Pairs that compilers from Python 3.13 on join, though only within one line: two operands, of four bits each."""
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_NAMES = frozenset(dis.hasname)
_CONSTANTS = frozenset(dis.hasconst)
_CELLS = frozenset(dis.hasfree)


@dataclass(frozen=True, slots=True)
class CodeUses:
    """What code refers to outside itself."""

    globals: dict[str, frozenset[str] | None]
    """Names of globals, each with the attributes read from it; None where it is used as a whole."""
    imports: frozenset[tuple[str, tuple[str, ...]]]
    """Modules imported inside the code, with leading dots where relative; and the names taken from each."""


def instructions(code: CodeType) -> Iterator[tuple[str, Any]]:
    """Yield (operation, operand) of code, independent of layout: constants as values, jumps as numbers of instructions.

    >>> f = compile("x + 1", "a.py", "eval")
    >>> [operand for operation, operand in instructions(f) if operation in ("LOAD_NAME", "LOAD_CONST")]
    ['x', 1]
    """
    yield "signature", _signature(code)
    kept = _effective(code)
    number_at = _numbering(code, kept)
    for i in kept:
        if i.opcode in _CONSTANTS:
            yield i.opname, i.argval
        elif i.opcode in _NAMES or i.opcode in _CELLS:
            yield i.opname, str(i.argval)
        elif i.opcode in _JUMPS:
            yield i.opname, number_at[i.argval]
        elif i.opname in _FUSED and i.arg is not None:
            first, second = _FUSED[i.opname]
            yield first, i.arg >> 4
            yield second, i.arg & 15
        else:
            yield i.opname, i.arg
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
        bounds = (number_at[entry.start], number_at[entry.end], number_at[entry.target])
        yield "guarded", (*bounds, entry.depth, bool(entry.lasti))


def uses(code: CodeType) -> CodeUses:
    """Find the globals that code reads and the modules that it imports, in inner functions too.

    >>> uses((lambda x: np.log(x) + bias).__code__).globals
    {'np': frozenset({'log'}), 'bias': None}
    """
    found: dict[str, set[str] | None] = {}
    imports: set[tuple[str, tuple[str, ...]]] = set()
    _collect(code, found, imports)
    attributes = {name: None if names is None else frozenset(names) for name, names in found.items()}
    return CodeUses({name: a for name, a in attributes.items() if name not in _OF_THE_FILE}, frozenset(imports))


def _collect(code: CodeType, found: dict[str, set[str] | None], imports: set[tuple[str, tuple[str, ...]]]) -> None:
    steps = _effective(code)
    for position, i in enumerate(steps):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            following = steps[position + 1] if position + 1 < len(steps) else None
            known = found.setdefault(i.argval, set())
            if following is None or following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                found[i.argval] = None
            elif known is not None:
                known.add(following.argval)
        elif i.opname == "IMPORT_NAME":
            level, names = steps[position - 2].argval, steps[position - 1].argval
            imports.add(("." * level + i.argval, names or ()))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _collect(constant, found, imports)


def _signature(code: CodeType) -> tuple[Any, ...]:
    parameters = code.co_argcount + code.co_kwonlyargcount
    return (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & _KINDS_OF_CALL,
        code.co_varnames[:parameters],
    )


def _effective(code: CodeType) -> list[dis.Instruction]:
    steps = [i for i in dis.get_instructions(code) if i.opname not in _WITHOUT_EFFECT]
    if code.co_flags & inspect.CO_OPTIMIZED:
        return steps  # a function: its docstring is no instruction
    kept: list[dis.Instruction] = []
    for i in steps:
        if i.opname == "STORE_NAME" and i.argval in _STORED_BY_THE_COMPILER and kept:
            kept.pop()  # the body of a class: what loads the docstring goes with what stores it
        else:
            kept.append(i)
    return kept


def _numbering(code: CodeType, kept: list[dis.Instruction]) -> dict[int, int]:
    """Map each offset to the number of the first kept instruction at or after it."""
    numbers: dict[int, int] = {}
    offset = number = 0
    for i in kept:
        while offset <= i.offset:
            numbers[offset] = number
            offset += 1
        number += 2 if i.opname in _FUSED else 1
    for rest in range(offset, len(code.co_code) + 3):
        numbers[rest] = number
    return numbers
