"""Models that change under a running job, run whole."""

from __future__ import annotations

import itertools
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import OutputExistsError, PlanError, ResumeError, StageError
from headrace.handlers.sklearn import SklearnModelHandler
from headrace.model.files import local_copy
from headrace.testing import FakeModelHandler
from tests.engine.changing_model import Outcomes, Paced, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 10


def ids_and_answers(table: pa.Table) -> list[tuple[int, str]]:
    return list(zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True))


def watch(folder: Path) -> hr.WatchFilePattern:
    return hr.WatchFilePattern(f"{folder}/v*.txt", interval_secs=0.002)


def publish(target: Path, text: str) -> None:
    """Have a file of this content there at once: a writer that is interrupted is a case of its own."""
    unfinished = target.with_name(f".{target.name}")
    unfinished.write_text(text)
    os.replace(unfinished, target)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_fifty_versions_under_load_some_broken_or_half_copied(tmp_path: Path, concurrency: int) -> None:
    broken = {7: "raises", 13: "short", 20: "number", 31: "raises"}
    (tmp_path / "v000.txt").write_text("good 0!")

    def script(outcomes: Outcomes) -> Iterator[None]:
        changes = 1  # the first version
        for number in range(1, 51):
            target = tmp_path / f"v{number:03}.txt"
            text = f"{broken.get(number, 'good')} {number}!"
            if number % 10 == 5:  # half copied; may be tried, and has to be tried again when it is whole
                publish(target, text[:4])
                outcomes.wait_for(changes := changes + 1)
                yield
            if number % 10 == 9:  # never finished
                publish(target, text[:4])
            elif number % 10 == 8:  # under a name for unfinished files, then renamed
                (tmp_path / f".v{number}").write_text(text)
                yield
                (tmp_path / f".v{number}").rename(target)
            else:
                publish(target, text)
            outcomes.wait_for(changes := changes + 1)
            yield

    with Outcomes() as outcomes:
        handler = Paced(str(tmp_path / "v000.txt"), script(outcomes), outcomes)
        scored = hr.range(20_000).run_inference(
            handler, inputs="id", watch=watch(tmp_path), batch_size=BATCH, concurrency=concurrency, version="1"
        )
        result = scored.write_parquet(tmp_path / "out").run()
    table = pq.read_table(tmp_path / "out")
    assert table["id"].to_pylist() == list(range(20_000))  # none lost, none twice
    answered = set(table["prediction"].to_pylist())
    good = {f"good {n}" for n in range(51) if n not in broken and n % 10 != 9}
    assert answered <= good
    assert f"good {50}" in answered
    stage = next(stage for stage in result.statistics.stages if stage.updates is not None)
    updates = stage.updates
    assert updates is not None
    assert updates.switches == len(good) - 1
    assert updates.rejected == 51 - len(good) + 5
    assert updates.model_id.startswith("v050.txt@")
    taken = [change for change in updates.changes if change.rejected is None]
    assert [change.model_id.partition("@")[0] for change in taken] == [
        f"v{int(g.split()[1]):03}.txt" for g in sorted(good, key=lambda g: int(g.split()[1]))
    ]
    assert all(change.warm_up_rows == BATCH for change in taken[1:])
    if concurrency == 1:
        # What the report says of positions is what the column says.
        starts = [change.rows_before for change in taken] + [20_000]
        expected = [
            c.model_id for c, (a, b) in zip(taken, itertools.pairwise(starts), strict=True) for _ in range(b - a)
        ]
        assert table["model_id"].to_pylist() == expected
    names = dict(zip(table["model_id"].to_pylist(), table["prediction"].to_pylist(), strict=True))
    assert len(names) == len(answered)
    assert "v009.txt is rejected" not in str(result.report())  # of fifty only the last are told
    assert "v049.txt is rejected" in str(result.report())


def test_the_same_file_with_other_content_is_another_version(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("one!")

    def script(outcomes: Outcomes) -> Iterator[None]:
        publish(file, "two!")
        outcomes.wait_for(2)
        yield

    with Outcomes() as outcomes:
        handler = Paced(str(file), script(outcomes), outcomes)
        ds = hr.range(30).run_inference(handler, inputs="id", watch=watch(tmp_path), batch_size=BATCH)
        rows = ds.to_arrow()
    assert rows["prediction"].to_pylist() == ["one"] * 20 + ["two"] * 10
    ids = rows["model_id"].to_pylist()
    assert {id_.partition("@")[0] for id_ in ids} == {"v.txt"}
    assert len(set(ids)) == 2


def test_announcements_and_names(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text("raises!" if name == "b" else f"{name}!")
    asked, handled = [], []

    def updates() -> Iterator[hr.ModelMetadata]:
        for name in ("b", "c"):
            asked.append(name)
            yield hr.ModelMetadata(str(tmp_path / f"{name}.txt"), f"model {name}")
            handled.append(name)

    def script(outcomes: Outcomes) -> Iterator[None]:
        outcomes.wait_for(3)
        yield

    with Outcomes() as outcomes:
        handler = Paced(str(tmp_path / "a.txt"), script(outcomes), outcomes)
        table = hr.range(30).run_inference(handler, inputs="id", updates=updates(), batch_size=BATCH).to_arrow()
    assert asked == ["b", "c"]
    assert set(table["prediction"].to_pylist()) == {"a", "c"}
    assert table["prediction"].to_pylist()[-1] == "c"
    assert table["model_id"].to_pylist()[-1].startswith("model c@")


def test_a_dataset_announces_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a!")
    (tmp_path / "b.txt").write_text("b!")
    versions = hr.from_items([{"model_id": str(tmp_path / "b.txt"), "model_name": "bee"}])

    def script(outcomes: Outcomes) -> Iterator[None]:
        outcomes.wait_for(2)
        yield

    with Outcomes() as outcomes:
        handler = Paced(str(tmp_path / "a.txt"), script(outcomes), outcomes)
        table = hr.range(30).run_inference(handler, inputs="id", updates=versions, batch_size=BATCH).to_arrow()
    assert table["prediction"].to_pylist()[-1] == "b"
    assert table["model_id"].to_pylist()[-1].startswith("bee@")


def test_announcements_that_end_with_an_error_leave_the_model_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a!")

    def updates() -> Iterator[hr.ModelMetadata]:
        raise ConnectionError("no more news")
        yield

    def script(outcomes: Outcomes) -> Iterator[None]:
        outcomes.wait_for(2)
        yield

    with Outcomes() as outcomes:
        handler = Paced(str(tmp_path / "a.txt"), script(outcomes), outcomes)
        job = hr.range(30).run_inference(handler, inputs="id", updates=updates(), batch_size=BATCH, version="1")
        result = job.write_json(tmp_path / "out").run()
    assert "no more versions come: ConnectionError: no more news" in str(result.report())
    assert result.report().balance().written == 30


def test_a_run_begins_with_the_newest_that_will_do(tmp_path: Path) -> None:
    for number, text in enumerate(["one!", "two!", "thr"]):
        (tmp_path / f"v{number}.txt").write_text(text)
        os.utime(tmp_path / f"v{number}.txt", (1000 + number, 1000 + number))
    ds = hr.range(3).run_inference(Text(str(tmp_path / "v0.txt")), inputs="id", watch=f"{tmp_path}/v*.txt")
    assert ds.to_arrow()["prediction"].to_pylist() == ["two"] * 3


def test_where_nothing_matches_the_handler_s_own_model_answers(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("own!")
    ds = hr.range(3).run_inference(Text(str(tmp_path / "own.txt")), inputs="id", watch=f"{tmp_path}/v*.txt")
    (id_,) = set(ds.to_arrow()["model_id"].to_pylist())
    assert id_.startswith("own.txt@")


class Afar(Paced):
    """Loads its file from wherever it lies."""

    def load_model(self) -> str:
        return Text(str(local_copy(self.path))).load_model()


def test_models_behind_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    store = fsspec.filesystem("memory")
    store.pipe("/afar/v1.txt", b"one!")

    def script(outcomes: Outcomes) -> Iterator[None]:
        store.pipe("/afar/v2.txt", b"tw")
        outcomes.wait_for(2)
        store.pipe("/afar/v2.txt", b"two!")
        outcomes.wait_for(3)
        yield

    with Outcomes() as outcomes:
        handler = Afar("memory://afar/v1.txt", script(outcomes), outcomes)
        watched = hr.WatchFilePattern("memory://afar/v*.txt", interval_secs=0.002)
        table = hr.range(30).run_inference(handler, inputs="id", watch=watched, batch_size=BATCH).to_arrow()
    assert table["prediction"].to_pylist() == ["one"] * 20 + ["two"] * 10
    assert [id_.partition("@")[0] for id_ in table["model_id"].to_pylist()] == ["v1.txt"] * 20 + ["v2.txt"] * 10


class Stops(Text):
    """Fails on one row with its first version."""

    def run_inference(self, batch: Any, model: str) -> list[Any]:
        if 25 in batch and model == "one":
            raise ValueError("stop here")
        return [model for _ in batch]


def test_a_job_that_was_stopped_goes_on_with_the_newest_version(tmp_path: Path) -> None:
    (tmp_path / "v1.txt").write_text("one!")

    def job(**other: Any) -> hr.Job:
        settings = {"watch": f"{tmp_path}/v*.txt", **other}
        scored = hr.range(40).run_inference(Stops(str(tmp_path / "v1.txt")), inputs="id", batch_size=BATCH, **settings)
        return scored.write_parquet(tmp_path / "out")

    with pytest.raises(StageError, match="stop here"):
        job().run()
    (tmp_path / "v2.txt").write_text("two!")
    job().run()
    found = ids_and_answers(pq.read_table(tmp_path / "out"))
    assert [row for row, _ in found] == list(range(40))
    assert {"two"} <= {answer for _, answer in found} <= {"one", "two"}
    assert dict(found)[25] == "two"
    with pytest.raises((ResumeError, OutputExistsError)):
        job(watch=f"{tmp_path}/other*.txt").run()
    with pytest.raises((ResumeError, OutputExistsError)):
        job(watch=None).run()


def test_answers_are_kept_by_version(tmp_path: Path) -> None:
    (tmp_path / "v1.txt").write_text("one!")
    cache, first = hr.PredictionCache(tmp_path / "cache"), str(tmp_path / "v1.txt")

    def answers(script: Callable[[Outcomes], Iterator[None]] | None = None) -> tuple[list[str], int]:
        with Outcomes() as outcomes:
            return run(Text(first) if script is None else Paced(first, script(outcomes), outcomes))

    def run(handler: Text) -> tuple[list[str], int]:
        ds = hr.range(30).run_inference(
            handler, inputs="id", watch=watch(tmp_path), batch_size=BATCH, cache=cache, version="1"
        )
        job = ds.write_parquet(tmp_path / f"out{len(list(tmp_path.iterdir()))}")
        result = job.run()
        recall = next(stage.recall for stage in result.statistics.stages if stage.recall is not None)
        found = pq.read_table(result.statistics.sinks[0].folder)
        return found["prediction"].to_pylist(), recall.hits

    assert answers() == (["one"] * 30, 0)
    assert answers() == (["one"] * 30, 30)
    (tmp_path / "v2.txt").write_text("two!")
    assert answers() == (["two"] * 30, 0)
    assert answers() == (["two"] * 30, 30)
    (tmp_path / "v3.txt").write_text("three!")
    (tmp_path / "v2.txt").unlink()

    def change(outcomes: Outcomes) -> Iterator[None]:
        publish(tmp_path / "v4.txt", "four!")
        outcomes.wait_for(2)
        yield

    found, hits = answers(change)
    assert (found, hits) == (["three"] * 20 + ["four"] * 10, 0)
    # What was asked for while one version was in use, and answered when another was, is kept for neither.
    found, hits = answers()
    assert found == ["four"] * 30
    (tmp_path / "v5.txt").write_text("three!")
    found, hits = answers()
    assert found == ["three"] * 30


def test_a_version_that_the_rows_of_the_job_go_with_is_told_by_row_durability_too(tmp_path: Path) -> None:
    (tmp_path / "v1.txt").write_text("one!")

    def job() -> hr.Job:
        scored = hr.range(40).run_inference(
            Stops(str(tmp_path / "v1.txt")), inputs="id", batch_size=BATCH, watch=f"{tmp_path}/v*.txt", durability="row"
        )
        return scored.write_parquet(tmp_path / "out")

    with pytest.raises(StageError):
        job().run()
    (tmp_path / "v2.txt").write_text("two!")
    job().run()
    table = pq.read_table(tmp_path / "out")
    assert table["id"].to_pylist() == list(range(40))
    pairs = set(
        zip(table["prediction"].to_pylist(), [i.partition("@")[0] for i in table["model_id"].to_pylist()], strict=True)
    )
    assert pairs == {("one", "v1.txt"), ("two", "v2.txt")}


def test_what_cannot_be_is_told_when_the_pipeline_is_written(tmp_path: Path) -> None:
    ds, text = hr.range(3), Text(str(tmp_path / "v.txt"))
    with pytest.raises(PlanError, match="one of the two"):
        ds.run_inference(text, watch="m/*", updates=[])
    with pytest.raises(PlanError, match=r"with_model\(path\)"):
        ds.run_inference(FakeModelHandler(len), watch="m/*")
    with pytest.raises(PlanError, match="idle_timeout_secs= is for a model that stays"):
        ds.run_inference(text, watch="m/*", large_model=True, idle_timeout_secs=5)
    with pytest.raises(PlanError, match="KeyedModelHandler"):
        ds.run_inference(hr.KeyedModelHandler({"a": text}, key="id"), watch="m/*")
    with pytest.raises(PlanError, match="an iterable of headrace.ModelMetadata"):
        ds.run_inference(text, updates="m/v1.txt")
    with pytest.raises(PlanError, match="pass headrace.WatchFilePattern"):
        ds.run_inference(text, watch=7)  # type: ignore[arg-type]


def test_a_handler_that_loads_nothing_from_afar_is_told_before_any_data_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.pkl").write_bytes(b"a model")
    handler = SklearnModelHandler(tmp_path / "own.pkl")
    with pytest.raises(PlanError, match="trust_remote_code=True"):
        hr.range(3).run_inference(handler, inputs="id", watch="memory://models/*.pkl").take(1)


def test_the_plan_says_what_is_watched(tmp_path: Path) -> None:
    ds = hr.range(3).run_inference(Text(str(tmp_path / "v.txt")), watch="m/*.txt")
    assert "the newest of m/*.txt, looked for every 60 s" in ds.explain()


class InProcess(Text):
    """Waits in its second batch of the first version for a word through a named pipe."""

    def __init__(self, path: str, pipe: str) -> None:
        super().__init__(path)
        self.pipe = pipe

    def run_inference(self, batch: Any, model: str) -> list[Any]:
        if model == "one" and batch[0] == BATCH:
            with open(self.pipe) as word:
                word.read()
        return [f"{answer} {os.getpid()}" for answer in super().run_inference(batch, model)]


@pytest.mark.heavy
@pytest.mark.parametrize("memory_budget", [None, hr.MemoryBudget(cpu="1GB")])
def test_in_processes_each_version_has_its_own_and_a_crash_of_a_new_one_harms_nobody(
    tmp_path: Path, memory_budget
) -> None:
    for name, text in (("a", "one!"), ("b", "exit!"), ("c", "raises!"), ("d", "four!")):
        (tmp_path / f"{name}.txt").write_text(text)
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    gone = tmp_path / "answered"

    def updates() -> Iterator[hr.ModelMetadata]:
        for name in ("b", "c", "d"):
            yield hr.ModelMetadata(str(tmp_path / f"{name}.txt"))

    def answer_when_all_are_tried(outcomes: Outcomes) -> None:
        outcomes.wait_for(4)
        with open(pipe, "w") as word:
            word.write("go on")

    with Outcomes() as outcomes:
        threading.Thread(target=answer_when_all_are_tried, args=(outcomes,)).start()
        result = (
            hr.range(60)
            .run_inference(
                InProcess(str(tmp_path / "a.txt"), pipe),
                inputs="id",
                updates=updates(),
                batch_size=BATCH,
                isolation="process",
                memory_budget=memory_budget,
                version="1",
            )
            .write_parquet(gone)
            .run()
        )
    table = pq.read_table(gone)
    assert table["id"].to_pylist() == list(range(60))
    answers = [answer.split() for answer in table["prediction"].to_pylist()]
    assert {word for word, _ in answers} == {"one", "four"}
    assert len({pid for _, pid in answers}) == 2
    for _, pid in answers:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    updates_ = next(stage.updates for stage in result.statistics.stages if stage.updates is not None)
    assert (updates_.switches, updates_.rejected) == (1, 2)
    assert json.dumps(result.report().to_dict())


class Shared(Text):
    """Tells where it is. Later batches of the first version wait until somebody holds a named pipe open."""

    def __init__(self, path: str, pipe: str) -> None:
        super().__init__(path)
        self.pipe = pipe

    def run_inference(self, batch: Any, model: str) -> list[Any]:
        if model == "one" and batch[0] >= 6 * BATCH:
            with open(self.pipe):
                pass
        return [f"{answer} {os.getpid()} {id(model)}" for answer in super().run_inference(batch, model)]


@pytest.mark.parametrize(
    ("settings", "copies"),
    [({"large_model": True}, 1), ({"model_copies": 2, "isolation": "process"}, 2), ({"model_copies": 2}, 2)],
)
def test_copies_that_batches_in_flight_share_change_too(tmp_path: Path, settings: Any, copies: int) -> None:
    for name, text in (("a", "one!"), ("b", "raises!"), ("c", "three!")):
        (tmp_path / f"{name}.txt").write_text(text)
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    held: list[int] = []

    def updates() -> Iterator[hr.ModelMetadata]:
        for name in ("b", "c"):
            yield hr.ModelMetadata(str(tmp_path / f"{name}.txt"))

    def hold_the_pipe(outcomes: Outcomes) -> None:
        try:
            outcomes.wait_for(3)
        finally:
            held.append(os.open(pipe, os.O_RDWR))

    with Outcomes() as outcomes:
        threading.Thread(target=hold_the_pipe, args=(outcomes,)).start()
        handler = Shared(str(tmp_path / "a.txt"), pipe)
        ds = hr.range(120).run_inference(
            handler, inputs="id", updates=updates(), batch_size=BATCH, concurrency=4, version="1", **settings
        )
        result = ds.write_parquet(tmp_path / "out").run()
    os.close(held[0])
    table = pq.read_table(tmp_path / "out")
    assert table["id"].to_pylist() == list(range(120))
    answers = [answer.split() for answer in table["prediction"].to_pylist()]
    assert {word for word, *_ in answers} == {"one", "three"}
    for version in ("one", "three"):
        assert len({(pid, place) for word, pid, place in answers if word == version}) <= copies
    updates_ = next(stage.updates for stage in result.statistics.stages if stage.updates is not None)
    assert (updates_.switches, updates_.rejected) == (1, 1)
    for pid in {int(pid) for _, pid, _ in answers} - {os.getpid()}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
