"""Inputs prepared in front of a model: beside it, in any kind of run, and unseen by whoever is behind."""

import json
import os
import threading
from dataclasses import replace

import numpy as np
import pytest

import headrace as hr
from headrace.engine.prepare import MOST_ROWS, TARGET_BYTES
from headrace.errors import PlanError, StageError

TEXTS = ["abc", "poison", "", "x" * 50, "de"] * 40
ROWS = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
GOOD = [row for row in ROWS if row["text"] not in ("poison", "")]


class Codes:
    """Turns texts into the numbers of their characters; fails a batch at "poison" and a row that is empty."""

    def __init__(self, poison: str = "poison") -> None:
        self.poison = poison

    def setup(self) -> None:
        self.ready = threading.Lock()  # cannot travel, so that it has to be made in each replica

    def __call__(self, texts):
        with self.ready:
            if self.poison in texts:
                raise ValueError("it is poison")
            codes = [np.array([ord(c) for c in text]) if text else hr.RowError("empty") for text in texts]
            return {"codes": codes, "size": np.array([len(text) for text in texts])}


class Coded(hr.ModelHandler):
    """Answers with the sum of a text's codes."""

    def __init__(self, poison: str = "poison") -> None:
        self.poison = poison

    def load_model(self):
        return None

    def preparer(self):
        return Codes(self.poison)

    def weigh(self, batch):
        return batch["size"]

    def run_inference(self, batch, model):
        assert batch["size"].tolist() == [len(codes) for codes in batch["codes"]]
        return [int(codes.sum()) for codes in batch["codes"]]


def answer(text: str) -> int:
    return sum(map(ord, text))


def written(folder) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_answers_are_the_rows_own_and_failures_hold_the_row_as_it_was_given(tmp_path, isolation) -> None:
    ds = hr.from_items(ROWS).run_inference(Coded(), inputs="text", model_id_column=None, isolation=isolation)
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert written(tmp_path / "out") == [{**row, "prediction": answer(row["text"])} for row in GOOD]
    letters = sorted(written(tmp_path / "out" / "_dead_letters"), key=lambda letter: letter["position"])
    assert [letter["row"] for letter in letters] == [row for row in ROWS if row not in GOOD]
    assert {(letter["stage"], letter["error_type"], letter["message"]) for letter in letters} == {
        ("run_inference/prepare", "ValueError", "it is poison"),
        ("run_inference/prepare", "RowError", "empty"),
    }
    assert all("During handling" not in letter["traceback"] for letter in letters)
    assert "read 200 = written 120 + failed 80 + filtered 0" in str(result.report())


@pytest.mark.parametrize("bad", ["", "poison"])
@pytest.mark.parametrize("good", [0, 3])
def test_whole_blocks_of_rows_that_cannot_be_prepared_become_nulls(bad: str, good: int, tmp_path) -> None:
    rows = [{"text": bad}] * 40 + [{"text": "de"}] * good
    hr.from_items(rows).run_inference(Coded(), inputs="text").write_json(tmp_path / "out").run(on_error="null")
    written = [json.loads(line) for path in sorted((tmp_path / "out").glob("*.jsonl")) for line in path.open()]
    assert [row["prediction"] for row in written] == [None] * 40 + [answer("de")] * good


def test_null_keeps_rows_that_cannot_be_prepared_and_counts_each_once(tmp_path) -> None:
    ds = hr.from_items(ROWS).run_inference(Coded(), inputs="text", model_id_column=None)
    result = ds.write_json(tmp_path / "out").run(on_error="null")
    assert written(tmp_path / "out") == [
        {**row, "prediction": answer(row["text"]) if row in GOOD else None} for row in ROWS
    ]
    assert result.statistics.sinks[0].with_error == 80


def test_fail_names_the_row_and_the_step() -> None:
    with pytest.raises(StageError, match=r"'embed/prepare' failed on row 1 of from_items \(ValueError: it is poison\)"):
        hr.from_items(ROWS).run_inference(Coded(), inputs="text", name="embed").count()


def test_a_retry_prepares_failed_rows_again(tmp_path) -> None:
    def job(handler: Coded) -> hr.Job:
        ds = hr.from_items(GOOD).run_inference(handler, inputs="text", version="1", model_id_column=None)
        return ds.write_json(tmp_path / "out")

    first = job(Coded(poison="abc")).run(on_error="dead_letter")
    assert first.failed == 40
    again = job(Coded()).retry(on_error="dead_letter")
    assert again.failed == 0
    assert sorted(row["id"] for row in written(tmp_path / "out")) == [row["id"] for row in GOOD]
    assert all(row["prediction"] == answer(row["text"]) for row in written(tmp_path / "out"))


def test_steps_of_the_users_around_it_see_their_own_columns_only() -> None:
    seen = []

    def short(row):
        seen.append(dict(row))
        return len(row["text"])

    class Rows(Coded):
        def preparer(self):
            def codes(rows):
                seen.extend(rows)
                return {"codes": [np.array([ord(c) for c in row["text"]]) for row in rows], "size": [1] * len(rows)}

            return codes

        def run_inference(self, batch, model):
            return [int(codes.sum()) for codes in batch["codes"]]

    ds = hr.from_items(GOOD).run_inference(Rows(), length_fn=short, model_id_column=None)
    expected = [{**row, "prediction": answer(row["text"])} for row in GOOD]
    assert ds.map(lambda row: seen.append(set(row)) or row, isolation="thread").take(200) == expected
    assert all(set(row) in ({"id", "text"}, {"id", "text", "prediction"}) for row in seen)


def test_preprocess_comes_before_it_and_two_models_follow_one_another() -> None:
    ds = (
        hr.from_items(GOOD)
        .run_inference(Coded(), inputs="text", output="first", preprocess=str.upper, model_id_column=None)
        .run_inference(Coded(), inputs="text", output="second", postprocess=str, model_id_column=None)
    )
    assert ds.take(200) == [
        {**row, "first": answer(row["text"].upper()), "second": str(answer(row["text"]))} for row in GOOD
    ]


def test_two_branches_prepare_their_own(tmp_path) -> None:
    rows = hr.from_items(GOOD)
    jobs = []
    for name, text in (("upper", str.upper), ("same", str)):
        ds = rows.run_inference(Coded(), inputs="text", preprocess=text, name=name, model_id_column=None)
        jobs.append(ds.write_json(tmp_path / name))
    hr.run(*jobs)
    assert [row["prediction"] for row in written(tmp_path / "upper")] == [answer(row["text"].upper()) for row in GOOD]
    assert [row["prediction"] for row in written(tmp_path / "same")] == [answer(row["text"]) for row in GOOD]


@pytest.mark.parametrize("kept", ["cache", "durability"])
def test_answers_are_kept_under_the_rows_as_they_were_given(tmp_path, kept) -> None:
    class Counted(Coded):
        asked = 0

        def run_inference(self, batch, model):
            self.asked += len(batch["size"])
            return super().run_inference(batch, model)

        def __headrace_fingerprint__(self):
            return "coded"

    given = {"cache": hr.PredictionCache(str(tmp_path / "cache"))} if kept == "cache" else {"durability": "row"}
    handlers = [Counted(), Counted()]
    for handler, out in zip(handlers, ("a", "b"), strict=True):
        ds = hr.from_items(ROWS).run_inference(handler, inputs="text", on_error="null", model_id_column=None, **given)
        ds.write_json(tmp_path / out).run()
        assert [row["prediction"] for row in written(tmp_path / out)] == [
            answer(row["text"]) if row in GOOD else None for row in ROWS
        ]
    assert [handler.asked for handler in handlers] == ([3, 0] if kept == "cache" else [120, 120])


def test_a_run_goes_on_whatever_the_preparer_holds(tmp_path) -> None:
    class Unlike(Codes):
        def __headrace_fingerprint__(self):
            raise AssertionError("the handler's own content counts")

    class Other(Coded):
        def preparer(self):
            return Unlike()

    ds = hr.from_items(GOOD).run_inference(Other(), inputs="text", model_id_column=None)
    job = ds.write_json(tmp_path / "out")
    job.run()
    again = job.run()
    assert again.statistics.sources[0].rows == 0
    assert len(written(tmp_path / "out")) == len(GOOD)


def test_what_cannot_reach_a_worker_is_told_before_the_run() -> None:
    class Locked(Coded):
        def preparer(self):
            lock = threading.Lock()
            return lambda texts: {"codes": [lock] * len(texts)}

    with pytest.raises(PlanError, match=r"variable lock of .* of step 'run_inference/prepare' is a _thread.lock"):
        hr.from_items(GOOD).run_inference(Locked(), inputs="text").count()


def test_worker_processes_prepare_as_threads_do(tmp_path) -> None:
    class Places(Coded):
        def preparer(self):
            def place(texts):
                codes = Codes()
                codes.setup()
                return {**codes(texts), "pid": np.full(len(texts), os.getpid())}

            return place

        def run_inference(self, batch, model):
            return [[int(codes.sum()), int(pid)] for codes, pid in zip(batch["codes"], batch["pid"], strict=True)]

    drop = hr.from_items(ROWS).run_inference(Places(), inputs="text", model_id_column=None).node
    elsewhere = replace(drop.upstream.upstream, isolation="process")  # as where workers have joined
    ds = hr.Dataset(replace(drop, upstream=replace(drop.upstream, upstream=elsewhere)))
    ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    answers = [row["prediction"] for row in written(tmp_path / "out")]
    assert [total for total, _ in answers] == [answer(row["text"]) for row in GOOD]
    assert os.getpid() not in {pid for _, pid in answers}
    assert len(written(tmp_path / "out" / "_dead_letters")) == 80


def test_the_plan_shows_the_step_and_files_are_read_for_its_columns_only(tmp_path) -> None:
    wide = hr.from_items([{**row, "other": 1} for row in GOOD])
    wide.write_parquet(tmp_path / "wide").run()
    ds = hr.read_parquet(str(tmp_path / "wide")).run_inference(Coded(), inputs="text").select("id", "prediction")
    text = ds.explain()
    assert "run_inference/prepare ← " in text
    assert "__headrace" not in text
    assert "columns read: id, text" in text
    assert ds.take(1) == [{"id": 0, "prediction": answer("abc")}]


def test_rows_that_grow_are_prepared_a_few_at_a_time() -> None:
    sizes = []

    class Pictures(hr.ModelHandler):
        def load_model(self):
            return None

        def preparer(self):
            def decode(ids):
                sizes.append(len(ids))
                return {"pixels": np.zeros((len(ids), 512, 512, 3), np.uint8)}

            return decode

        def run_inference(self, batch, model):
            assert batch["pixels"].shape[1:] == (512, 512, 3)
            return [0] * len(batch["pixels"])

    assert hr.range(100).run_inference(Pictures(), inputs="id").count() == 100
    assert max(sizes[1:]) * 512 * 512 * 3 <= TARGET_BYTES
    assert sum(sizes) == 100
    sizes.clear()
    assert hr.range(10_000).run_inference(_Small(sizes), inputs="id").count() == 10_000
    assert max(sizes) == MOST_ROWS


class _Small(hr.ModelHandler):
    def __init__(self, sizes):
        self.sizes = sizes

    def load_model(self):
        return None

    def preparer(self):
        return lambda ids: self.sizes.append(len(ids)) or {"id": ids}

    def run_inference(self, batch, model):
        return batch["id"]


def test_a_handler_without_a_preparer_gets_no_step() -> None:
    class Plain(hr.ModelHandler):
        def load_model(self):
            return None

        def run_inference(self, batch, model):
            return [os.getpid()] * len(batch)

    assert "prepare" not in hr.range(1).run_inference(Plain()).explain()
