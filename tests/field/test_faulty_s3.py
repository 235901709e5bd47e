"""A store that is overloaded: requests that are refused, that fail, or whose answers get lost."""

from __future__ import annotations

import io
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import SinkError, StageError
from headrace.runners.result import RunResult
from tests.engine.test_memories import asked
from tests.faulty_s3 import Fault, FaultyStore
from tests.s3 import Store, serving

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]
FILES, ROWS = 4, 50


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving(monkeypatch) as store:
        for file in range(FILES):
            lines = "".join(f"{file * ROWS + i},name {i}\n" for i in range(ROWS))
            store.put(f"in/part-{file}.csv", f"id,name\n{lines}".encode())
        yield store


@pytest.fixture
def faulty(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    proxy = FaultyStore(store.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    yield proxy
    proxy.stop()


def picky(row: dict[str, object]) -> dict[str, object]:
    if row["id"] == 77:
        raise ValueError("no")
    return row


def run(**options: float) -> RunResult:
    return (
        hr.read_csv("s3://bucket/in/*.csv")
        .map(picky)
        .write_parquet("s3://bucket/out", rows_per_part=30)
        .run(on_error="dead_letter", **options)
    )


def check_end(store: Store) -> None:
    parts = [name for name in store.names() if name.startswith("out/part-")]
    ids = [i for name in sorted(parts) for i in pq.read_table(io.BytesIO(store.get(name)))["id"].to_pylist()]
    assert ids == [i for i in range(FILES * ROWS) if i != 77]
    letters = [name for name in store.names() if name.startswith("out/_dead_letters/")]
    assert [store.get(name).count(b"\n") for name in letters] == [1]


def every(nth: int, fault: Fault, methods: tuple[str, ...] = ("GET", "HEAD", "PUT", "POST", "DELETE")):
    numbers, lock = itertools.count(1), threading.Lock()

    def decide(method: str, path: str) -> Fault:
        with lock:
            return fault if method in methods and next(numbers) % nth == 0 else ""

    return decide


@pytest.mark.parametrize("fault", ["slow down", "internal error", "answer lost"])
def test_requests_that_fail_now_and_then_are_made_again(fault: Fault, store: Store, faulty: FaultyStore) -> None:
    faulty.fault = every(7, fault)
    assert run().rows_written == FILES * ROWS - 1
    assert faulty.faults > 3
    check_end(store)


class Outage:
    """From the second part on no request is answered, until so many have been refused."""

    def __init__(self, refusals: float, fault: Fault = "internal error") -> None:
        self.refusals, self._fault, self._parts, self._lock = refusals, fault, 0, threading.Lock()

    def __call__(self, method: str, path: str) -> Fault:
        with self._lock:
            self._parts += method == "PUT" and "/out/part-" in path
            if self._parts < 2 or self.refusals <= 0:
                return ""
            self.refusals -= 1
            return self._fault


def test_an_outage_that_ends_costs_time_and_nothing_else(store: Store, faulty: FaultyStore) -> None:
    faulty.fault = outage = Outage(refusals=8)
    assert run().rows_written == FILES * ROWS - 1
    assert (outage.refusals, faulty.faults) == (0, 8)
    check_end(store)


def test_an_outage_that_does_not_end_is_told_once_and_the_next_run_goes_on(store: Store, faulty: FaultyStore) -> None:
    faulty.fault = outage = Outage(refusals=math.inf)
    with pytest.raises(SinkError, match=r"cannot write s3://bucket/out/.*max_outage_secs.*goes on from there"):
        run(max_outage_secs=2)
    published = [name for name in store.names() if name.startswith("out/part-")]
    assert published
    outage.refusals = 0
    second = run()
    assert 0 < second.statistics.sinks[0].rows_before < FILES * ROWS
    check_end(store)


def test_rights_that_are_lost_in_the_middle_of_a_run_are_told_and_the_next_run_goes_on(
    store: Store, faulty: FaultyStore
) -> None:
    faulty.fault = outage = Outage(refusals=math.inf, fault="access denied")
    with pytest.raises(SinkError, match=r"cannot write s3://bucket/out.*check your credentials and what they allow"):
        run()
    outage.refusals = 0
    assert 0 < run().statistics.sinks[0].rows_before < FILES * ROWS
    check_end(store)


class Noting(hr.ModelHandler):
    """Writes down each row that it is asked about."""

    def __init__(self, log: Path) -> None:
        self.log = str(log)

    def __headrace_fingerprint__(self) -> str:
        return "noting"

    def load_model(self) -> None:
        return None

    def run_inference(self, batch: Any, model: None) -> list[int]:
        with open(self.log, "a") as log:
            log.writelines(f"{x}\n" for x in batch)
        return [int(x) for x in batch]


def test_answers_that_are_durable_by_row_pass_through_an_overloaded_store(
    store: Store, faulty: FaultyStore, tmp_path: Path
) -> None:
    faulty.fault = every(5, "slow down", ("PUT", "DELETE"))
    rows = hr.read_csv("s3://bucket/in/*.csv").run_inference(
        Noting(tmp_path / "log"), inputs="id", batch_size=10, durability="row"
    )

    def stopped(row: dict[str, object]) -> dict[str, object]:
        if row["id"] == 150:
            raise ValueError("stop")
        return row

    def job(after: Callable[[dict[str, object]], dict[str, object]]) -> hr.Job:
        return rows.map(after, version="1", name="after").write_parquet("s3://bucket/out", rows_per_part=1_000)

    with pytest.raises(StageError, match="stop"):
        job(stopped).run()
    assert asked(tmp_path / "log")
    job(picky).run(on_error="dead_letter")
    assert sorted(asked(tmp_path / "log")) == list(range(FILES * ROWS))
    check_end(store)
    assert not [name for name in store.names() if "/.headrace/answers/" in name]
