"""The file and the Python API have the same options under the same names."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import headrace as hr
from headrace.spec import model, sinks, sources
from headrace.spec.spec_model import SpecModel

PYTHON_ONLY = {
    "self",
    "paths",
    "path",
    "handler",
    "function",
    "args",
    "kwargs",
    "output_schema",
    "rows",
    "updates",
}
FILE_ONLY = {"type", "path", "handler", "function", "args"}
OF_KEYED_HANDLERS = {"models", "key", "mode", "labelled"}


def keys(spec: type[SpecModel]) -> set[str]:
    return set(spec.model_fields) - FILE_ONLY - (OF_KEYED_HANDLERS if spec is model.InferStep else set())


def options(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} - PYTHON_ONLY


@pytest.mark.parametrize(
    ("spec", "function"),
    [
        (sources.CsvSource, hr.read_csv),
        (sources.JsonSource, hr.read_json),
        (sources.ParquetSource, hr.read_parquet),
        (sources.TextSource, hr.read_text),
        (sources.ImagesSource, hr.read_images),
        (sources.BinaryFilesSource, hr.read_binary_files),
        (model.InferStep, hr.Dataset.run_inference),
        (model.FunctionStep, hr.Dataset.map),
        (model.FunctionStep, hr.Dataset.filter),
        (model.FunctionStep, hr.Dataset.flat_map),
        (model.MapBatchesStep, hr.Dataset.map_batches),
        (model.AddColumnStep, hr.Dataset.add_column),
        (model.ShuffleStep, hr.Dataset.random_shuffle),
        (model.SearchStep, hr.Dataset.search),
        (model.ReshuffleStep, hr.Dataset.reshuffle),
        (sinks.CsvSink, hr.Dataset.write_csv),
        (sinks.JsonSink, hr.Dataset.write_json),
    ],
)
def test_same_options(spec: type[SpecModel], function: Any) -> None:
    assert keys(spec) == options(function) - ({"name"} if spec is model.ShuffleStep else set())


def test_parquet_has_options_of_its_sink() -> None:
    from headrace.sinks.parquet import ParquetSink

    own = {name for name in inspect.signature(ParquetSink).parameters if name.startswith("compression")}
    assert keys(sinks.ParquetSink) == options(hr.Dataset.write_parquet) | own


def test_run_has_the_options_of_run() -> None:
    assert keys(model.Run) <= options(hr.run)


def test_null_is_as_if_left_out_but_where_it_means_something() -> None:
    source = sources.CsvSource(type="csv", path=["a"], columns=None, partitioning=None)
    assert source.options("type", "path") == {"partitioning": None}


def test_mappings_cannot_be_changed_behind_the_check() -> None:
    source = sources.JsonSource(type="json", path=["a"])
    with pytest.raises(ValueError, match="frozen"):
        source.path = ["b"]
