"""Several models behind one step, run whole."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.keyed_stage import rows_by_key
from headrace.errors import (
    ModelTooLargeError,
    OutputExistsError,
    PlanError,
    ResumeError,
    StageError,
    UnknownColumnError,
)
from headrace.handlers.function import FunctionModelHandler
from headrace.testing import FakeModelHandler

LANGS = ("en", "fr", "de")


def models(**given: Any) -> dict[str, FakeModelHandler]:
    """Three models, of which the last takes columns as a table."""
    formats = {"de": "pandas"}
    return {
        name: FakeModelHandler(lambda row, name=name: f"{name} {row['id']}", input_format=formats.get(name, "auto"))
        for name in LANGS
    }


def rows(number: int = 60) -> hr.Dataset:
    return hr.from_items([{"id": i, "lang": LANGS[i % 3]} for i in range(number)])


def letters(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in (out / "_dead_letters").glob("*") for line in file.read_text().splitlines()]


def test_each_row_is_answered_by_its_model_and_the_order_is_put_back() -> None:
    handlers = models()
    table = rows().run_inference(hr.KeyedModelHandler(handlers, key="lang"), max_batch_size=8).to_arrow()
    assert table["prediction"].to_pylist() == [f"{LANGS[i % 3]} {i}" for i in range(60)]
    assert table["model_id"].to_pylist() == [LANGS[i % 3] for i in range(60)]
    assert pa.types.is_dictionary(table["model_id"].type)
    assert [handler.loads for handler in handlers.values()] == [1, 1, 1]
    assert [handler.unloads for handler in handlers.values()] == [1, 1, 1]
    assert all(sum(handler.batch_sizes) == 20 and max(handler.batch_sizes) <= 8 for handler in handlers.values())


def test_a_key_may_be_made_by_a_function_and_leaves_no_column() -> None:
    ds = hr.from_items([{"id": 0, "which": "en:0"}, {"id": 1, "which": "fr:17"}])
    keyed = hr.KeyedModelHandler(models(), key=lambda row: row["which"].split(":")[0])
    assert ds.run_inference(keyed).take(2) == [
        {"id": 0, "which": "en:0", "prediction": "en 0", "model_id": "en"},
        {"id": 1, "which": "fr:17", "prediction": "fr 1", "model_id": "fr"},
    ]
    assert "model: by a function" in ds.run_inference(keyed).explain()


def test_numbers_are_keys_as_text() -> None:
    double, triple = (FunctionModelHandler(lambda batch, n=n: [n * x for x in batch]) for n in (2, 3))
    keyed = hr.KeyedModelHandler({2: double, 3: triple}, key="n")
    ds = hr.from_items([{"n": 2, "x": 1}, {"n": 3, "x": 1}]).run_inference(keyed, inputs="x")
    assert [row["prediction"] for row in ds.take(2)] == [2, 3]


def test_a_row_whose_key_is_nobody_s_fails_alone(tmp_path: Path) -> None:
    items = [{"id": i, "lang": lang} for i, lang in enumerate(["en", "es", None, "fr", "en"])]
    keyed = hr.KeyedModelHandler(models(), key="lang")
    out = tmp_path / "out"
    hr.from_items(items).run_inference(keyed, name="ask").write_json(out).run(on_error="dead_letter")
    failed = letters(out)
    assert [(letter["row"], letter["error_type"]) for letter in failed] == [
        (items[1], "UnknownKeyError"),
        (items[2], "UnknownKeyError"),
    ]
    assert "no model 'es'; Models: en, fr, de" in failed[0]["message"]
    assert failed[0]["stage"] == "ask"
    written = [json.loads(line) for line in next(out.glob("part-*")).read_text().splitlines()]
    assert [row["prediction"] for row in written] == ["en 0", "fr 3", "en 4"]


def test_it_ends_the_run_or_is_nulled_where_that_is_asked_for() -> None:
    items = [{"id": 0, "lang": "en"}, {"id": 1, "lang": "es"}]
    keyed = hr.KeyedModelHandler(models(), key="lang")
    with pytest.raises(StageError, match=r"failed on .*row 1.*no model 'es'"):
        hr.from_items(items).run_inference(keyed).take(2)
    nulled = hr.from_items(items).run_inference(keyed, on_error="null").take(2)
    assert [(row["prediction"], row["model_id"]) for row in nulled] == [("en 0", "en"), (None, "es")]


def test_a_bad_row_is_found_within_its_model_s_batch(tmp_path: Path) -> None:
    handlers = models()
    handlers["fr"] = FakeModelHandler(lambda row: "fr", fail_on=lambda row: row["id"] == 31)
    out = tmp_path / "out"
    ds = rows().run_inference(hr.KeyedModelHandler(handlers, key="lang"), max_batch_size=16)
    ds.write_json(out).run(on_error="dead_letter")
    assert [(letter["row"]["id"], letter["model_id"]) for letter in letters(out)] == [(31, "fr")]


class Text(hr.ModelHandler[str]):
    """A model that is a text file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def load_model(self) -> str:
        return Path(self.path).read_text()

    def run_inference(self, batch: Any, model: str) -> list[str]:
        return [model for _ in batch]

    def model_files(self) -> list[str]:
        return [self.path]


def test_models_by_a_pattern_are_loaded_when_met_and_one_that_is_not_there_fails_its_rows(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"model {name}")
    keyed = hr.KeyedModelHandler.from_pattern(str(tmp_path / "{key}.txt"), make=Text, key="k")
    items = [{"k": k} for k in ("a", "none", "b", "../a", "a")]
    out = tmp_path / "out"
    hr.from_items(items).run_inference(keyed).write_json(out).run(on_error="dead_letter")
    assert {(letter["row"]["k"], letter["error_type"]) for letter in letters(out)} == {
        ("none", "ModelLoadError"),
        ("../a", "UnknownKeyError"),
    }
    written = [json.loads(line) for line in next(out.glob("part-*")).read_text().splitlines()]
    assert [row["prediction"] for row in written] == ["model a", "model b", "model a"]


def test_keys_that_nobody_would_expect_fail_alone_and_lead_nowhere_else(tmp_path: Path) -> None:
    home, inside = tmp_path / "a[1] place", "naïve 模型"
    home.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (home / f"{inside}.txt").write_text("model")
    keyed = hr.KeyedModelHandler.from_pattern(str(home / "{key}.txt"), make=Text, key="k")
    assert keyed.model_files() == [str(home / f"{inside}.txt")]
    odd = ["../secret", "", ".", "..", "~", "x" * 5000, "a\0b", "*", "\n", None, "{key}", "..\\secret", " "]
    out = tmp_path / "out"
    hr.from_items([{"k": k} for k in [inside, *odd]]).run_inference(keyed).write_json(out).run(on_error="dead_letter")
    assert [letter["row"]["k"] for letter in letters(out)] == odd
    assert all(len(letter["message"]) < 1000 for letter in letters(out) if letter["error_type"] == "UnknownKeyError")
    written = [json.loads(line) for line in next(out.glob("part-*")).read_text().splitlines()]
    assert written == [{"k": inside, "prediction": "model", "model_id": inside}]


def test_numbers_that_are_none_are_keys_of_nobody() -> None:
    half = FunctionModelHandler(lambda numbers: [f"half: {number}" for number in numbers])
    keyed = hr.KeyedModelHandler({"1.5": half}, key="k")
    items = [{"k": k} for k in (1.5, float("nan"), float("inf"), None)]
    found = hr.from_items(items).run_inference(keyed, inputs="k", on_error="null").take(4)
    assert [row["prediction"] for row in found] == ["half: 1.5", None, None, None]


def test_another_model_under_a_name_is_another_job(tmp_path: Path) -> None:
    def run(out: Path) -> None:
        keyed = hr.KeyedModelHandler({name: Text(str(tmp_path / f"{name}.txt")) for name in "ab"}, key="k")
        hr.from_items([{"k": "a"}, {"k": "b"}]).run_inference(keyed).write_json(out).run()

    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"model {name}")
    run(tmp_path / "out")
    run(tmp_path / "out")  # finished already
    (tmp_path / "b.txt").write_text("another")
    with pytest.raises((ResumeError, OutputExistsError)):
        run(tmp_path / "out")


def test_answers_to_equal_inputs_are_kept_apart_by_model(tmp_path: Path) -> None:
    handlers = {name: FunctionModelHandler(lambda batch, name=name: [name for _ in batch]) for name in "ab"}
    cache = hr.PredictionCache(tmp_path / "cache")
    ds = hr.from_items([{"x": 1, "k": "a"}, {"x": 1, "k": "b"}, {"x": 1, "k": "a"}])
    for _ in range(2):
        asked = ds.run_inference(hr.KeyedModelHandler(handlers, key="k"), inputs="x", cache=cache, version="1")
        assert [(row["prediction"], row["model_id"]) for row in asked.take(3)] == [("a", "a"), ("b", "b"), ("a", "a")]


def test_rows_are_weighed_by_their_own_model() -> None:
    class Weighs(FakeModelHandler):
        padded = False

        def weigh(self, batch: Any) -> list[int]:
            return [10 for _ in batch]

    handlers = {"en": Weighs(lambda row: 0), "fr": Weighs(lambda row: 0)}
    items = [{"lang": ("en", "fr")[i % 2]} for i in range(40)]
    hr.from_items(items).run_inference(hr.KeyedModelHandler(handlers, key="lang"), max_batch_weight=50).count()
    assert all(max(handler.batch_sizes) <= 5 for handler in handlers.values())


class Heavy(hr.ModelHandler[Any]):
    """A model of some megabytes that tells which process it is in."""

    def __init__(self, megabytes: int) -> None:
        self.megabytes = megabytes

    def load_model(self) -> bytearray:
        """Take some 300 MB a second, as from a disk: how far a load goes before it is ended depends on its speed."""
        model = bytearray(self.megabytes * 2**20)
        for megabyte in range(self.megabytes):
            model[megabyte * 2**20 : (megabyte + 1) * 2**20] = b"x" * 2**20
            time.sleep(0.003)
        return model

    def run_inference(self, batch: Any, model: bytearray) -> list[int]:
        return [os.getpid() for _ in batch]


def test_under_a_budget_models_take_turns_in_processes_and_one_too_large_fails_its_rows(tmp_path: Path) -> None:
    handlers = {"a": Heavy(150), "b": Heavy(150), "c": Heavy(600)}
    items = [{"id": i, "k": "ab"[i % 2]} for i in range(100)] + [{"id": 100, "k": "c"}]
    ds = hr.from_items(items).run_inference(
        hr.KeyedModelHandler(handlers, key="k"),
        max_batch_size=10,
        concurrency=2,
        memory_budget=hr.MemoryBudget(cpu="350MB"),
    )
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter", memory_limit="2GB")
    written = [json.loads(line) for line in next((tmp_path / "out").glob("part-*")).read_text().splitlines()]
    assert [row["id"] for row in written] == list(range(100))
    pids = {(row["k"], row["prediction"]) for row in written}
    assert len(pids) == 2
    assert os.getpid() not in {pid for _, pid in pids}
    (letter,) = letters(tmp_path / "out")
    assert letter["error_type"] == "ModelTooLargeError"
    assert "memory budget for all models is 350.0 MB" in letter["message"]
    (stage,) = [stage for stage in result.report().statistics.stages if stage.manager is not None]
    assert stage.manager is not None
    assert (stage.manager.loads, stage.manager.swaps) == (3, 2)
    assert 150 * 2**20 < stage.manager.peak_bytes <= 1.05 * 350e6
    assert "3 loads, 2 swaps" in str(result.report())


def test_a_declared_size_beyond_the_budget_is_told_before_anything_is_read() -> None:
    large = Heavy(1)
    large.model_bytes = 10**12
    keyed = hr.KeyedModelHandler({"a": large}, key="k")
    ds = hr.from_items([{"k": "a"}]).run_inference(keyed, memory_budget=hr.MemoryBudget(cpu="200MB"))
    with pytest.raises(ModelTooLargeError, match=r"model 'a' is said to take 1\.0 TB, .* is 200\.0 MB"):
        ds.take(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_budget": "2GB"}, r"pass headrace.MemoryBudget\(cpu='2GB'\)"),
        ({"memory_budget": hr.MemoryBudget(cpu="1GB"), "isolation": "thread"}, "leave isolation='thread' out"),
        ({"memory_budget": hr.MemoryBudget(cpu="lots")}, "memory_budget: "),
        ({"memory_budget": hr.MemoryBudget(cpu="900TB")}, "gives 900.0 TB of it to models"),
    ],
)
def test_budgets_that_make_no_sense_are_told_before_any_data_is_read(settings: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        rows().run_inference(hr.KeyedModelHandler(models(), key="lang"), **settings).take(1)


def test_one_model_has_no_budget_and_a_key_column_has_to_be_there() -> None:
    with pytest.raises(PlanError, match="models that take turns"):
        rows().run_inference(models()["en"], memory_budget="auto")
    with pytest.raises(UnknownColumnError, match="did you mean 'lang'"):
        rows().run_inference(hr.KeyedModelHandler(models(), key="lnag")).take(1)
    with pytest.raises(UnknownColumnError):
        rows().map(lambda row: row).run_inference(hr.KeyedModelHandler(models(), key="lnag")).take(1)
    remote = hr.KeyedModelHandler.from_pattern("s3://models/{key}/m.txt", make=Text, key="lang")
    with pytest.raises(PlanError, match="pass version="):
        rows().run_inference(remote).take(1)


def test_keys_of_any_kind_of_column() -> None:
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None], pa.int8()), pa.array(["x", "y"]))
    found = rows_by_key(twice, column="k", step="s")
    assert {name: places.tolist() for name, places in found.items()} == {"x": [0, 2], "y": [1], "\0": [3]}
    with pytest.raises(StageError, match=r"column 'k', which holds list<item: int64>"):
        rows_by_key(pa.array([[1], [2]]), column="k", step="s")
