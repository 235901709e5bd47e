import numpy as np
import pytest

from benchmarks.calls import CALL, done_again, nbytes, noted, processes, read_calls, unexcused


def calls(*entries):
    return np.array(list(entries), dtype=CALL)


def test_calls_are_noted_before_and_after(tmp_path):
    with noted(str(tmp_path), [3, 4]):
        under_way = read_calls(tmp_path)
        before = nbytes(tmp_path)
    assert under_way["row"].tolist() == [3, 4]
    assert np.isnan(under_way["ended"]).all()
    assert nbytes(tmp_path) > before
    answered = read_calls(tmp_path)
    assert answered["row"].tolist() == [3, 4]
    assert (answered["ended"] >= answered["began"]).all()
    assert len(processes(tmp_path)) == 1


def test_a_call_that_raises_has_ended(tmp_path):
    with pytest.raises(ValueError), noted(str(tmp_path), [1]):
        raise ValueError
    assert not np.isnan(read_calls(tmp_path)["ended"]).any()


def test_an_entry_that_a_kill_tore_is_passed_over(tmp_path):
    for _ in range(2):
        with noted(str(tmp_path), [1, 2]):
            pass
    (path,) = tmp_path.glob("*.calls")
    path.write_bytes(path.read_bytes()[:-5])
    found = read_calls(tmp_path)
    assert found["row"].tolist() == [1, 1, 2, 2]
    assert np.isnan(found["ended"]).tolist() == [False, False, False, True]


def test_only_what_follows_another_call_of_its_row_was_done_again():
    assert done_again(calls((1, 0, 1), (2, 0, 1), (2, 5, 6), (2, 7, 8), (3, 0, 1))).tolist() == [2, 3]


def judge(found, deaths, safe_at=None):
    return unexcused(found, deaths, patience_secs=1.0, safe_at=safe_at or {})


def test_a_call_that_a_kill_cut_short_is_made_again():
    assert judge(calls((1, 10.0, np.nan), (1, 30.0, 31.0)), [(20.0, 20.0)]) == []


def test_what_was_finished_long_before_the_kill_must_not_be_done_again():
    assert judge(calls((1, 10.0, 11.0), (1, 30.0, 31.0)), [(20.0, 20.0)]) == [1]


def test_what_was_finished_just_before_may_be():
    assert judge(calls((1, 10.0, 19.5), (1, 30.0, 31.0)), [(20.0, 20.0)]) == []


def test_a_run_that_loses_a_worker_may_drop_what_it_does_until_its_end():
    assert judge(calls((1, 20.5, 20.6), (1, 30.0, 31.0)), [(20.0, 21.0)]) == []
    assert judge(calls((1, 21.5, 21.6), (1, 30.0, 31.0)), [(20.0, 21.0)]) == [1]


def test_what_was_in_the_output_already_must_not_be_done_again():
    assert judge(calls((1, 10.0, 19.5), (1, 30.0, 31.0)), [(20.0, 20.0)], {1: 19.9}) == [1]
    assert judge(calls((1, 10.0, 19.5), (1, 30.0, 31.0)), [(20.0, 20.0)], {1: 32.0}) == []
