"""The store of answers: what is put is found, by any process, within its bytes, and never from a damaged page."""

import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SinkError
from headrace.model.answer_store import AnswerStore
from headrace.records.columns import to_column
from headrace.records.tensors import object_array


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"0": pa.array(values, pa.int64())})


def found_in(store: AnswerStore, keys: list[bytes]) -> dict[int, int]:
    return {
        int(place): value
        for found in store.get(keys)
        for place, value in zip(found.places, found.answers["0"].to_pylist(), strict=True)
    }


@settings(max_examples=15, deadline=None)
@given(
    puts=st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers()), max_size=200), max_size=5),
    asked=st.lists(st.integers(0, 40), max_size=50),
)
def test_what_was_put_first_is_found_for_every_time_it_is_asked(puts, asked, tmp_path_factory) -> None:
    store, expected = AnswerStore(str(tmp_path_factory.mktemp("store")), durable=False), {}
    for pairs in puts:
        pairs = [(k, v % 1000) for k, v in pairs]
        store.put([key(k) for k, _ in pairs], numbers(*[v for _, v in pairs]))
        for k, v in pairs:
            expected.setdefault(k, v)
    assert found_in(store, [key(k) for k in asked]) == {i: expected[k] for i, k in enumerate(asked) if k in expected}
    store.close()


def test_answers_of_all_types_come_back_as_they_were(tmp_path) -> None:
    answers = pa.record_batch(
        {
            "0": to_column(np.arange(12.0).reshape(3, 2, 2)),
            "1": pa.array([{"label": "a", "scores": [0.5, None]}, None, {"label": "b", "scores": []}]),
            "2": pa.array(["m", "m", "n"]).dictionary_encode(),
        }
    )
    AnswerStore(str(tmp_path), durable=True).put([key(1), key(2), key(3)], answers)
    (found,) = AnswerStore(str(tmp_path), durable=True).get([key(3), key(9), key(1)])
    assert found.places.tolist() == [0, 2]
    assert found.answers.equals(answers.take(pa.array([2, 0])))


def test_nothing_is_made_before_the_first_answer(tmp_path) -> None:
    store = AnswerStore(str(tmp_path / "none"), durable=True)
    assert store.get([key(1)]) == []
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_it_stays_within_its_bytes_and_keeps_what_is_used(tmp_path) -> None:
    limit = 2**20
    store = AnswerStore(str(tmp_path), durable=False, max_bytes=limit)
    text = "x" * 10_000
    for number in range(300):
        store.put([key(number)], pa.record_batch({"0": [text + str(number)]}))
        assert store.nbytes <= limit
        assert found_in(store, [key(0)]) == {0: text + "0"}
    kept = found_in(store, [key(number) for number in range(300)])
    assert 50 < len(kept) < 150
    assert sorted(kept) == [0, *range(301 - len(kept), 300)]
    store.close()
    assert (tmp_path / "answers.sqlite").stat().st_size <= limit + 100_000


def test_a_damaged_page_is_not_read_and_may_be_answered_anew(tmp_path) -> None:
    store = AnswerStore(str(tmp_path), durable=False)
    store.put([key(1)], numbers(1))
    store.put([key(2)], numbers(2))
    with sqlite3.connect(tmp_path / "answers.sqlite") as db:
        db.execute(
            "update pages set answers = cast(substr(answers, 1, 100) || x'ff' || substr(answers, 102) as blob) where id = 1"
        )
    assert found_in(store, [key(1), key(2)]) == {1: 2}
    store.put([key(1)], numbers(11))
    assert found_in(store, [key(1)]) == {0: 11}


def test_pickled_objects_in_the_file_are_never_read(tmp_path) -> None:
    store = AnswerStore(str(tmp_path), durable=False)
    store.put([key(1)], pa.record_batch({"0": object_array([{1, 2}])}))
    assert store.get([key(1)]) == []


def test_what_is_no_store_of_this_version_is_refused(tmp_path) -> None:
    with sqlite3.connect(tmp_path / "answers.sqlite") as db:
        db.execute("pragma user_version = 99")
    with pytest.raises(SinkError, match="another version"):
        AnswerStore(str(tmp_path), durable=False).get([key(1)])
    (tmp_path / "answers.sqlite").write_text("no database " * 1000)
    with pytest.raises(SinkError, match="not a database; mend or remove it"):
        AnswerStore(str(tmp_path), durable=False).get([key(1)])


def test_a_store_that_cannot_be_written_says_so(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot keep answers in .*file"):
        AnswerStore(str(tmp_path / "file" / "in"), durable=False).put([key(1)], numbers(1))


@pytest.mark.parametrize("durable", [True, False])
def test_a_disk_that_refuses_ends_what_must_be_durable_and_costs_others_only_answers(tmp_path, durable, caplog) -> None:
    store = AnswerStore(str(tmp_path), durable=durable)
    store.put([key(1)], numbers(1))
    with sqlite3.connect(tmp_path / "answers.sqlite") as db:
        db.execute("drop table answers")
    if durable:
        with pytest.raises(SinkError, match="cannot keep answers in .*no such table"):
            store.put([key(2)], numbers(2))
        return
    store.put([key(2)], numbers(2))
    assert store.get([key(1)]) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no such table: answers; the run goes on" in caplog.text


def test_threads_that_put_together_lose_nothing(tmp_path) -> None:
    store = AnswerStore(str(tmp_path), durable=True)
    start = threading.Barrier(8)

    def put(thread: int) -> None:
        start.wait()
        for i in range(10):
            store.put([key(100 * thread + i)], numbers(thread))
            assert found_in(store, [key(100 * thread + i)]) == {0: thread}

    threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found_in(store, [key(100 * t + i) for t in range(8) for i in range(10)])) == 80


def test_threads_that_put_together_wait_for_the_disk_once(tmp_path) -> None:
    store = AnswerStore(str(tmp_path), durable=True)
    store.open()
    commits = []
    store._db.set_trace_callback(lambda statement: commits.append(statement) if statement == "commit" else None)
    with store._lock:  # as while one is writing
        threads = [threading.Thread(target=store.put, args=([key(n)], numbers(n))) for n in range(5)]
        for thread in threads:
            thread.start()
        while len(store._waiting) < 5:
            pass
    for thread in threads:
        thread.join()
    assert len(commits) == 1
    assert found_in(store, [key(n) for n in range(5)]) == {n: n for n in range(5)}


SHARING = """
import sys
import pyarrow as pa
from headrace.model.answer_store import AnswerStore

folder, mine = sys.argv[1], int(sys.argv[2])
store = AnswerStore(folder, durable=False, max_bytes=2**30)
for i in range(30):
    shared, own = i.to_bytes(16, "big"), (1000 * mine + i).to_bytes(16, "big")
    store.put([shared, own], pa.record_batch({"0": [i, mine]}))
    for found in store.get([shared]):
        assert found.answers["0"].to_pylist() == [i], found
store.close()
"""


def test_several_processes_share_a_folder(tmp_path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", SHARING, str(tmp_path), str(number)], stderr=subprocess.PIPE, text=True)
        for number in (1, 2, 3)
    ]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    store = AnswerStore(str(tmp_path), durable=False)
    own = found_in(store, [key(1000 * p + i) for p in (1, 2, 3) for i in range(30)])
    assert list(own.values()).count(2) == 30
    assert len(own) == 90
