from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

import headrace as hr
from headrace.engine.offers import AnnouncedOffers, WatchedOffers
from headrace.errors import ModelLoadError, PlanError


def publish(folder: Path, name: str, at: float) -> None:
    (folder / name).write_text(name)
    os.utime(folder / name, (at, at))


def never(secs: float) -> None:
    raise AssertionError("nobody has to wait")


def test_a_run_begins_with_the_newest(tmp_path: Path) -> None:
    for name, at in (("b.txt", 10), ("a.txt", 20), ("c.txt", 5)):
        publish(tmp_path, name, at)
    offers = WatchedOffers(hr.WatchFilePattern(f"{tmp_path}/*.txt", 60), clock=lambda: 1000.0)
    assert [offer.name for offer in offers.first(never)] == ["a.txt", "b.txt", "c.txt"]


def test_what_has_just_been_written_is_looked_at_twice(tmp_path: Path) -> None:
    publish(tmp_path, "a.txt", 10)
    publish(tmp_path, "b.txt", 990)
    offers = WatchedOffers(hr.WatchFilePattern(f"{tmp_path}/*.txt", 60), clock=lambda: 1000.0)
    paused: list[float] = []
    assert [offer.name for offer in offers.first(paused.append)] == ["b.txt", "a.txt"]
    assert len(paused) == 1
    growing = WatchedOffers(hr.WatchFilePattern(f"{tmp_path}/*.txt", 60), clock=lambda: 1000.0)
    assert [o.name for o in growing.first(lambda _: publish(tmp_path, "b.txt", 999))] == ["a.txt"]


def test_newer_ones_are_offered_until_the_end(tmp_path: Path) -> None:
    publish(tmp_path, "v1.txt", 10)
    offers = WatchedOffers(hr.WatchFilePattern(f"{tmp_path}/*.txt", 0.001))
    stopped, seen = threading.Event(), []
    offers.took(offers.first(never)[0])
    publish(tmp_path, "v2.txt", 20)
    publish(tmp_path, "v3.txt", 30)
    for offer in offers.later(stopped):
        seen.append(offer.name)
        if offer.name == "v3.txt":
            offers.refused(offer)  # the next newest has its turn
        elif offer.name == "v2.txt":
            offers.took(offer)
            publish(tmp_path, "v4.txt", 40)
        else:
            stopped.set()
    assert seen == ["v3.txt", "v2.txt", "v4.txt"]


def test_a_store_that_is_away_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offers = WatchedOffers(hr.WatchFilePattern("nosuchstore://models/*", 0.001))
    with caplog.at_level(logging.WARNING, "headrace.model"):
        assert offers.first(never) == offers.first(never) == []
    assert len(caplog.records) == 1


def test_announcements_in_their_order_and_one_that_was_refused_once(tmp_path: Path) -> None:
    publish(tmp_path, "a.txt", 10)
    publish(tmp_path, "b.txt", 10)
    a, b = str(tmp_path / "a.txt"), str(tmp_path / "b.txt")
    offers = AnnouncedOffers(
        [hr.ModelMetadata(b, "good"), hr.ModelMetadata(a), hr.ModelMetadata(a), hr.ModelMetadata(b)]
    )
    seen = []
    for offer in offers.later(threading.Event()):
        seen.append(offer.name)
        if offer.name == "a.txt":
            offers.refused(offer)
        else:
            offers.took(offer)
    assert seen == ["good", "a.txt", "b.txt"]
    with pytest.raises(PlanError, match="ModelMetadata"):
        list(AnnouncedOffers(["a.txt"]).later(threading.Event()))  # type: ignore[list-item]


def test_an_offer_holds_as_long_as_nothing_changes(tmp_path: Path) -> None:
    publish(tmp_path, "a.txt", 10)
    (offer,) = AnnouncedOffers([hr.ModelMetadata(str(tmp_path / "a.txt"))]).later(threading.Event())
    offer.check()
    publish(tmp_path, "a.txt", 11)
    with pytest.raises(ModelLoadError, match="is changing"):
        offer.check()
    (tmp_path / "a.txt").unlink()
    with pytest.raises(ModelLoadError, match="has gone"):
        offer.check()
