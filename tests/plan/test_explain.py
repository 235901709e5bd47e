"""Explaining a plan, for people and for programs."""

import json

from PIL import Image

import headrace as hr


class Echo(hr.ModelHandler):
    def load_model(self):
        raise AssertionError("explain must not load a model")

    def run_inference(self, batch, model):
        return [0] * len(batch)


def pipeline(folder):
    ds = hr.range(10).filter(lambda r: True, name="keep").run_inference(Echo(), inputs="id", max_batch_size=8)
    return ds.write_json(folder / "out")


def test_text_shows_steps_columns_and_stages(tmp_path) -> None:
    text = pipeline(tmp_path).explain()
    for words in ("keep ← range", "columns: id (int64), prediction (?)", "handler: Echo", "1 to 8", "write_json"):
        assert words in text
    assert not (tmp_path / "out").exists()


def test_json_is_the_same_for_programs(tmp_path) -> None:
    found = json.loads(pipeline(tmp_path).explain("json", num_cpus=3))
    assert [s["name"] for s in found["steps"]] == ["range", "keep", "run_inference", "write_json"]
    assert found["steps"][0]["schema"] == {"id": "int64"}
    assert found["stages"][0]["replicas"] == 3


def test_where_steps_run_is_told_as_it_is(tmp_path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    decoded = hr.read_images(str(tmp_path)).write_parquet(tmp_path / "out").explain(num_cpus=2)
    assert "2 threads in native code; worker processes join only where rows are tiny" in decoded
    mapped = hr.range(3).map(lambda row: row).write_json(tmp_path / "out").explain(num_cpus=2)
    assert "1 thread; worker processes join if it proves heavy" in mapped


def test_inputs_by_name_and_dictionaries_are_written_as_people_say_them(tmp_path) -> None:
    ds = hr.range(3).run_inference(Echo(), inputs={"x": "id"})
    text = ds.write_json(tmp_path / "out").explain()
    assert "inputs: x=id" in text
    assert "model_id (dictionary<string>)" in text


def test_side_inputs_come_first_with_their_own_steps():
    def by_code(table):
        return {}

    names = hr.from_items([{"code": "fi"}]).filter(bool, name="wanted").broadcast(by_code, name="names")
    text = hr.range(3).map(lambda row, countries: row, side_inputs={"countries": names}).explain(num_cpus=2)
    before, after = text.split("\nSteps\n")
    assert before.startswith("Side input names, made before the rest begins: what by_code returns; arrays and indexes")
    assert "    wanted ← from_items" in before
    assert "      side inputs: countries=names" in after
