"""Secrets inside URLs are not shown, logged, or written down."""

from __future__ import annotations

import pickle
import traceback

import pytest

import headrace as hr
from headrace.engine.commit.identity import JobIdentity
from headrace.engine.commit.journal import Journal
from headrace.errors import SourceError
from headrace.masking import masked
from headrace.metrics.statistics import SinkStatistics
from headrace.records.block import Origin
from headrace.records.failure import RowFailure
from headrace.sources.source import Split


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:pa55@host/a.csv", "https://***@host/a.csv"),
        ("https://t0ken@host/a.csv", "https://***@host/a.csv"),
        ("https://ann:p@55@host:80/a", "https://***@host:80/a"),
        ("https://host/a?X-Amz-Signature=abc&X-Amz-Date=1", "https://host/a?X-Amz-Signature=***&X-Amz-Date=1"),
        ("https://host/a?sv=1&sig=a%2Bb", "https://host/a?sv=1&sig=***"),
        ("https://host/a?api_key=k#top", "https://host/a?api_key=***#top"),
        ("abfs://c@account.dfs.core.windows.net/a", "abfs://c@account.dfs.core.windows.net/a"),
        ("abfs://c:k@account.dfs.core.windows.net/a", "abfs://***@account.dfs.core.windows.net/a"),
        ("s3://bucket/who@where.csv", "s3://bucket/who@where.csv"),
        ("https://host/a.csv?page=2", "https://host/a.csv?page=2"),
        ("ann@example.org wrote: key=1", "ann@example.org wrote: key=1"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert masked(f"cannot read {url}: gone; see '{url}'") == f"cannot read {shown}: gone; see '{shown}'"
    assert masked(shown) == shown


SECRET = "https://ann:pa55@host/a.csv?sig=51gn"


def test_errors_also_those_that_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(SourceError(f"cannot read {SECRET}")))
    assert str(error) == "cannot read https://***@host/a.csv?sig=***"
    assert "pa55" not in repr(error)


def test_plans_places_and_dead_letters() -> None:
    ds = hr.read_csv("data/a.csv")
    shown = [
        str(Split(number=0, label=SECRET, size_bytes=0)),
        str(Origin(SECRET)),
        str(RowFailure.of(ValueError(f"no {SECRET}"), stage="map", ordinal=0, row={}, file=SECRET)),
        ds.write_json(SECRET).node.sink.name,
        ds.write_csv(SECRET).node.sink.name,
        ds.write_parquet(SECRET).node.sink.name,
        hr.read_csv(SECRET).node.source.name,
    ]
    shown.append(str(SinkStatistics(name="a", folder=SECRET, dead_letters_folder=SECRET)))
    for text in shown:
        assert "host/a.csv" in text
        assert "pa55" not in text
        assert "51gn" not in text


def test_a_journal_keeps_no_folder_with_secrets(tmp_path) -> None:
    for folder, kept in ((SECRET, None), ("s3://bucket/failed", "s3://bucket/failed")):
        path = str(tmp_path / f"{kept is None}.sqlite")
        journal = Journal(path)
        journal.begin(JobIdentity(), dead_letters=folder)
        assert journal.dead_letters == kept
        journal.close()
        with open(path, "rb") as file:
            assert b"pa55" not in file.read()


def test_an_input_that_cannot_be_read_shows_no_secret_and_neither_do_the_causes() -> None:
    url = "http://ann:pa55@127.0.0.1:9/a.csv?sig=51gn"
    with pytest.raises(SourceError) as caught:
        hr.read_csv(url).write_json("out").run()
    assert "http://***@127.0.0.1:9/a.csv?sig=***" in str(caught.value)
    printed = "".join(traceback.format_exception(caught.value))
    assert "pa55" not in printed
    assert "51gn" not in printed


def test_the_column_with_the_path_shows_none_either() -> None:
    from headrace.sources.assembly import Added

    assert Added(include_path="path").values(SECRET) == {"path": "https://***@host/a.csv?sig=***"}
