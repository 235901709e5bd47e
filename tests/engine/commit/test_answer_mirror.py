"""Answers beside an output in a store: found from another machine, in few objects, whatever the store does."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.commit import answer_mirror
from headrace.engine.commit.answer_mirror import AnswerMirror, decode, encode
from headrace.errors import SinkError
from headrace.model.answer_pages import Page, pages_of
from headrace.sinks.store import Store
from tests.stores import FlakyFileSystem, flaky_store, objects

OUT, FOLDER = "flaky://bucket/out", ".headrace/answers/job"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FlakyFileSystem]]:
    monkeypatch.setattr(answer_mirror, "PAUSE_SECS", 0.0)
    with flaky_store(monkeypatch) as store:
        yield store


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the thread put nothing, so that a test says when something is put."""
    monkeypatch.setattr(AnswerMirror, "_comes", lambda _: False)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def mirror(writer: str = "one") -> AnswerMirror:
    answers = AnswerMirror(Store(OUT), FOLDER, writer=writer)
    answers.fetch()
    return answers


def put(answers: AnswerMirror, number: int, text: str = "") -> None:
    answers.put([key(number)], pa.record_batch({"0": [f"{text}{number}"]}))


def found(answers: AnswerMirror, numbers: range) -> dict[int, str]:
    return {
        numbers[int(place)]: text
        for some in answers.get([key(number) for number in numbers])
        for place, text in zip(some.places, some.answers["0"].to_pylist(), strict=True)
    }


def kept() -> list[str]:
    return objects(f"{OUT}/{FOLDER}")


class Hold:
    """Lets no object be put before it is told to, and tells when one is to be."""

    def __init__(self, store: type[FlakyFileSystem]) -> None:
        self.asked, self.free = threading.Event(), threading.Event()
        self._ask = Store.put
        self.puts = 0

    def __call__(self, store: Store, name: str, data: bytes) -> None:
        self.asked.set()
        assert self.free.wait(60)
        self.puts += 1
        self._ask(store, name, data)


def test_what_is_put_is_found_here_at_once_and_on_another_machine_after_the_end(store: type[FlakyFileSystem]) -> None:
    one = mirror()
    assert not one.exists
    for number in range(5):
        put(one, number)
    assert found(one, range(6)) == {number: str(number) for number in range(5)}
    one.close()
    other = mirror("other")
    assert other.exists
    assert found(other, range(6)) == {number: str(number) for number in range(5)}
    other.close()


def test_answers_come_into_the_store_while_the_run_goes_on(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = threading.Event()
    whole = Store.put
    monkeypatch.setattr(Store, "put", lambda *given: (whole(*given), arrived.set()))
    one = mirror()
    put(one, 7)
    assert arrived.wait(60)
    other = mirror("other")  # the first machine is gone: nobody told
    assert found(other, range(10)) == {7: "7"}
    other.close()
    one.close()


def test_what_comes_during_a_request_shares_the_next(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold(store)
    monkeypatch.setattr(Store, "put", lambda *given: hold(*given))
    one = mirror()
    put(one, 0)
    assert hold.asked.wait(60)
    for number in range(1, 50):
        put(one, number)
    hold.free.set()
    one.close()
    assert hold.puts == 2
    other = mirror("other")
    assert len(found(other, range(100))) == 50
    other.close()


@pytest.mark.usefixtures("by_hand")
def test_small_objects_become_one_and_full_ones_stay(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_mirror, "FULL_BYTES", 20_000)
    monkeypatch.setattr(answer_mirror, "MOST_SMALL", 8)
    text = "".join(chr(48 + i % 70) for i in range(500))
    for run in range(20):
        one = mirror(f"run{run}")
        for number in range(15 * run, 15 * run + 15):
            put(one, number, text)
            one._upload()
        one.close()
    other = mirror("other")
    assert found(other, range(400)) == {number: f"{text}{number}" for number in range(300)}
    # 300 answers of half a kilobyte with their frames: some 20 to 40 in a full object, and a few small ones.
    assert len(kept()) <= 30
    other.close()


@pytest.mark.usefixtures("by_hand")
def test_a_kill_between_the_new_object_and_the_end_of_the_old_ones_costs_nothing(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_mirror, "MOST_SMALL", 3)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "remove", lambda *_: None)
        one = mirror()
        for number in range(10):
            put(one, number)
            one._upload()
        one.close()
    other = mirror("other")
    assert found(other, range(10)) == {number: str(number) for number in range(10)}
    other.remove()
    assert kept() == []


def test_a_store_that_stays_away_ends_the_run(store: type[FlakyFileSystem]) -> None:
    one = mirror()
    put(one, 0)
    one.close()
    two = mirror("two")
    store.faults = lambda request, _path: "before" if request == "pipe_file" else ""
    with pytest.raises(SinkError, match=r"cannot write flaky://bucket/out/\.headrace/answers.*goes on from there"):
        for number in range(1, 1_000_000):
            put(two, number)
    two.close()
    store.faults = None
    other = mirror("other")
    assert found(other, range(1)) == {0: "0"}
    other.close()


@pytest.mark.usefixtures("by_hand")
def test_what_the_store_does_not_take_at_the_end_is_told(
    store: type[FlakyFileSystem], caplog: pytest.LogCaptureFixture
) -> None:
    one = mirror()
    put(one, 0)
    store.faults = lambda request, _path: "before" if request == "pipe_file" else ""
    one.close()
    assert "the last answers are not kept, and will be asked for again: cannot write" in caplog.text


def test_whoever_has_answers_waits_for_a_slow_store(
    store: type[FlakyFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_mirror, "MOST_WAITING_BYTES", 10_000)
    hold = Hold(store)
    monkeypatch.setattr(Store, "put", lambda *given: hold(*given))
    one = mirror()
    done: list[int] = []

    def work() -> None:
        for number in range(100):
            put(one, number, "x" * 1_000)
            done.append(number)

    worker = threading.Thread(target=work)
    worker.start()
    assert hold.asked.wait(60)
    while worker.is_alive() and not one._changed._waiters:  # type: ignore[attr-defined]
        os.sched_yield()
    assert worker.is_alive(), "it waits"
    assert len(done) < 50
    hold.free.set()
    worker.join()
    one.close()
    other = mirror("other")
    assert len(found(other, range(100))) == 100
    other.close()


@pytest.mark.usefixtures("by_hand")
def test_a_damaged_object_is_told_and_its_rows_are_asked_for_again(
    store: type[FlakyFileSystem], caplog: pytest.LogCaptureFixture
) -> None:
    one = mirror()
    for number in range(2):
        put(one, number)
        one._upload()
    one.close()
    first, *_ = kept()
    data = Store(OUT).get(f"{FOLDER}/{first}") or b""
    Store(OUT).put(f"{FOLDER}/{first}", data[:-9] + b"x" + data[-8:])
    other = mirror("other")
    assert set(found(other, range(2))) < {0, 1}
    assert f"{first} is damaged; its rows are asked for again" in caplog.text
    other.close()


def test_nothing_is_left_on_this_machine(
    store: type[FlakyFileSystem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one = mirror()
    put(one, 0)
    one.close()
    store.faults = lambda request, _path: "before" if request == "cat_file" else ""
    with pytest.raises(SinkError):
        mirror("other")
    store.faults = None
    mirror("third").remove()
    assert list(tmp_path.iterdir()) == []
    assert kept() == []


@given(
    st.lists(st.tuples(st.lists(st.binary(min_size=16, max_size=16), min_size=1).map(tuple), st.binary()), max_size=5)
)
def test_pages_come_back_from_an_object_as_they_were(pages: list[tuple[tuple[bytes, ...], bytes]]) -> None:
    given_pages = [Page(keys, answers) for keys, answers in pages]
    data = encode(given_pages)
    assert decode(data) == given_pages
    assert decode(data[:-1]) is None
    assert decode(b"") is None


def test_pages_are_small() -> None:
    keys = [key(number) for number in range(1_000)]
    pages = pages_of(keys, pa.record_batch({"0": [b"x" * 50_000] * 1_000}))
    assert [k for page in pages for k in page.keys] == keys
    assert max(page.nbytes for page in pages) < 300_000
