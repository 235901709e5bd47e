"""Output in S3: whole parts, never somebody else's files or buckets, and errors that a person can act on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError, OutputExistsError, ResumeError, SinkError
from tests.s3 import SECRET, Store, serving

pytestmark = pytest.mark.heavy
FORMATS = ["csv", "json", "parquet"]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving(monkeypatch) as store:
        yield store


def numbers(count: int = 25) -> hr.Dataset:
    return hr.from_items([{"id": i, "text": f"row {i}"} for i in range(count)])


def visible(store: Store) -> list[str]:
    return [name for name in store.names() if "/.headrace/" not in name]


def write(
    ds: hr.Dataset, format: str, url: str = "s3://bucket/out", *, max_outage_secs: float = 60, **options: Any
) -> hr.RunResult:
    job: hr.Job = getattr(ds, f"write_{format}")(url, **options)
    return job.run(on_error="dead_letter", max_outage_secs=max_outage_secs)


def read(format: str, url: str = "s3://bucket/out") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = list(getattr(hr, f"read_{format}")(url).iter_rows())
    return rows


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_comes_back_as_it_went(store: Store, format: str) -> None:
    assert write(numbers(), format, rows_per_part=10).rows_written == 25
    assert read(format) == numbers().take(25)
    assert len(visible(store)) == 3


@pytest.mark.parametrize("format", FORMATS)
def test_a_store_that_is_not_the_usual_one(store: Store, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ds = numbers().map(no_seven)
    job = getattr(ds, f"write_{format}")("s3://bucket/out", storage_options=store.options)
    assert SECRET not in repr(job.node) + job.explain()
    job.run(on_error="dead_letter")
    assert [key.split(".")[0] for key in visible(store)] == ["out/_dead_letters/failures-00000", "out/part-00000"]
    assert not any(SECRET.encode() in store.get(name) for name in store.names())
    again = getattr(ds, f"write_{format}")("s3://bucket/out", storage_options=store.options, if_exists="overwrite")
    again.run(on_error="dead_letter")
    assert len(visible(store)) == 2


def no_seven(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 7:
        raise ValueError("seven")
    return row


@pytest.mark.parametrize("format", FORMATS)
def test_columns_that_turn_up_late(store: Store, format: str) -> None:
    late = numbers(6).map(lambda row: {**row, "late": 1} if row["id"] > 3 else row)
    write(late, format, rows_per_part=2)
    assert [row.get("late") for row in read(format)] == [None, None, None, None, 1, 1]


def test_an_output_that_exists(store: Store) -> None:
    write(numbers(), "csv", rows_per_part=10)
    with pytest.raises(OutputExistsError, match=r"s3://bucket/out holds files already \(part-00000\.csv"):
        write(numbers(3), "csv", if_exists="fail")
    with pytest.raises(ResumeError, match=r"s3://bucket/out was begun by another job: source from_items has changed"):
        write(numbers(3), "csv")
    assert len(read("csv")) == 25
    write(numbers(3), "csv", if_exists="overwrite")
    assert visible(store) == ["out/part-00000.csv"]
    assert len(read("csv")) == 3
    store.put("out/thesis.txt", b"not ours")
    with pytest.raises(OutputExistsError, match=r"did not write \(thesis\.txt\)"):
        write(numbers(3), "csv", if_exists="overwrite")


def refused(action: Callable[[], object]) -> str:
    """Return the one message of an action that fails, as a script would show it."""
    with pytest.raises(HeadraceError) as caught:
        action()
    assert isinstance(caught.value, SinkError)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_a_bucket_that_is_not_there_is_not_made(store: Store) -> None:
    message = refused(lambda: write(numbers(), "json", "s3://buckett/out"))
    assert "cannot write s3://buckett/out: there is no such bucket" in message
    assert store.buckets() == ["bucket"]


def test_wrong_credentials(store: Store) -> None:
    store.demand_credentials()
    for if_exists in ("resume", "overwrite"):
        message = refused(lambda if_exists=if_exists: write(numbers(), "json", if_exists=if_exists))  # type: ignore[misc]
        assert "s3://bucket/out" in message
        assert "check your credentials" in message


def test_a_server_that_goes_away(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def stopping(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 7:
            store.stop()
        return row

    stopped = numbers().map(stopping, isolation="thread", version="1")
    message = refused(lambda: write(stopped, "json", max_outage_secs=0.5))
    assert "cannot write s3://bucket/out/" in message
    assert "max_outage_secs" in message
    assert list(tmp_path.iterdir()) == [], "nothing is left on this machine"
    message = refused(lambda: write(numbers(), "json", "s3://bucket/other"))
    assert "cannot write s3://bucket/other" in message
