"""Bytes of CSV to typed columns: Arrow's parser first, cell by cell where a piece does not fit its types."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from headrace.records.infinities import has_infinities
from headrace.records.types import is_number
from headrace.sources import cells
from headrace.sources.assembly import Misfit
from headrace.sources.pieces import SCAN_BYTES, count_byte, flags, is_utf8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ENCODING_ADVICE = "pass the encoding that the files have, such as encoding='cp1252'"


BLOCK_BYTES = 4 * 1024 * 1024
"""Arrow parses so many bytes at once where it can, in memory that it uses again and again."""


@dataclass(slots=True)
class Parsed:
    """Rows of one piece, and those that are none."""

    batches: list[pa.RecordBatch]
    """One, or several where no row failed."""
    ragged: list[tuple[int, Misfit]] = field(default_factory=list)
    """Rows with the wrong number of cells, by their number in the piece; not in the batch."""
    misfits: dict[int, Misfit] = field(default_factory=dict)
    """Rows of the batch that have a cell which does not fit its column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvParser:
    """Parses pieces of one file."""

    names: Sequence[str]
    """The file's columns."""
    types: dict[str, pa.DataType]
    wanted: Sequence[str]
    """The columns to return."""
    forced: frozenset[str] = frozenset()
    """Columns whose type the user gave: 007 is a number where he says so."""
    delimiter: str = ","
    null_values: Sequence[str] = ("",)

    def parse(self, data: bytes | memoryview) -> Parsed:
        r"""Parse whole records.

        >>> types = {"a": pa.int64()}
        >>> CsvParser(names=["a"], types=types, wanted=["a"]).parse(b"1\n2\n").batches[0].to_pydict()
        {'a': [1, 2]}
        """
        include = self.wanted or self.names[:1]
        if not is_utf8(data):
            return self._parse_carefully(data, include)
        parsed = None
        if len(data) > BLOCK_BYTES and not count_byte(data, 13):  # Arrow loses a "\n" behind a "\r" that ends a block
            parsed = self._parse_quickly(data, include, BLOCK_BYTES)
        parsed = parsed or self._parse_quickly(data, include, len(data) + 1)
        if parsed is None or self._has_lost_zeros(data, include):
            return self._parse_carefully(data, include)
        return parsed

    def _parse_quickly(self, data: bytes | memoryview, include: Sequence[str], block_bytes: int) -> Parsed | None:
        """Parse with the types as they are; None where something does not fit them."""
        ragged: list[tuple[int, Misfit]] = []
        try:
            table = self._read(data, self.types, include, _collector(ragged), block_bytes)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the latter: a type that Arrow's parser does not know
            return None
        if any(map(has_infinities, table.columns)):
            return None  # written as such, or numbers beyond their type
        if ragged or table.num_rows == 0:
            return Parsed([_one_batch(table)], ragged)
        return Parsed(table.to_batches())

    def cells(self, data: bytes | memoryview) -> pa.RecordBatch:
        """Return all columns as bytes, rows with the wrong number of cells left out."""
        return self._cells(data, [])

    def _parse_carefully(self, data: bytes | memoryview, include: Sequence[str]) -> Parsed:
        ragged: list[tuple[int, Misfit]] = []
        text = self._cells(data, ragged)
        misfits: dict[int, Misfit] = {}
        arrays = []
        for name in include:
            column, type_ = text.column(name), self.types[name]
            done = cells.convert_cells(column, type_, self.null_values, lenient=name in self.forced)
            arrays.append(done.column)
            for row in done.misfits.tolist():
                if row not in misfits:
                    raw = {n: text.column(n)[row].as_py() for n in self.names}
                    whole = {n: value.decode(errors="backslashreplace") for n, value in raw.items()}
                    misfits[row] = Misfit(self._misfit(name, whole[name], broken=not is_utf8(raw[name])), whole)
        return Parsed([pa.RecordBatch.from_arrays(arrays, names=list(include))], ragged, misfits)

    def _misfit(self, name: str, value: str, *, broken: bool) -> str:
        shown = value if len(value) <= 100 else value[:100] + "…"
        if broken:
            return f"column {name!r}: {shown!r} is not UTF-8; {ENCODING_ADVICE}"
        whose = "asked for by dtypes=" if name in self.forced else "the type found in the sample"
        return (
            f"column {name!r}: {shown!r} is not {self.types[name]}, {whose}; "
            f"pass dtypes={{{name!r}: 'string'}} to read the column as text"
        )

    def _cells(self, data: bytes | memoryview, ragged: list[tuple[int, Misfit]]) -> pa.RecordBatch:
        if not is_utf8(data):
            return self._cells_by_python(data, ragged)
        return _one_batch(self._read(data, dict.fromkeys(self.names, pa.binary()), self.names, _collector(ragged)))

    def _cells_by_python(self, data: bytes | memoryview, ragged: list[tuple[int, Misfit]]) -> pa.RecordBatch:
        """Do the same where bytes are broken; Arrow gives up where such a row is ragged as well."""
        text = bytes(data).decode(errors="surrogateescape")
        csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
        rows: list[list[bytes]] = []
        number = 0
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter):
            if not row:
                continue
            if len(row) == len(self.names):
                rows.append([cell.encode(errors="surrogateescape") for cell in row])
            else:
                line = self.delimiter.join(row).encode(errors="surrogateescape").decode(errors="backslashreplace")
                ragged.append((number, _ragged(len(row), len(self.names), line)))
            number += 1
        columns = [pa.array([row[i] for row in rows], pa.binary()) for i in range(len(self.names))]
        return pa.RecordBatch.from_arrays(columns, names=list(self.names))

    def _has_lost_zeros(self, data: bytes | memoryview, include: Sequence[str]) -> bool:
        """Find codes such as 007 that Arrow read as numbers: a quick look at all bytes, a closer one only then."""
        numbers = [n for n in include if is_number(self.types[n]) and n not in self.forced]
        if not numbers or not may_hold_codes(data, ord(self.delimiter)):
            return False
        as_bytes = {**self.types, **dict.fromkeys(numbers, pa.binary())}
        table = self._read(data, as_bytes, numbers, _collector([]))
        return any(pc.any(pc.match_substring_regex(c, cells.LEADING_ZERO)).as_py() for c in table.columns)

    def _read(
        self,
        data: bytes | memoryview,
        types: dict[str, pa.DataType],
        include: Sequence[str],
        on_ragged: Any,
        block_bytes: int | None = None,
    ) -> pa.Table:
        if _is_blank(data):
            return pa.table({n: pa.array([], types[n]) for n in include})
        numbers_too = any(pa.types.is_boolean(types[n]) for n in self.forced if n in types)
        return pcsv.read_csv(
            pa.BufferReader(data),
            # without `block_bytes` one block: quoted line breaks cannot lie across two
            read_options=pcsv.ReadOptions(
                use_threads=False, block_size=block_bytes or len(data) + 1, column_names=list(self.names)
            ),
            parse_options=pcsv.ParseOptions(
                delimiter=self.delimiter, invalid_row_handler=on_ragged, newlines_in_values=block_bytes is not None
            ),
            convert_options=pcsv.ConvertOptions(
                column_types=types,
                include_columns=list(include),
                null_values=list(self.null_values),
                strings_can_be_null=False,
                check_utf8=False,  # done for the whole piece at once
                true_values=[*cells.TRUE_VALUES, *(["1"] if numbers_too else [])],
                false_values=[*cells.FALSE_VALUES, *(["0"] if numbers_too else [])],
            ),
        )


def may_hold_codes(data: bytes | memoryview, delimiter: int) -> bool:
    """Say whether a cell may begin with a zero that a digit follows; quick, and never wrong when it says no.

    >>> may_hold_codes(b"1,007,x", 44), may_hold_codes(b"1,0,0.5,100", 44)
    (True, False)
    """
    text = np.frombuffer(data, dtype=np.uint8)
    if len(data) >= 2 and data[0] == 48 and data[1] >= 48:
        return True
    low = max(delimiter, 44) if delimiter < 48 else 44
    places = max(0, len(text) - 2)
    zero, after = flags.room(2 * min(places, SCAN_BYTES)).view(np.bool_).reshape(2, -1)
    for at in range(0, places, SCAN_BYTES):
        part = text[at : min(at + SCAN_BYTES, places) + 2]
        hits, also = zero[: len(part) - 2], after[: len(part) - 2]
        np.equal(part[1:-1], 48, out=hits)
        hits &= np.greater_equal(part[2:], 48, out=also)
        np.less_equal(part[:-2], low, out=also)
        if delimiter > low:
            also |= part[:-2] == delimiter
        hits &= also
        if hits.any() and _begins_cell(text, np.flatnonzero(hits) + at, delimiter):
            return True
    return False


def _begins_cell(text: NDArray[np.uint8], before: NDArray[np.int64], delimiter: int) -> bool:
    """Say whether one of the places is the end of what may stand before a cell's first character."""
    # a blank or sign may itself stand at the beginning of a cell
    previous = text[before]
    inner = np.isin(previous, (32, 9, 43))
    earlier = text[np.maximum(before - 1, 0)]
    edges = (delimiter, 10, 13, 34)
    begins = np.isin(previous, edges) | (inner & (np.isin(earlier, (*edges, 32)) | (before == 0)))
    return bool(begins.any())


def _collector(ragged: list[tuple[int, Misfit]]) -> Any:
    def on_ragged(row: Any) -> str:
        ragged.append((row.number - 1, _ragged(row.actual_columns, row.expected_columns, row.text)))
        return "skip"

    return on_ragged


def _ragged(cells_found: int, cells_expected: int, line: str) -> Misfit:
    message = (
        f"the row has {cells_found} cells where the header has {cells_expected}: {line[:200]!r}; "
        "check its delimiters and quotes"
    )
    return Misfit(message, {"line": line})


def _is_blank(data: bytes | memoryview) -> bool:
    """Say whether there are no rows at all."""
    head = bytes(data[:64])
    return not head.strip(b"\r\n") and (len(data) <= len(head) or not bytes(data).strip(b"\r\n"))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], t) for t in table.schema.types], schema=table.schema)
