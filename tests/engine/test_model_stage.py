"""Model stages, run whole: rows of many blocks in batches, and every row back in its place."""

import json

import headrace as hr


class Double(hr.ModelHandler):
    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [2 * row["id"] for row in batch]


class Parity(hr.ModelHandler):
    """Answers with the size of the batch; refuses what is odd."""

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        return [hr.RowError("odd") if row["id"] % 2 else len(batch) for row in batch]


def files(folder, contents):
    for name, ids in contents.items():
        (folder / name).write_text("".join(json.dumps({"id": i, "text": "x"}) + "\n" for i in ids))
    return hr.read_json(str(folder / "*.jsonl"))


def test_blocks_without_rows_pass_the_steps_behind_the_model_too(tmp_path) -> None:
    ds = files(tmp_path, {"a.jsonl": [1, 2], "b.jsonl": [3, 4]}).filter(lambda r: r["id"] > 2)
    table = ds.run_inference(Double()).select(["id", "prediction"]).to_arrow()
    assert table.to_pydict() == {"id": [3, 4], "prediction": [6, 8]}


def test_no_rows_at_all_still_have_the_model_s_columns(tmp_path) -> None:
    ds = files(tmp_path, {"a.jsonl": [1]}).filter(lambda r: False)
    assert ds.run_inference(Double(), output="twice").to_arrow().column_names == ["id", "text", "twice", "model_id"]


def test_batches_go_across_files_and_rows_come_back_to_theirs(tmp_path) -> None:
    ds = files(tmp_path, {f"{i}.jsonl": [2 * i] for i in range(8)})
    rows = ds.run_inference(Parity(), batch_size=4).take(8)
    assert [row["id"] for row in rows] == list(range(0, 16, 2))
    assert {row["prediction"] for row in rows} == {4}


def test_a_failed_row_is_told_with_its_own_file_and_place(tmp_path) -> None:
    ds = files(tmp_path, {"a.jsonl": [0, 2], "b.jsonl": [4, 5]})
    ds.run_inference(Parity(), batch_size=4).write_json(tmp_path / "out").run(on_error="dead_letter")
    (path,) = (tmp_path / "out" / "_dead_letters").glob("*.jsonl")
    (letter,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert letter["file"].endswith("b.jsonl")
    assert (letter["position"], letter["row"]) == (1, {"id": 5, "text": "x"})


def test_copies_in_processes_are_counted_together() -> None:
    ds = hr.range(64).run_inference(Double(), batch_size=8, isolation="process", concurrency=2)
    (stage,) = [s for s in ds.stats().stages if s.model is not None]
    assert stage.model.rows == 64
    assert stage.model.batches == 8
