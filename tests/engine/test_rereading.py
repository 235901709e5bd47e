"""Rereading: faults of the network cost time and no row; other errors, and lasting ones, are told."""

import json
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.rereading import reread
from headrace.errors import NoInputError, SourceError
from headrace.records.block import dense_block
from headrace.sources import storage
from headrace.sources.storage import unreadable


def fault(may_pass: bool = True) -> SourceError:
    error = SourceError("the connection broke")
    error.may_pass = may_pass
    return error


def flaky(cuts_by_attempt, rows: int):
    """Read a split in blocks cut otherwise at each attempt; an attempt breaks where its cuts end before the split does."""
    attempts = iter(cuts_by_attempt)

    def read():
        first = 0
        for size in next(attempts, [rows]):
            size = min(size, rows - first)
            if size:
                yield dense_block(pa.record_batch({"x": list(range(first, first + size))}), split=0, first=first)
            first += size
        if first < rows:
            raise fault()

    return read


@given(rows=st.integers(0, 30), cuts=st.lists(st.lists(st.integers(1, 10), max_size=5), max_size=3))
def test_each_row_comes_once_wherever_the_connection_breaks(rows, cuts) -> None:
    pauses: list[float] = []
    told: list[int] = []
    read = reread(
        flaky(cuts, rows), pause=pauses.append, retried=lambda: told.append(1), outage_secs=1, clock=lambda: 0
    )
    blocks = list(read)
    assert [x for block in blocks for x in block.batch.column("x").to_pylist()] == list(range(rows))
    assert [n for block in blocks for n in block.ordinal_array().tolist()] == list(range(rows))
    assert len(pauses) == len(told)


def within(outage_secs: float, read: Any) -> tuple[list[Any], list[float]]:
    """Read with a clock that goes on in pauses only."""
    pauses: list[float] = []
    found: list[Any] = []
    clock = lambda: sum(pauses)  # noqa: E731 - a name for it
    try:
        found.extend(reread(read, pause=pauses.append, retried=lambda: None, outage_secs=outage_secs, clock=clock))
    except SourceError as error:
        found.append(error)
    return found, pauses


@given(outage_secs=st.floats(0, 300))
def test_a_fault_that_lasts_is_told_when_the_time_is_up(outage_secs) -> None:
    (error,), pauses = within(outage_secs, flaky([[]] * 99, 5))
    assert "the connection broke. It was tried again for" in str(error)
    assert sum(pauses) == pytest.approx(outage_secs, abs=0.01)


@given(outage_secs=st.floats(0, 300))
def test_a_place_that_cannot_be_passed_is_told_though_what_is_in_front_of_it_comes_each_time(outage_secs) -> None:
    (*blocks, error), pauses = within(outage_secs, flaky([[2]] * 99, 5))
    assert sum(block.num_rows for block in blocks) == 2
    assert "the connection broke. It was tried again for" in str(error)
    assert sum(pauses) == pytest.approx(outage_secs, abs=0.01)


def test_progress_gives_the_time_back() -> None:
    found, pauses = within(3, flaky([[], [1], [], [2], [], [3]], 10))
    assert sum(block.num_rows for block in found) == 10
    assert sum(pauses) > 3


def test_what_does_not_pass_by_itself_is_told_at_once() -> None:
    def read():
        raise fault(may_pass=False)
        yield

    with pytest.raises(SourceError):
        list(reread(read, pause=lambda secs: pytest.fail("it waited"), retried=lambda: None, outage_secs=60))


@pytest.mark.parametrize(
    ("path", "error", "passes"),
    [
        ("s3://b/a.csv", ConnectionResetError(), True),
        ("s3://b/a.csv", TimeoutError(), True),
        ("s3://b/a.csv", type("ClientPayloadError", (Exception,), {})(), True),
        ("s3://b/a.csv", PermissionError(), False),
        ("s3://b/a.csv", ValueError("no such option"), False),
        ("a.csv", OSError("I/O error"), False),
    ],
)
def test_faults_of_the_network_are_known(path, error, passes) -> None:
    assert unreadable(path, error).may_pass is passes


def test_an_object_that_has_changed_is_told_at_once() -> None:
    error = unreadable("s3://b/a.csv", type("FileExpired", (OSError,), {})(16, "The file has expired"))
    assert not error.may_pass
    assert "s3://b/a.csv changed while it was being read" in str(error)


def test_a_file_that_is_gone_does_not_come_back() -> None:
    assert isinstance(unreadable("s3://b/a.csv", FileNotFoundError()), NoInputError)
    assert not unreadable("s3://b/a.csv", FileNotFoundError()).may_pass


def test_a_run_goes_on_behind_a_broken_connection(tmp_path, monkeypatch) -> None:
    faults: list[str] = []

    class Breaking:
        """A file whose connection breaks behind its beginning."""

        def __init__(self, file):
            self._file = file

        def __getattr__(self, name):
            return getattr(self._file, name)

        def read(self, size=-1):
            if faults and self._file.tell() > 0:
                raise ConnectionResetError(faults.pop())
            return self._file.read(size)

    lines = "".join(json.dumps({"id": i, "text": "x" * 100}) + "\n" for i in range(200_000))
    fsspec.filesystem("memory").pipe_file("/rereading/in.jsonl", lines.encode())
    ds = hr.read_json("memory://rereading/in.jsonl")
    ds.schema()
    whole = storage.opened
    monkeypatch.setattr(storage, "opened", lambda fs, inner: Breaking(whole(fs, inner)))
    faults += ["reset by peer", "reset by peer"]
    result = ds.write_parquet(tmp_path / "out").run()
    assert (faults, result.rows_written, result.statistics.sources[0].retried) == ([], 200_000, 2)
    assert "2 retries" in str(result.report())
    assert hr.read_parquet(tmp_path / "out").select("id").to_arrow()["id"].to_pylist() == list(range(200_000))
    fsspec.filesystem("memory").rm("/rereading", recursive=True)
