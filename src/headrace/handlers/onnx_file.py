"""What an ONNX file says of its inputs: read without a framework, and without the weights between.

An ONNX file is one protobuf message, of fields that each say their length, so that what is of no use is passed over.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPES = (
    *("undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16"),
    *("double", "uint32", "uint64", "complex64", "complex128", "bfloat16"),
)
"""By their numbers in the format."""
GRAPH, INITIALIZER, INPUT = 7, 5, 11
INITIALIZER_NAME = 8
NAME, TYPE, TENSOR, ELEMENT, SHAPE, DIMENSION, SIZE, SYMBOL = 1, 2, 1, 1, 2, 1, 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class DeclaredInput:
    """One input as the file declares it, told as a session of ONNX Runtime does."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]
    """Names and None stand for any size."""


def declared_inputs(path: str) -> list[DeclaredInput]:
    """Return the inputs that have to be given; [] where the file is not what it seems, which loading it will tell."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _inputs_in(data)
    except (OSError, ValueError, IndexError):
        return []


def _inputs_in(data: mmap.mmap) -> list[DeclaredInput]:
    inputs: list[DeclaredInput] = []
    filled: set[str] = set()
    """Names of weights: old files list those among the inputs."""
    for number, (start, end) in _messages(data, 0, len(data)):
        if number != GRAPH:
            continue
        for part, (begin, stop) in _messages(data, start, end):
            if part == INPUT:
                inputs.append(_input(data, begin, stop))
            elif part == INITIALIZER:
                filled.add(_text(data, begin, stop, INITIALIZER_NAME))
    return [one for one in inputs if one.name not in filled]


def _input(data: mmap.mmap, start: int, end: int) -> DeclaredInput:
    kind: str = "undefined"
    shape: list[int | str | None] = []
    for tensor in _inside(data, start, end, TYPE, TENSOR):
        for number, value in _fields(data, *tensor):
            if number == ELEMENT and isinstance(value, int):
                kind = TYPES[value]
            elif number == SHAPE and not isinstance(value, int):
                shape = [_dimension(data, *found) for found in _inside(data, *value, DIMENSION)]
    return DeclaredInput(_text(data, start, end, NAME), f"tensor({kind})", tuple(shape))


def _dimension(data: mmap.mmap, start: int, end: int) -> int | str | None:
    for number, value in _fields(data, start, end):
        if number == SIZE and isinstance(value, int):
            return value
        if number == SYMBOL and not isinstance(value, int):
            return data[value[0] : value[1]].decode()
    return None


def _inside(data: mmap.mmap, start: int, end: int, number: int, *further: int) -> Iterator[tuple[int, int]]:
    """Yield where the messages of a number lie, or those of further numbers inside them."""
    for found, (begin, stop) in _messages(data, start, end):
        if found == number and further:
            yield from _inside(data, begin, stop, *further)
        elif found == number:
            yield begin, stop


def _text(data: mmap.mmap, start: int, end: int, number: int) -> str:
    return next((data[begin:stop].decode() for begin, stop in _inside(data, start, end, number)), "")


def _messages(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the numbers of the fields that have a length, and where they lie."""
    return ((number, value) for number, value in _fields(data, start, end) if not isinstance(value, int))


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int | tuple[int, int]]]:
    """Yield each field of a message: its number, with its value or where it lies.

    Raises:
        ValueError, IndexError: it is no such message.
    """
    at = start
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == BYTES:
            length, at = _varint(data, at)
            if at + length > end:
                raise ValueError("a field goes beyond its message")
            yield key >> 3, (at, at + length)
            at += length
        elif kind in (FIXED32, FIXED64):
            at += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"there is no field of kind {kind}")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return the whole number that begins at a place, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
