import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.engine.commit.dead_letters import DeadLetters
from headrace.records.failure import RowFailure

FAILURES = [
    RowFailure(
        stage="map",
        ordinal=7,
        row='{"id": 7, "text": "a"}',
        error_type="ValueError",
        message="no \ud800 text",
        traceback="Traceback",
        attempt=2,
        file="in.csv",
        position=6,
        model_id="net-1",
    ),
    RowFailure(stage="filter", ordinal=9, row="{}", error_type="KeyError", message="'age'"),
]


@pytest.mark.parametrize(("kind", "suffix"), [("json", "jsonl"), ("parquet", "parquet")])
def test_letters_tell_all_that_is_known(tmp_path: Path, kind, suffix: str) -> None:
    (tmp_path / "staging").mkdir()
    letters = DeadLetters(str(tmp_path / "letters"), str(tmp_path / "staging"), format=kind)
    letters.publish(letters.prepare(3, FAILURES))
    file = tmp_path / "letters" / f"failures-00003.{suffix}"
    if kind == "json":
        found = [json.loads(line) for line in file.read_text().splitlines()]
        assert [letter["row"] for letter in found] == [{"id": 7, "text": "a"}, {}]
        assert found[0]["message"] == "no \ud800 text"
    else:
        found = pq.read_table(file).to_pylist()
        assert [letter["row"] for letter in found] == ['{"id": 7, "text": "a"}', "{}"]
        assert found[0]["message"] == r"no \ud800 text"  # Parquet holds Unicode alone
    told = ("stage", "error_type", "traceback", "attempt", "file", "position", "model_id")
    assert tuple(found[0][name] for name in told) == ("map", "ValueError", "Traceback", 2, "in.csv", 6, "net-1")
    assert tuple(found[1][name] for name in told) == ("filter", "KeyError", "", 1, None, None, None)
