"""Checks of a whole plan, before any data is read."""

import threading

import pytest

import headrace as hr
from headrace.errors import PlanError


def test_an_output_inside_the_input_is_refused(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x\n1\n")
    with pytest.raises(PlanError, match="lies inside the input"):
        hr.read_csv(tmp_path / "in").write_csv(tmp_path / "in" / "out").run()
    assert sorted(p.name for p in (tmp_path / "in").iterdir()) == ["a.csv"]


def test_two_jobs_do_not_share_a_folder(tmp_path) -> None:
    ds = hr.range(3)
    with pytest.raises(PlanError, match="the same folder"):
        hr.run(ds.write_csv(tmp_path / "out"), ds.write_json(tmp_path / "x" / ".." / "out"))
    assert not (tmp_path / "out").exists()


def test_an_output_does_not_lie_where_readers_of_another_find_it(tmp_path) -> None:
    ds = hr.range(3)
    for first, second in (("out", "out/sub"), ("out/sub", "out")):
        with pytest.raises(PlanError, match="out/sub lies inside the output .*out, so"):
            hr.run(ds.write_csv(tmp_path / first), ds.write_json(tmp_path / second))
    hr.run(ds.write_csv(tmp_path / "out"), ds.write_json(tmp_path / "out" / "_aside"), ds.write_json(tmp_path / "out2"))
    assert hr.read_csv(tmp_path / "out").count() == 3


@pytest.mark.parametrize("folder", ["out", "out/failed"])
def test_dead_letters_do_not_lie_among_the_parts(folder, tmp_path) -> None:
    job = hr.range(3).write_json(tmp_path / "out")
    with pytest.raises(PlanError, match="would be read as rows of the output .*out; name a folder beside it"):
        job.run(on_error="dead_letter", dead_letters=str(tmp_path / folder))
    assert not (tmp_path / "out").exists()
    assert job.run(on_error="dead_letter", dead_letters=str(tmp_path / "out" / "_failed")).rows_written == 3


def test_a_function_that_cannot_reach_a_worker_is_refused() -> None:
    lock = threading.Lock()

    def locked(row):
        with lock:
            return row

    with pytest.raises(PlanError, match="lock"):
        hr.range(3).map(locked, isolation="process").count()


def test_hr_run_takes_jobs_only() -> None:
    with pytest.raises(PlanError, match="a job is what"):
        hr.run(hr.range(3))
    with pytest.raises(PlanError, match="nothing to run"):
        hr.run()


def test_an_unknown_runner_is_named(tmp_path) -> None:
    with pytest.raises(PlanError, match="'dask' is not known"):
        hr.range(3).write_csv(tmp_path / "out").run(runner="dask")
