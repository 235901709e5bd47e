from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import PlanError, SchemaError
from headrace.sources.agreement import (
    MAX_SAMPLED_FILES,
    Sample,
    agree,
    parse_dtypes,
    sampled,
)
from headrace.sources.storage import File


def test_samples_are_spread_evenly_over_files_that_hold_something() -> None:
    files = [File(f"{i}", 0 if i % 2 else 10, "") for i in range(10 * MAX_SAMPLED_FILES)]
    chosen = sampled(files)
    assert len(chosen) == MAX_SAMPLED_FILES
    assert [int(f.path) for f in chosen] == list(range(0, 10 * MAX_SAMPLED_FILES, 10))


def test_the_error_names_the_first_file_that_has_the_type() -> None:
    samples = [Sample("a", pa.schema({"x": pa.null()})), Sample("b", pa.schema({"x": pa.int64()}))]
    samples.append(Sample("c", pa.schema({"x": pa.string()})))
    with pytest.raises(SchemaError, match="'x' is int64 in b and string in c"):
        agree(samples, dtypes=(), type_conflicts="error", reader="read_csv(d)")
    agreed = agree(samples, dtypes=(), type_conflicts="text", reader="read_csv(d)")
    assert (agreed.schema, agreed.as_text) == (pa.schema({"x": pa.string()}), {"x"})


def test_dtypes_are_parsed() -> None:
    parsed = parse_dtypes({"a": "str", "b": "int", "c": "timestamp[us]", "d": pa.int8(), "e": float})  # type: ignore[dict-item]
    assert [str(t) for _, t in parsed] == ["string", "int64", "timestamp[us]", "int8", "double"]
    with pytest.raises(PlanError, match="no such type; use 'string'"):
        parse_dtypes({"a": "txet"})
