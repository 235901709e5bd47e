"""Answers kept by row and by input, in whole jobs: what is paid for is not paid for again."""

import collections
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import headrace as hr
from headrace.engine.commit.answer_mirror import AnswerMirror
from headrace.errors import PlanError, ResumeError, SinkError, StageError
from headrace.handlers.function import FunctionModelHandler
from headrace.testing import CollectingSink
from tests.stores import flaky_store, objects


class Paid(hr.ModelHandler):
    """Doubles numbers, and writes down each that it was asked for."""

    def __init__(self, log, factor=2):
        self.log, self.factor = str(log), factor

    def __headrace_fingerprint__(self):
        return self.factor

    def load_model(self):
        return self.factor

    def run_inference(self, batch, model, inference_args=None):
        with open(self.log, "a") as log:
            log.writelines(f"{x}\n" for x in batch)
        plus = (inference_args or {}).get("plus", 0)
        return [hr.RowError("thirteen") if x == 13 else x * model + plus for x in batch.tolist()]


def asked(log) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def numbers(*values):
    return hr.from_items([{"x": x, "id": i} for i, x in enumerate(values)])


def answers(dataset) -> list:
    return [row["prediction"] for row in dataset.iter_rows()]


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_equal_inputs_are_asked_once_inside_a_run_and_across_runs(tmp_path) -> None:
    log, cache = tmp_path / "log", hr.PredictionCache(tmp_path / "cache")
    values = [i % 7 for i in range(500)]
    for _ in range(2):
        scored = numbers(*values).run_inference(Paid(log), inputs="x", cache=cache, max_batch_size=16, concurrency=3)
        assert answers(scored) == [2 * x for x in values]
    assert sorted(asked(log)) == list(range(7))
    (stage,) = [s for s in scored.stats().stages if s.recall is not None]
    assert (stage.recall.hits, stage.recall.misses) == (500, 0)
    assert 0 < stage.recall.cache_bytes < 200_000
    assert stage.model is None  # it was not even loaded


def test_hits_and_misses_are_reported_and_batches_hold_misses_only(tmp_path) -> None:
    log, cache = tmp_path / "log", hr.PredictionCache(tmp_path / "cache")
    answers(numbers(*range(20, 60, 2)).run_inference(Paid(log), inputs="x", cache=cache))
    job = numbers(*range(20, 60)).run_inference(Paid(log), inputs="x", cache=cache, batch_size=20)
    report = job.write_json(tmp_path / "out").run().report()
    (stage,) = [s for s in report.statistics.stages if s.recall is not None]
    assert (stage.recall.hits, stage.recall.misses) == (20, 20)
    assert (stage.model.batches, stage.model.rows) == (1, 20)
    assert "20 hits, 20 misses" in str(report)
    assert report.balance().holds
    assert report.to_dict()["statistics"]["stages"][1]["recall"]["hits"] == 20


def test_another_model_other_arguments_and_other_inputs_have_answers_of_their_own(tmp_path) -> None:
    log, cache = tmp_path / "log", hr.PredictionCache(tmp_path / "cache")
    data = numbers(1, 2)
    assert answers(data.run_inference(Paid(log), inputs="x", cache=cache)) == [2, 4]
    assert answers(data.run_inference(Paid(log, factor=3), inputs="x", cache=cache)) == [3, 6]
    plus = data.run_inference(Paid(log), inputs="x", inference_args={"plus": 1}, cache=cache)
    assert answers(plus) == [3, 5]
    assert len(asked(log)) == 6
    renamed = data.rename({"x": "y"}).run_inference(
        Paid(log), inputs="y", output="twice", model_id_column="by", cache=cache
    )
    assert renamed.take() == [{"y": 1, "id": 0, "twice": 2, "by": "Paid"}, {"y": 2, "id": 1, "twice": 4, "by": "Paid"}]
    assert len(asked(log)) == 6  # names of columns mean nothing to the model


def test_a_trained_model_counts_by_the_content_of_its_file(tmp_path) -> None:
    model, log, cache = tmp_path / "model.txt", tmp_path / "log", hr.PredictionCache(tmp_path / "cache")

    class FromFile(hr.ModelHandler):
        def load_model(self):
            return int(model.read_text())

        def model_files(self):
            return [str(model)]

        def run_inference(self, batch, loaded):
            with open(log, "a") as calls:
                calls.writelines(f"{x}\n" for x in batch)
            return [x * loaded for x in batch]

    model.write_text("2")
    assert answers(numbers(1, 2).run_inference(FromFile(), inputs="x", cache=cache)) == [2, 4]
    model.write_text("50")
    assert answers(numbers(1, 2).run_inference(FromFile(), inputs="x", cache=cache)) == [50, 100]
    os.utime(model)
    assert answers(numbers(1, 2).run_inference(FromFile(), inputs="x", cache=cache)) == [50, 100]
    assert asked(log) == [1, 2, 1, 2]


def test_failed_rows_are_not_kept_and_those_beside_them_are(tmp_path) -> None:
    log, cache = tmp_path / "log", hr.PredictionCache(tmp_path / "cache")
    scored = numbers(12, 13, 14, 13).run_inference(Paid(log), inputs="x", cache=cache)
    with pytest.raises(StageError, match="row 1 of from_items.*thirteen"):
        scored.write_json(tmp_path / "fails").run()
    assert sorted(asked(log)) == [12, 13, 14]
    result = scored.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert (result.rows_written, result.report().failed) == (2, 2)
    letters = [json.loads(line) for path in (tmp_path / "out").glob("_dead_letters/*") for line in path.open()]
    assert [(letter["position"], letter["row"]) for letter in letters] == [
        (1, {"x": 13, "id": 1}),
        (3, {"x": 13, "id": 3}),
    ]
    assert sorted(asked(log)) == [12, 13, 13, 14]
    result = scored.write_json(tmp_path / "nulls").run(on_error="null")
    rows = [json.loads(line) for path in sorted((tmp_path / "nulls").glob("part-*")) for line in path.open()]
    assert [row["prediction"] for row in rows] == [24, None, 28, None]
    assert result.report().with_error == 2


def test_rows_with_several_answers_and_those_of_all_columns(tmp_path) -> None:
    cache, calls = hr.PredictionCache(tmp_path / "cache"), []

    def parts(batch):
        calls.extend(batch)
        return [{"a": row["x"], "b": [0.5] * row["x"]} for row in batch]

    handler = FunctionModelHandler(parts)
    data = hr.from_items([{"x": 1}, {"x": 2}, {"x": 1}])
    expected = [{"x": x, "first": x, "second": [0.5] * x} for x in (1, 2, 1)]
    for _ in range(2):
        scored = data.run_inference(
            handler, output={"a": "first", "b": "second"}, model_id_column=None, version="1", cache=cache
        )
        assert scored.take() == expected
    assert len(calls) == 2


def test_preprocessed_inputs_are_what_counts(tmp_path) -> None:
    log, cache = tmp_path / "log", hr.PredictionCache(tmp_path / "cache")
    scored = numbers(1, -1, 2).run_inference(Paid(log), inputs="x", preprocess=abs, postprocess=str, cache=cache)
    assert answers(scored) == ["2", "2", "4"]
    assert sorted(asked(log)) == [1, 2]


def test_a_model_in_processes_is_asked_for_misses_only(tmp_path) -> None:
    log, cache = tmp_path / "log", hr.PredictionCache(tmp_path / "cache")
    values = [i % 5 for i in range(100)]
    scored = numbers(*values).run_inference(Paid(log), inputs="x", isolation="process", batch_size=2, cache=cache)
    assert answers(scored) == [2 * x for x in values]
    assert sorted(asked(log)) == list(range(5))


@pytest.mark.parametrize("options", [{"cache": True}, {"durability": "row"}], ids=str)
def test_what_cannot_be_compared_with_a_later_run_is_refused_before_anything_runs(tmp_path, options) -> None:
    if "cache" in options:
        options = {"cache": hr.PredictionCache(tmp_path / "cache")}
    lock = threading.Lock()

    def guarded(batch):
        with lock:
            return batch

    scored = numbers(1).run_inference(FunctionModelHandler(guarded), inputs="x", **options)
    with pytest.raises(PlanError, match="cannot keep answers.*a lock; pass version="):
        scored.write_json(tmp_path / "out").run()
    assert not (tmp_path / "out").exists()


def test_python_objects_are_refused_with_what_to_do(tmp_path) -> None:
    handler = FunctionModelHandler(lambda batch: [complex(x) for x in batch])
    scored = numbers(1).run_inference(handler, inputs="x", cache=hr.PredictionCache(tmp_path / "cache"))
    with pytest.raises(StageError, match="'prediction' with Python objects"):
        scored.take()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda tmp: hr.PredictionCache("s3://bucket/cache"), "local disk"),
        (lambda tmp: hr.PredictionCache(tmp / "c", max_bytes="12 apples"), "number of bytes"),
        (lambda tmp: hr.PredictionCache(tmp / "c", max_bytes=100), "at least"),
        (lambda tmp: hr.PredictionCache(__file__), "is a file"),
        (lambda tmp: numbers(1).run_inference(Paid(tmp), cache=str(tmp)), "pass headrace.PredictionCache"),
        (lambda tmp: numbers(1).run_inference(Paid(tmp), durability="rows"), "'range' or by 'row'"),
    ],
)
def test_wrong_settings_are_told(tmp_path, make, told) -> None:
    with pytest.raises(PlanError, match=told):
        make(tmp_path)


def test_a_damaged_cache_is_told(tmp_path) -> None:
    (tmp_path / "answers.sqlite").write_text("no database" * 500)
    scored = numbers(1).run_inference(Paid(tmp_path / "log"), inputs="x", cache=hr.PredictionCache(tmp_path))
    with pytest.raises(SinkError, match="cannot keep answers in .*remove it"):
        scored.take()


CACHED = """
import sys, headrace as hr
from tests.engine.test_memories import Paid, answers, numbers

folder, log = sys.argv[1:]
values = [100 + i % 50 for i in range(400)]
scored = numbers(*values).run_inference(Paid(log), inputs="x", batch_size=4, cache=hr.PredictionCache(folder))
assert answers(scored) == [2 * x for x in values]
"""


def test_several_processes_use_one_cache(tmp_path) -> None:
    arguments = [sys.executable, "-c", CACHED, str(tmp_path / "cache"), str(tmp_path / "log")]
    running = [subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    counts = collections.Counter(asked(tmp_path / "log"))
    assert set(counts) == set(range(100, 150))
    assert max(counts.values()) <= 3  # once a process, where they ran into one another
    subprocess.run(arguments, check=True)
    assert collections.Counter(asked(tmp_path / "log")) == counts


# -- durability="row" --------------------------------------------------------------------------------------------------

JOB = """
import os, signal, sys, threading
import headrace as hr


class Slow(hr.ModelHandler):
    def __init__(self):
        self.fatal = os.environ.get("FATAL")

    def __headrace_fingerprint__(self):
        return "slow"

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        with open("calls", "a") as log:
            log.writelines(f"{row['id']}\\n" for row in batch)
        if self.fatal and int(self.fatal) in [row["id"] for row in batch]:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait(float(os.environ.get("SECS", 0)))
        return [row["id"] * 2 for row in batch]


class Held:
    '''Lets nothing pass, where the process is to be killed.'''

    def __headrace_fingerprint__(self):
        return "held"

    def __call__(self, row):
        if os.environ.get("HOLD"):
            threading.Event().wait()
        return row


rows = hr.read_json("in.jsonl").run_inference(Slow(), batch_size=2, durability="row")
_, count, where = sys.argv
jobs = [
    rows.map(Held(), isolation="thread", version="1", name=f"held_{n}")
    .write_json(f"{where}out{n}", if_exists="overwrite" if os.environ.get("AFRESH") else "resume")
    for n in range(int(count))
]
hr.run(*jobs)
"""


def script(folder, rows: int) -> list[str]:
    (folder / "in.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(rows)))
    (folder / "job.py").write_text(JOB)
    return [sys.executable, "job.py"]


def written(folder) -> list[tuple[int, int]]:
    rows = [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.open()]
    return [(row["id"], row["prediction"]) for row in rows]


@pytest.mark.parametrize("sinks", [1, 2])
def test_answers_that_no_output_has_yet_outlive_a_kill(tmp_path, sinks) -> None:
    command = [*script(tmp_path, 20), str(sinks), ""]
    killed = subprocess.run(command, cwd=tmp_path, env={**os.environ, "FATAL": "13", "HOLD": "1"})
    assert killed.returncode == -signal.SIGKILL
    assert asked(tmp_path / "calls") == list(range(14))
    assert written(tmp_path / "out0") == []
    subprocess.run(command, cwd=tmp_path, check=True)
    assert asked(tmp_path / "calls") == [*range(14), *range(12, 20)]  # the call that the kill came into, and the rest
    for number in range(sinks):
        assert written(tmp_path / f"out{number}") == [(i, 2 * i) for i in range(20)]
        assert not (tmp_path / f"out{number}" / ".headrace" / "answers").exists()


@pytest.mark.heavy
def test_killed_at_random_moments_only_calls_at_work_are_made_again(tmp_path) -> None:
    rows, kills, dice = 200, 8, random.Random(1)
    command = [*script(tmp_path, rows), "1", ""]
    for _ in range(kills):
        process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "SECS": "0.02", "HOLD": "1"})
        target = min(2 * rows, len(asked(tmp_path / "calls")) + dice.randrange(4, 40))
        while process.poll() is None and len(asked(tmp_path / "calls")) < target:
            threading.Event().wait(0.005)
        process.kill()
        process.wait()
    subprocess.run(command, cwd=tmp_path, check=True)
    assert written(tmp_path / "out0") == [(i, 2 * i) for i in range(rows)]
    assert len(asked(tmp_path / "calls")) <= rows + 2 * kills


def test_equal_rows_keep_answers_of_their_own(tmp_path) -> None:
    """Several answers to one prompt, from a model that answers differently each time."""
    drawn, held = itertools.count(), threading.Event()

    def draw(batch):
        number = next(drawn)
        if number == 5 and not held.is_set():
            held.set()
            raise KeyboardInterrupt
        return [number]

    copies = hr.from_items([{"p": "a"}, {"p": "b"}]).flat_map(lambda r: [r] * 4, isolation="thread")
    job = copies.run_inference(
        FunctionModelHandler(draw), inputs="p", batch_size=1, durability="row", version="1"
    ).write_json(tmp_path / "out", target_part_bytes=10**9)
    with pytest.raises(hr.RunError):
        job.run()
    job.run()
    rows = [json.loads(line) for path in (tmp_path / "out").glob("part-*") for line in path.open()]
    assert sorted(row["prediction"] for row in rows) == [0, 1, 2, 3, 4, 6, 7, 8]


def test_a_run_that_fails_keeps_its_answers_for_the_same_job_only(tmp_path) -> None:
    log = tmp_path / "log"

    def job(factor=2, stop=True):
        handler = Paid(log, factor)
        scored = numbers(*range(10)).run_inference(handler, inputs="x", batch_size=5, durability="row")
        whole = scored.map_batches(lambda b: b, batch_size=10, name="whole")
        after = stopped if stop else lambda row: row
        return whole.map(after, version="1", isolation="thread", name="after").write_json(tmp_path / "out")

    def stopped(row):
        raise ValueError

    with pytest.raises(StageError):
        job().run()
    assert len(asked(log)) >= 5
    with pytest.raises(ResumeError, match="model run_inference has changed"):
        job(factor=3).run()
    before = len(asked(log))
    result = job(stop=False).run()
    assert sorted(asked(log)) == list(range(10))
    (stage,) = [s for s in result.statistics.stages if s.recall is not None]
    assert stage.recall.recovered == before
    assert f"{before} answers of an earlier run" in str(result.report())


def test_collected_rows_have_nothing_to_go_on_with(tmp_path) -> None:
    scored = numbers(1, 2).run_inference(Paid(tmp_path / "log"), inputs="x", durability="row")
    assert answers(scored) == [2, 4]


def test_an_output_without_files_is_refused(tmp_path) -> None:
    scored = numbers(1, 2).run_inference(Paid(tmp_path / "log"), inputs="x", durability="row")
    with pytest.raises(PlanError, match="durability='row', which keeps answers beside an output's files, and"):
        scored.write(CollectingSink()).run()
    assert asked(tmp_path / "log") == []


def test_an_output_in_a_store_keeps_answers_beside_it_and_a_local_one_is_preferred(tmp_path, monkeypatch) -> None:
    log = tmp_path / "log"

    def job(stop=True):
        scored = numbers(*range(10)).run_inference(Paid(log), inputs="x", batch_size=5, durability="row")
        whole = scored.map_batches(lambda b: b, batch_size=10, name="whole")
        after = stopped if stop else lambda row: row
        return whole.map(after, version="1", isolation="thread", name="after").write_json("flaky://bucket/out")

    def stopped(row):
        raise ValueError

    def kept():
        return [name for name in objects("flaky://bucket/out") if name.startswith(".headrace/answers/")]

    with flaky_store(monkeypatch):
        with pytest.raises(StageError):
            job().run()
        before = len(asked(log))
        assert before >= 5
        assert kept()
        result = job(stop=False).run()
        assert sorted(asked(log)) == list(range(10))
        assert f"{before} answers of an earlier run" in str(result.report())
        assert kept() == []
        both = numbers(1).run_inference(Paid(log), inputs="x", durability="row")
        spied = []
        monkeypatch.setattr(AnswerMirror, "fetch", spied.append)
        hr.run(both.write_json("flaky://bucket/a"), both.write_json(tmp_path / "b"))
        assert spied == []


def test_begun_afresh_the_answers_go_too(tmp_path) -> None:
    log = tmp_path / "log"
    scored = numbers(1, 2).run_inference(Paid(log), inputs="x", durability="row")
    scored.write_json(tmp_path / "out").run()
    scored.write_json(tmp_path / "out", if_exists="overwrite").run()
    assert sorted(asked(log)) == [1, 1, 2, 2]


def test_durable_rows_with_a_cache_are_asked_once(tmp_path) -> None:
    log = tmp_path / "log"
    scored = numbers(*[i % 3 for i in range(30)]).run_inference(
        Paid(log), inputs="x", durability="row", cache=hr.PredictionCache(tmp_path / "cache")
    )
    assert scored.write_json(tmp_path / "out").run().rows_written == 30
    assert sorted(asked(log)) == [0, 1, 2]


FINISHING = """
import os, signal, sys
import headrace as hr
from headrace.engine.commit.status import read_status
from tests.engine.test_memories import Paid, numbers

os.chdir(sys.argv[1])


def fatal(row):
    while read_status("first").state != "finished":
        pass
    os.kill(os.getpid(), signal.SIGKILL)


scored = numbers(*range(5)).run_inference(Paid("log"), inputs="x", durability="row")
held = scored.map(fatal if os.environ.get("FATAL") else lambda row: row, isolation="thread", version="1", name="held")
hr.run(scored.write_json("first"), held.write_json("second"))
"""


def test_answers_stay_until_the_last_output_is_finished_and_go_at_the_next_run_if_a_kill_came_between(tmp_path) -> None:
    command = [sys.executable, "-c", FINISHING, str(tmp_path)]
    killed = subprocess.run(command, env={**os.environ, "FATAL": "1"})
    assert killed.returncode == -signal.SIGKILL
    assert [id for id, _ in written(tmp_path / "first")] == list(range(5))
    assert written(tmp_path / "second") == []
    kept = tmp_path / "first" / ".headrace" / "answers"
    shutil.copytree(kept, tmp_path / "kept")
    subprocess.run(command, check=True)
    assert written(tmp_path / "second") == written(tmp_path / "first")
    assert asked(tmp_path / "log") == list(range(5))
    assert not kept.exists()
    shutil.copytree(tmp_path / "kept", kept)
    subprocess.run(command, check=True)
    assert not kept.exists()
