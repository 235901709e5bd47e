"""Files, rows and batches that know of different columns and types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import SchemaError, SinkError
from tests.field.running import rows_in

CALLS = {
    "a": [{"id": i, "note": None} for i in range(3)],
    "b": [{"id": 3, "note": "hung up"}, {"id": 4, "note": None, "lang": "pt"}, {"id": 5}],
}
LATE = [{"id": i} for i in range(20_000)] + [{"id": 20_000, "lang": "fi"}]


class Lang(hr.ModelHandler):
    def __init__(self):
        self.calls = []

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        self.calls.append(len(batch))
        return [row.get("lang") or "?" for row in batch]


def put(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    if path.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def whole(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Give every row every column, and the answer that it should have."""
    return [
        {**{name: row.get(name) for name in names}, "prediction": row.get("lang") or "?", "model_id": "Lang"}
        for row in rows
    ]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_nulls_go_with_any_type_and_columns_are_all_keys_met(size: int, order: str) -> None:
    for place, name in enumerate(order):
        put(f"calls/{place}.jsonl", CALLS[name])
    hr.read_json("calls/").run_inference(Lang(), max_batch_size=size).write_parquet("out").run()
    table = pq.read_table("out")
    rows = [row for name in order for row in CALLS[name]]
    assert table.select(["id", "note", "lang", "prediction", "model_id"]).to_pylist() == whole(
        rows, "id", "note", "lang"
    )
    assert set(table.schema.names) == {"id", "note", "lang", "prediction", "model_id"}
    assert [table.schema.field(name).type for name in ("id", "note", "lang")] == [pa.int64(), pa.string(), pa.string()]


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_every_output_has_all_columns_whatever_the_first_batches_held(kind: str) -> None:
    put("calls/0.jsonl", CALLS["a"])
    put("calls/1.jsonl", CALLS["b"])
    ds = hr.read_json("calls/").run_inference(Lang(), max_batch_size=1)
    getattr(ds, f"write_{kind}")("out", rows_per_part=1).run()
    assert len(list(Path("out").glob("part-*"))) == 6
    reread = getattr(hr, f"read_{kind}")("out/part-*")
    rows = [{name: value or None for name, value in row.items()} for row in reread.take() if row["id"]]
    assert rows == whole(CALLS["a"] + CALLS["b"], "id", "note", "lang")[1:]


def test_the_same_from_parquet_files() -> None:
    put("calls/0.parquet", CALLS["a"])
    put("calls/1.parquet", [{"id": 3, "note": "hung up", "lang": None}, {"id": 4, "note": None, "lang": "pt"}])
    hr.read_parquet("calls/").run_inference(Lang(), max_batch_size=2).write_parquet("out").run()
    assert pq.read_table("out")["lang"].to_pylist() == [None, None, None, None, "pt"]
    assert pq.read_table("out").schema.field("note").type == pa.string()


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
@pytest.mark.parametrize("source", ["file", "items"])
@pytest.mark.parametrize("num_cpus", [1, None])
def test_a_key_far_behind_any_sample_is_a_column(kind: str, source: str, num_cpus: int | None) -> None:
    put("late/only.jsonl", LATE)
    ds = hr.read_json("late/") if source == "file" else hr.from_items(LATE)
    getattr(ds.run_inference(Lang(), max_batch_size=512), f"write_{kind}")("out").run(num_cpus=num_cpus)
    rows = rows_in()
    assert [row["id"] for row in rows] == list(range(20_001))
    assert (rows[-1]["lang"], rows[-1]["prediction"]) == ("fi", "fi")
    assert all(row.get("lang") in (None, "") and row["prediction"] == "?" for row in rows[:-1])


def test_a_key_that_turns_up_late_with_a_batch_of_two() -> None:
    put("late/only.jsonl", LATE[-3_000:])
    hr.read_json("late/").run_inference(Lang(), max_batch_size=2).write_parquet("out").run()
    table = pq.read_table("out")
    assert table.num_rows == 3_000
    assert table.schema.field("lang").type == pa.string()
    assert table.slice(2_999).to_pylist() == whole(LATE[-1:], "id", "lang")


@pytest.mark.parametrize(
    ("left", "right", "kinds"),
    [("hung up", 17, ("string", "int64")), (True, 17, ("bool", "int64")), ([1], "x", ("list<", "string"))],
)
def test_a_real_quarrel_names_the_column_both_types_and_both_files_before_a_model_runs(left, right, kinds) -> None:
    put("quarrel/a.jsonl", [{"id": 0, "note": left}])
    put("quarrel/b.jsonl", [{"id": 1, "note": right}])
    handler = Lang()
    with pytest.raises(SchemaError) as caught:
        hr.read_json("quarrel/").run_inference(handler, max_batch_size=2).write_parquet("out").run()
    message = str(caught.value)
    for word in ("'note'", "quarrel/a.jsonl", "quarrel/b.jsonl", "dtypes=", *kinds):
        assert word in message
    assert handler.calls == []
    assert not Path("out").exists()


@pytest.mark.parametrize("way", [{"type_conflicts": "text"}, {"dtypes": {"note": "string"}}])
def test_a_quarrel_can_be_settled_as_text(way: dict[str, Any]) -> None:
    put("quarrel/a.jsonl", [{"id": 0, "note": "hung up"}])
    put("quarrel/b.jsonl", [{"id": 1, "note": 17}])
    hr.read_json("quarrel/", **way).run_inference(Lang(), max_batch_size=2).write_parquet("out").run()
    assert pq.read_table("out")["note"].to_pylist() == ["hung up", "17"]


def test_csv_files_quarrel_likewise() -> None:
    Path("quarrel").mkdir()
    Path("quarrel/a.csv").write_text("id,note\n0,hung up\n")
    Path("quarrel/b.csv").write_text("id,note\n1,17\n")
    with pytest.raises(SchemaError, match=r"'note' is string in quarrel/a.csv and int64 in quarrel/b.csv"):
        hr.read_csv("quarrel/").write_parquet("out").run()
    hr.read_csv("quarrel/", type_conflicts="text").write_parquet("out").run()
    assert pq.read_table("out")["note"].to_pylist() == ["hung up", "17"]


def test_a_quarrel_behind_the_sample_costs_its_row_and_names_the_remedy() -> None:
    put("in.jsonl", [{"id": i, "note": 1} for i in range(60_000)] + [{"id": 60_000, "note": "x"}])
    result = hr.read_json("in.jsonl").run_inference(Lang()).write_parquet("out").run(on_error="dead_letter")
    assert result.rows_written == 60_000
    (letter,) = rows_in("out/_dead_letters")
    assert letter["position"] == 60_000
    assert "dtypes={'note': 'string'}" in letter["message"]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_answers_widen_from_batch_to_batch(kind: str) -> None:
    answers = {0: None, 1: 7, 2: 0.5, 3: None}

    class Vary(Lang):
        def run_inference(self, batch, model):
            return [answers[row["id"]] for row in batch]

    ds = hr.range(4).run_inference(Vary(), max_batch_size=1)
    getattr(ds, f"write_{kind}")("out").run()
    assert [row["prediction"] for row in rows_in()] == [None, 7, 0.5, None]


class Mixed(Lang):
    def run_inference(self, batch, model):
        return [row["id"] if row["id"] < 2 else {"many": [row["id"], "x", None]} for row in batch]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_answers_of_kinds_that_do_not_go_together_cannot_stand_in_parquet(size: int) -> None:
    with pytest.raises(SinkError, match="'prediction'"):
        hr.range(4).run_inference(Mixed(), batch_size=size).write_parquet("out").run()
    assert not list(Path("out").glob("part-*"))


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_files_of_text_hold_answers_of_all_kinds(kind: str, size: int) -> None:
    ds = hr.range(4).run_inference(Mixed(), batch_size=size)
    getattr(ds, f"write_{kind}")("out").run()
    if kind == "json":
        found = [row["prediction"] for row in rows_in()]
    else:
        found = [json.loads(row["prediction"]) for row in hr.read_csv("out/part-*", dtypes={"prediction": str}).take()]
    assert found == [0, 1, {"many": [2, "x", None]}, {"many": [3, "x", None]}]


def test_identifiers_survive_beside_nulls_and_in_other_files() -> None:
    big = 2**60 + 1
    put("ids/a.jsonl", [{"id": big, "code": "007"}, {"id": None, "code": "NA"}])
    put("ids/b.jsonl", [{"code": "1e5"}])
    hr.read_json("ids/").run_inference(Lang(), max_batch_size=1).write_parquet("out").run()
    table = pq.read_table("out")
    assert table["id"].to_pylist() == [big, None, None]
    assert table["code"].to_pylist() == ["007", "NA", "1e5"]
