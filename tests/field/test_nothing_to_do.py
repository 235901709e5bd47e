"""No rows: no call for them, and a result all the same."""

from __future__ import annotations

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.engine.commit.status import read_status
from headrace.errors import NoInputError, UnknownColumnError
from tests.field.running import rows_in

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})
NEW = ["prediction", "model_id"]


class Upper(hr.ModelHandler):
    def __init__(self):
        self.loads = 0

    def load_model(self):
        self.loads += 1
        return str.upper

    def run_inference(self, batch, model):
        assert len(batch) > 0, "called with nothing"
        return [model(row["text"]) for row in batch]


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    Path("zero_bytes.jsonl").touch()
    Path("zero_bytes.csv").touch()
    Path("zero_bytes.parquet").touch()
    Path("zero_bytes.txt").touch()
    Path("zero_bytes.jsonl.gz").write_bytes(gzip.compress(b""))
    Path("blank.jsonl").write_text("\n\n")
    Path("header_only.csv").write_text("id,text\n")
    Path("header_without_end.csv").write_text("id,text")
    Path("mixed").mkdir()
    Path("mixed/a.jsonl").write_text('{"id": 1, "text": "hello"}\n')
    Path("mixed/b.jsonl").touch()
    Path("mixed/c.jsonl").write_text("\n")
    Path("mixed/d.jsonl").write_text('{"id": 2, "text": "bye"}\n')
    Path("empty_folder").mkdir()
    none = pa.table({"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())})
    pq.write_table(none, "none.parquet")
    pq.ParquetWriter("no_groups.parquet", SCHEMA).close()


NOTHING = {
    "zero bytes": lambda: hr.read_json("zero_bytes.jsonl"),
    "zero bytes packed": lambda: hr.read_json("zero_bytes.jsonl.gz"),
    "blank lines": lambda: hr.read_json("blank.jsonl"),
    "zero bytes of csv": lambda: hr.read_csv("zero_bytes.csv"),
    "zero bytes of text": lambda: hr.read_text("zero_bytes.txt"),
    "header only": lambda: hr.read_csv("header_only.csv"),
    "header without end": lambda: hr.read_csv("header_without_end.csv"),
    "no rows": lambda: hr.read_parquet("none.parquet"),
    "no row groups": lambda: hr.read_parquet("no_groups.parquet"),
    "zero bytes of parquet": lambda: hr.read_parquet("zero_bytes.parquet"),
    "an empty frame": lambda: hr.from_pandas(pd.DataFrame()),
    "no items": lambda: hr.from_items([]),
    "an empty table": lambda: hr.from_arrow(SCHEMA.empty_table()),
    "an empty range": lambda: hr.range(0),
    "all filtered": lambda: hr.read_json("mixed/").filter(lambda row: False),
    "all filtered behind a map": lambda: hr.read_json("mixed/").map(lambda row: row).filter(lambda row: False),
    "no children": lambda: hr.read_json("mixed/").flat_map(lambda row: []),
    "none taken": lambda: hr.read_json("mixed/").limit(0),
    "all filtered before a shuffle": lambda: hr.read_json("mixed/").filter(lambda row: False).random_shuffle(),
    "two of nothing": lambda: hr.from_items([]).union(hr.read_csv("header_only.csv")),
}
KNOWN = {
    "header only": ["id", "text"],
    "header without end": ["id", "text"],
    "no rows": ["id", "text"],
    "no row groups": ["id", "text"],
    "zero bytes of text": ["text"],
    "an empty table": ["id", "text"],
    "an empty range": ["id"],
    "all filtered": ["id", "text"],
    "none taken": ["id", "text"],
    "all filtered before a shuffle": ["id", "text"],
}


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_no_rows_are_a_result_for_which_no_model_is_loaded(nothing: str, kind: str) -> None:
    handler = Upper()
    ds = NOTHING[nothing]().run_inference(handler, max_batch_size=8)
    result = getattr(ds, f"write_{kind}")("out").run()
    assert result.rows_written == 0
    assert result.report().balance().holds
    assert handler.loads == 0
    assert rows_of(kind) == []
    assert read_status("out").state == "finished", "and not a job that never ran"
    columns = KNOWN.get(nothing, []) + (NEW if nothing in KNOWN else [])
    if kind == "parquet" and nothing in KNOWN:
        assert pq.read_table("out").schema.names == columns
        assert hr.read_parquet("out").schema().names == columns
    if kind == "csv" and nothing in KNOWN:
        (part,) = Path("out").glob("part-*.csv")
        assert next(csv.reader(part.open())) == columns


def rows_of(kind: str) -> list[dict]:
    return getattr(hr, f"read_{kind}")("out").take()


@pytest.mark.parametrize("nothing", ["header only", "all filtered"])
def test_known_types_stay_in_an_output_without_rows(nothing: str) -> None:
    NOTHING[nothing]().select("text", "id").write_parquet("out").run()
    schema = pq.read_table("out").schema
    assert schema.names == ["text", "id"]
    if nothing == "all filtered":
        assert schema.types == [pa.string(), pa.int64()]


@pytest.mark.parametrize(("num_cpus", "isolation"), [(1, "thread"), (None, "thread"), (None, "process")])
def test_empty_files_and_emptied_batches_among_others(isolation: str, num_cpus: int | None) -> None:
    mixed = hr.read_json("mixed/").run_inference(Upper(), max_batch_size=8, isolation=isolation)
    items = hr.from_items([{"id": i, "text": "x"} for i in range(100)])
    thinned = items.filter(lambda row: row["id"] in (3, 97)).run_inference(Upper(), max_batch_size=8)
    mixed.write_json("mixed_out").run(num_cpus=num_cpus)
    thinned.write_json("thinned_out").run(num_cpus=num_cpus)
    assert [(row["id"], row["prediction"]) for row in rows_in("mixed_out")] == [(1, "HELLO"), (2, "BYE")]
    assert [(row["id"], row["prediction"]) for row in rows_in("thinned_out")] == [(3, "X"), (97, "X")]


@pytest.mark.parametrize("step", ["map_batches", "map_batches behind a model", "map behind a model"])
def test_no_function_is_called_for_no_rows(step: str) -> None:
    def picky(batch):
        assert len(batch["id"]) > 0, "called with nothing"
        return {"id": batch["id"] * 2}

    ds = hr.range(1_000).filter(lambda row: row["id"] == 999, name="thin")
    ds = ds.add_column("text", lambda row: "x")
    if step == "map_batches":
        ds = ds.map_batches(picky, batch_size=10)
    elif step == "map behind a model":
        ds = ds.run_inference(Upper()).map(lambda row: {"id": row["id"] * 2})
    else:
        ds = ds.run_inference(Upper()).map_batches(picky, batch_size=10)
    assert ds.take() == [{"id": 1998}]
    assert ds.filter(lambda row: False).count() == 0


def test_nothing_twice_is_nothing_and_the_second_run_has_nothing_to_do() -> None:
    for _ in range(2):
        handler = Upper()
        result = hr.read_csv("header_only.csv").run_inference(handler).write_parquet("out").run()
        assert (result.rows_written, handler.loads) == (0, 0)
    assert pq.read_table("out").schema.names == ["id", "text", *NEW]


def test_several_outputs_of_which_one_is_empty() -> None:
    parts = hr.read_json("mixed/").split({"all": lambda row: True, "none": lambda row: False})
    hr.run(parts["all"].write_parquet("all"), parts["none"].write_parquet("none"))
    assert pq.read_table("all").num_rows == 2
    assert pq.read_table("none").num_rows == 0
    assert pq.read_table("none").schema.names == ["id", "text"]


def test_only_failed_rows_are_an_empty_output_with_columns() -> None:
    Path("in.csv").write_text("id,text\n1\n2,b,c\n")
    hr.read_csv("in.csv").write_parquet("out").run(on_error="dead_letter")
    assert pq.read_table("out").schema.names == ["id", "text"]
    assert len(rows_in("out/_dead_letters")) == 2


@pytest.mark.parametrize("path", ["missing.jsonl", "*.ndjson", "missing/", "mixed/*.csv", "empty_folder/"])
def test_a_path_that_matches_no_file_is_an_error_unlike_an_empty_file(path: str) -> None:
    handler = Upper()
    with pytest.raises(NoInputError, match=path.rstrip("/").replace("*", r"\*")):
        hr.read_json(path).run_inference(handler).write_json("out").run()
    assert handler.loads == 0
    assert not Path("out").exists()


NO_COLUMNS = [
    "zero bytes",
    "zero bytes packed",
    "blank lines",
    "zero bytes of csv",
    "zero bytes of parquet",
    "no items",
    "an empty frame",
]


@pytest.mark.parametrize("nothing", NO_COLUMNS)
def test_columns_that_steps_name_are_presumed_where_an_empty_input_has_none(nothing: str) -> None:
    handler = Upper()
    ds = NOTHING[nothing]().rename({"body": "text"}).run_inference(handler, inputs="text", output="loud")
    result = ds.drop("model_id").write_parquet("out").run()
    assert (result.rows_written, handler.loads) == (0, 0)
    assert pq.read_table("out").schema.names == ["text", "loud"]
    assert NOTHING[nothing]().select("id").to_arrow().schema.names == ["id"]


def test_a_boosting_or_linear_model_does_not_ask_for_the_columns_of_an_empty_input() -> None:
    class Picky(Upper):
        def check_columns(self, columns):
            raise ValueError(f"what are {columns}?")

    for inputs in (None, "text"):
        assert hr.read_csv("zero_bytes.csv").run_inference(Picky(), inputs=inputs).count() == 0


def test_columns_are_not_presumed_where_another_input_tells_which_there_are() -> None:
    ds = hr.read_csv("zero_bytes.csv").union(hr.read_csv("header_only.csv"))
    with pytest.raises(UnknownColumnError, match="needs column 'txt'.*did you mean 'text'"):
        ds.run_inference(Upper(), inputs="txt").count()


def test_rows_without_any_column_fail_where_one_is_needed() -> None:
    Path("rows.jsonl").write_text("{}\n{}\n")
    with pytest.raises(UnknownColumnError, match="needs column 'text'"):
        hr.read_json("rows.jsonl").run_inference(Upper(), inputs="text").write_json("out").run()


def test_the_command_line_ends_well_with_a_file_of_no_bytes() -> None:
    command = [sys.executable, "-m", "headrace", "infer", "python:builtins:len", "zero_bytes.csv", "--inputs", "text"]
    done = subprocess.run([*command, "-o", "out"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert pq.read_table("out").schema.names == ["text", "prediction", "model_id"]
