"""The JSON Schema of pipeline files."""

from __future__ import annotations

from typing import Any

from headrace.spec.model import PipelineSpec


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) that editors check pipeline files by.

    >>> sorted(json_schema()["properties"])
    ['dead_letters', 'run', 'side_inputs', 'sink', 'sinks', 'source', 'steps']
    """
    schema = PipelineSpec.model_json_schema()
    schema["$defs"]["InferStep"]["oneOf"] = [{"required": ["handler"]}, {"required": ["models"]}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Headrace pipeline",
        "oneOf": [{"required": ["sink"]}, {"required": ["sinks"]}],
    }
