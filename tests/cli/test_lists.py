"""`headrace handlers` and `headrace schema`: what there is."""

from __future__ import annotations

import json

import pytest

from headrace.cli.main import main

Printed = pytest.CaptureFixture[str]


def test_handlers_tell_what_is_installed(capsys: Printed) -> None:
    assert main(["handlers"]) == 0
    assert "scikit-learn" in capsys.readouterr().out
    assert main(["handlers", "--json"]) == 0
    kinds = {row["kind"]: row for row in json.loads(capsys.readouterr().out)}
    assert kinds["sklearn"]["installed"] is True
    assert {"onnx", "python", "torchscript"} <= set(kinds)


def test_schema_knows_the_keys(capsys: Printed) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["source"]
    infer = schema["$defs"]["InferStep"]
    assert infer["properties"]["max_batch_size"]["anyOf"][0] == {"minimum": 1, "type": "integer"}
    assert infer["oneOf"] == [{"required": ["handler"]}, {"required": ["models"]}]
