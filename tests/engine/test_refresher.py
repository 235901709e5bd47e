"""What becomes of offered versions, step by step: memory that does not suffice, and ways back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.offers import AnnouncedOffers
from headrace.engine.predict import PredictTask, batch_of
from headrace.engine.refresher import Refresher
from headrace.engine.versions import Versions
from headrace.errors import ModelLoadError
from headrace.plan.nodes import InferenceSpec
from tests.engine.changing_model import Text


class Memory:
    """So many bytes are free."""

    def __init__(self, free: int) -> None:
        self.free = free

    def free_bytes(self) -> int:
        return self.free


class Counted(Text):
    """Knows how many of its kind are loaded, and how many were at most."""

    loaded: dict[str, int] = {"now": 0, "most": 0}
    room = 99

    def load_model(self) -> str:
        if self.loaded["now"] >= self.room:
            raise MemoryError("too many models")
        model = super().load_model()
        self.loaded["now"] += 1
        self.loaded["most"] = max(self.loaded["most"], self.loaded["now"])
        return model

    def unload(self, model: str) -> None:
        self.loaded["now"] -= 1


class Bench:
    """A refresher by hand: announcements are made one by one, and rows asked for in between."""

    def __init__(self, handler: Text, *, free: int = 2**60, budget_bytes: int | None = None) -> None:
        self.versions = Versions()
        self.announced: list[hr.ModelMetadata] = []
        self.ready = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)
        self.spec = InferenceSpec(handler=handler, inputs="id")
        self.refresher = Refresher(
            self.spec,
            name="model",
            offers=AnnouncedOffers(self._updates()),
            versions=self.versions,
            make_task=lambda version, spec, number: PredictTask(spec, "model", "dead_letter"),
            copies=1,
            memory=Memory(free),  # type: ignore[arg-type]
            budget_bytes=budget_bytes,
            pause=lambda secs: None,
        )

    def _updates(self) -> Any:
        while True:
            self.asked.release()  # what was announced before has been tried
            self.ready.acquire()
            if not self.announced:
                return
            yield self.announced.pop()

    def __enter__(self) -> Bench:
        self.refresher.begin()
        self.ask()
        assert self.asked.acquire(timeout=10)
        return self

    def __exit__(self, *_: object) -> None:
        self.ready.release()
        self.refresher.close()

    def ask(self) -> list[Any]:
        batch = batch_of([pa.record_batch({"id": [1, 2, 3]})], self.spec)
        with self.versions.lease(0, 3) as task:
            (answered,) = task.process(batch)
            self.refresher.answered(batch, answered)
        return answered.batch.column("prediction").to_pylist()

    def announce(self, path: Path) -> None:
        self.announced.append(hr.ModelMetadata(path))
        self.ready.release()
        assert self.asked.acquire(timeout=10)


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    Counted.loaded.update(now=0, most=0)
    Counted.room = 99
    for name, text in (("one", "one!"), ("two", "two!"), ("raises", "raises!"), ("number", "number!"), ("half", "ha")):
        (tmp_path / name).write_text(text)
    return {path.name: path for path in tmp_path.iterdir()}


def test_where_memory_suffices_the_old_one_leaves_when_the_new_one_is_there(texts: dict[str, Path]) -> None:
    with Bench(Counted(texts["one"])) as bench:
        bench.announce(texts["two"])
        assert bench.ask() == ["two"] * 3
        assert Counted.loaded == {"now": 1, "most": 2}
        (_, change) = bench.refresher.statistics().changes
        assert (change.drained, change.rows_before, change.warm_up_rows) == (False, 3, 3)
    assert Counted.loaded["now"] == 0


def large(handler: Counted) -> Counted:
    handler.model_bytes = 1000
    return handler


@pytest.mark.parametrize("limits", [{"free": 500}, {"budget_bytes": 1999}])
def test_where_it_does_not_the_old_one_leaves_first(texts: dict[str, Path], limits: dict[str, int]) -> None:
    with Bench(large(Counted(texts["one"])), **limits) as bench:
        bench.announce(texts["two"])
        assert bench.ask() == ["two"] * 3
        assert Counted.loaded["most"] == 1
        assert bench.refresher.statistics().changes[-1].drained
        assert bench.versions.rows == 6


def test_where_only_the_load_finds_out_it_is_made_again_alone(texts: dict[str, Path]) -> None:
    Counted.room = 1
    with Bench(Counted(texts["one"])) as bench:
        bench.announce(texts["two"])
        assert bench.ask() == ["two"] * 3
        assert bench.refresher.statistics().changes[-1].drained


@pytest.mark.parametrize("free", [500, 2**60])
@pytest.mark.parametrize("bad", ["raises", "number", "half", "nothing"])
def test_after_one_that_will_not_do_the_old_one_goes_on(
    texts: dict[str, Path], bad: str, free: int, tmp_path: Path
) -> None:
    with Bench(large(Counted(texts["one"])), free=free) as bench:
        bench.announce(tmp_path / bad)
        assert bench.ask() == ["one"] * 3
        assert Counted.loaded == {"now": 1, "most": 1 if free == 500 or bad in ("half", "nothing") else 2}
        found = bench.refresher.statistics()
        assert (found.switches, found.rejected) == (0, 1)
        why = found.changes[-1].rejected
        assert why is not None
        assert {"raises": "no such layer", "number": "are int64", "half": "breaks off", "nothing": "nothing is there"}[
            bad
        ] in why
        assert found.model_id is not None
        assert found.model_id.startswith("one@")


def test_one_that_was_rejected_is_tried_again_when_it_has_changed(texts: dict[str, Path]) -> None:
    with Bench(Counted(texts["one"])) as bench:
        bench.announce(texts["half"])
        bench.announce(texts["half"])
        assert bench.refresher.statistics().rejected == 1
        texts["half"].write_text("whole!")
        bench.announce(texts["half"])
        assert bench.ask() == ["whole"] * 3


def test_an_old_one_that_is_no_longer_what_it_was_cannot_come_back(texts: dict[str, Path]) -> None:
    with Bench(large(Counted(texts["one"])), free=500) as bench:
        bench.announce(texts["two"])
        texts["two"].write_text("raises in its place!")
        bench.announce(texts["two"])
        with pytest.raises(ModelLoadError, match=r"cannot be loaded again: .*two is changing.* name of its own"):
            bench.ask()


class Changes(Counted):
    """Its file is written to while it loads."""

    def load_model(self) -> str:
        model = super().load_model()
        if model == "two":
            Path(self.path).write_text("two and more!")
        return model


def test_what_is_written_while_it_loads_is_not_taken(texts: dict[str, Path]) -> None:
    with Bench(Changes(texts["one"])) as bench:
        bench.announce(texts["two"])
        assert bench.ask() == ["one"] * 3
        assert "is changing while it is loaded" in str(bench.refresher.statistics().changes[-1].rejected)
        bench.announce(texts["two"])
        assert bench.ask() == ["two and more"] * 3


def test_a_version_is_tried_with_the_rows_that_were_answered(texts: dict[str, Path]) -> None:
    class Picky(Counted):
        def run_inference(self, batch: Any, model: str) -> list[Any]:
            if 2 in batch:
                raise ValueError("no two")
            return super().run_inference(batch, model)

    with Bench(Picky(texts["one"])) as bench:
        assert bench.ask() == ["one"] * 2
        bench.announce(texts["two"])
        assert bench.refresher.statistics().changes[-1].warm_up_rows == 2
        assert bench.ask() == ["two"] * 2


def test_numbers_of_all_versions_are_added_up_and_trials_do_not_count(texts: dict[str, Path]) -> None:
    with Bench(Counted(texts["one"])) as bench:
        bench.announce(texts["two"])
        bench.announce(texts["raises"])
        bench.ask()
        done = bench.refresher.model_statistics()
        assert done is not None
        assert (done.rows, done.batches, done.calls) == (6, 2, 2)
