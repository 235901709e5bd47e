"""Whole jobs on the embedded engine: branches, several sinks, dead letters, balance, resume."""

import json
import shutil
import time

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import PlanError, RunError, SinkError, StageError, TooManyFailuresError


def lines(folder):
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def letters(folder):
    return lines(folder / "_dead_letters")


class Picky(hr.ModelHandler):
    def __init__(self, bad):
        self.bad = bad

    def load_model(self):
        return None

    def run_inference(self, batch, model):
        if any(r["id"] in self.bad for r in batch):
            raise ValueError("cannot")
        return [r["id"] for r in batch]


def test_rows_are_written_in_the_order_of_the_input(tmp_path) -> None:
    hr.range(5000).map(lambda r: {"id": r["id"]}, concurrency=3).write_json(tmp_path / "out").run(num_cpus=4)
    assert [r["id"] for r in lines(tmp_path / "out")] == list(range(5000))


def test_every_row_ends_in_exactly_one_place(tmp_path) -> None:
    ds = hr.range(1000).filter(lambda r: r["id"] % 2 == 0).run_inference(Picky({10, 500}), max_batch_size=64)
    result = ds.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert len(lines(tmp_path / "out")) == result.rows_written == 498
    found = letters(tmp_path / "out")
    assert [letter["row"]["id"] for letter in found] == [10, 500]
    assert {letter["error_type"] for letter in found} == {"ValueError"}
    assert result.failed == 2
    assert "read 1,000 = written 498 + failed 2 + filtered 500" in str(result.report())


def test_null_keeps_the_row_and_counts_it(tmp_path) -> None:
    result = hr.range(10).run_inference(Picky({3})).write_json(tmp_path / "out").run(on_error="null")
    rows = lines(tmp_path / "out")
    assert [r["prediction"] for r in rows] == [0, 1, 2, None, 4, 5, 6, 7, 8, 9]
    assert result.statistics.sinks[0].with_error == 1


def test_branches_share_what_is_before_them(tmp_path) -> None:
    calls = []
    shared = hr.range(100).map(lambda r: calls.append(1) or r, isolation="thread")
    parts = shared.split({"even": lambda r: r["id"] % 2 == 0, "odd": lambda r: r["id"] % 2})
    hr.run(parts["even"].write_json(tmp_path / "even"), parts["odd"].write_json(tmp_path / "odd"))
    assert len(calls) == 100
    assert [r["id"] for r in lines(tmp_path / "even")] == list(range(0, 100, 2))
    assert [r["id"] for r in lines(tmp_path / "odd")] == list(range(1, 100, 2))


def test_a_failure_before_a_branch_is_recorded_once_also_beside_a_limit(tmp_path) -> None:
    def bad(row):
        if row["id"] == 77:
            raise ValueError("no")
        return row

    shared = hr.range(100).map(bad)
    first = shared.limit(3).write_json(tmp_path / "first")
    second = shared.write_json(tmp_path / "second")
    hr.run(first, second, on_error="dead_letter")
    assert len(lines(tmp_path / "first")) == 3
    assert len(lines(tmp_path / "second")) == 99
    found = [letter for name in ("first", "second") for letter in letters(tmp_path / name)]
    assert [letter["row"]["id"] for letter in found] == [77]


def test_a_finished_job_has_nothing_to_do_when_run_again(tmp_path) -> None:
    calls = []

    class Count(Picky):
        def run_inference(self, batch, model):
            calls.append(len(batch))
            return [0] * len(batch)

    job = hr.range(100).run_inference(Count(set()), version="1").write_json(tmp_path / "out")
    job.run()
    done = sum(calls)
    result = job.run()
    assert sum(calls) == done == 100
    assert result.statistics.sinks[0].rows_before == 100
    assert len(lines(tmp_path / "out")) == 100


def test_with_two_sinks_each_gets_what_it_lacks(tmp_path) -> None:
    ds = hr.range(50).map(lambda r: r)
    ds.write_json(tmp_path / "one").run()
    hr.run(ds.write_json(tmp_path / "one"), ds.write_json(tmp_path / "two"))
    assert [r["id"] for r in lines(tmp_path / "one")] == list(range(50))
    assert [r["id"] for r in lines(tmp_path / "two")] == list(range(50))


def test_a_failure_goes_on_where_it_was_after_the_row_is_set_aside(tmp_path) -> None:
    job = hr.range(100).run_inference(Picky({60}), batch_size=10).write_json(tmp_path / "out")
    with pytest.raises(StageError, match=r"row 60 .*cannot"):
        job.run()
    result = job.run(on_error="dead_letter")
    assert len(lines(tmp_path / "out")) == 99
    assert result.failed == 1


def test_rows_that_all_fail_are_no_good_end_also_the_second_time(tmp_path) -> None:
    job = hr.range(40).run_inference(Picky(set(range(40)))).write_json(tmp_path / "out")
    for _ in range(2):
        with pytest.raises(TooManyFailuresError, match="40 rows failed"):
            job.run(on_error="dead_letter")


def test_a_step_that_fails_for_every_row_stops_early(tmp_path) -> None:
    calls = []

    def bad(row):
        calls.append(1)
        raise ValueError("wrong path")

    with pytest.raises(TooManyFailuresError, match="first 100 rows failed.*wrong path"):
        hr.range(100_000).map(bad).write_json(tmp_path / "out").run(on_error="dead_letter")
    assert len(calls) < 100_000


def test_union_and_limit_into_a_file(tmp_path) -> None:
    ds = hr.range(10).union(hr.from_items([{"id": 100}]))
    ds.write_parquet(tmp_path / "all").run()
    ds.limit(4).write_parquet(tmp_path / "some").run()
    assert pq.read_table(tmp_path / "all")["id"].to_pylist() == [*range(10), 100]
    assert pq.read_table(tmp_path / "some")["id"].to_pylist() == [0, 1, 2, 3]


def test_a_limit_resumes(tmp_path) -> None:
    job = hr.range(100).filter(lambda r: r["id"] % 2).limit(10).run_inference(Picky(set())).write_json(tmp_path / "out")
    job.run()
    job.run()
    assert [r["id"] for r in lines(tmp_path / "out")] == list(range(1, 20, 2))


def test_processes_and_threads_write_the_same(tmp_path) -> None:
    for isolation in ("thread", "process"):
        ds = hr.range(3000).map(lambda r: {"id": r["id"], "sq": r["id"] ** 2}, isolation=isolation, concurrency=2)
        ds.write_json(tmp_path / isolation).run()
    assert lines(tmp_path / "thread") == lines(tmp_path / "process")


def test_fan_out_goes_to_files_in_order(tmp_path) -> None:
    hr.range(20).flat_map(lambda r: [{"id": r["id"], "k": k} for k in range(r["id"])]).write_json(tmp_path / "o").run()
    assert [(r["id"], r["k"]) for r in lines(tmp_path / "o")] == [(i, k) for i in range(20) for k in range(i)]


def test_a_failure_is_recorded_once_although_rows_come_by_two_ways(tmp_path) -> None:
    def bad(row):
        if row["id"] == 7:
            raise ValueError("no")
        return row

    shared = hr.range(10).map(bad)
    twice = shared.union(shared.filter(lambda r: r["id"] > 4))
    twice.write_json(tmp_path / "out").run(on_error="dead_letter")
    assert len(lines(tmp_path / "out")) == 9 + 4
    assert [letter["row"]["id"] for letter in letters(tmp_path / "out")] == [7]
    twice.random_shuffle(buffer_rows=5).write_json(tmp_path / "shuffled").run(on_error="dead_letter")
    assert len(lines(tmp_path / "shuffled")) == 9 + 4
    assert [letter["row"]["id"] for letter in letters(tmp_path / "shuffled")] == [7]


def test_a_unions_inputs_follow_one_another_whatever_job_comes_first(tmp_path) -> None:
    a, b = hr.from_items([{"id": 1}]), hr.from_items([{"id": 2}])
    hr.run(b.write_json(tmp_path / "b"), a.union(b).write_json(tmp_path / "both"))
    assert lines(tmp_path / "both") == [{"id": 1}, {"id": 2}]


def test_several_sinks_of_different_sources_go_on_each_with_its_own(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(20)))

    def run(bad):
        a = hr.read_json(tmp_path / "a.jsonl").write_json(tmp_path / "out_a", rows_per_part=5)
        b = hr.read_json(tmp_path / "b.jsonl").run_inference(Picky(bad), version="1", batch_size=5)
        hr.run(a, b.write_json(tmp_path / "out_b", rows_per_part=5))

    with pytest.raises(StageError):
        run({13})
    run(set())
    assert [r["id"] for r in lines(tmp_path / "out_a")] == list(range(20))
    assert [r["id"] for r in lines(tmp_path / "out_b")] == list(range(20))


def test_a_shuffle_goes_on_in_the_order_in_which_it_was_begun(tmp_path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(200)))

    def shuffled(folder, batch_size, bad=None):
        def fail_late(row):
            if row["id"] == bad:
                deadline = time.monotonic() + 60
                while not list((tmp_path / folder).glob("part-*")) and time.monotonic() < deadline:
                    time.sleep(0.01)
                raise ValueError("no")
            return row

        return (
            hr.read_json(tmp_path / "in.jsonl")
            .run_inference(Picky(set()), version="1", batch_size=batch_size)
            .random_shuffle(buffer_rows=30)
            .map(fail_late, isolation="thread", version="1")
            .write_json(tmp_path / folder, rows_per_part=10)
        )

    with pytest.raises(StageError):
        shuffled("out", 1, bad=199).run()
    assert list((tmp_path / "out").glob("part-*")), "it was begun"
    shuffled("out", 50).run()
    shuffled("at once", 11).run()
    assert lines(tmp_path / "out") == lines(tmp_path / "at once")


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("leave", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_code_that_wants_to_end_the_program_ends_the_run(tmp_path, isolation, leave) -> None:
    def function(row):
        if row["id"] == 5:
            raise leave
        return row

    name = type(leave).__name__
    with pytest.raises(RunError, match=rf"stage 'mine.*': its code wants to end the program \({name}") as caught:
        hr.range(10).map(function, isolation=isolation, version="1", name="mine").write_json(tmp_path / "out").run()
    assert "bug" not in str(caught.value)


def test_a_limit_is_reached_also_where_failed_rows_are_set_aside_later(tmp_path) -> None:
    def job(bad):
        model = Picky(bad)
        ds = hr.range(300).run_inference(model, version="1", batch_size=1, concurrency=3)
        return ds.limit(100).write_json(tmp_path / "out")

    with pytest.raises(StageError):
        job({50}).run()
    job({50}).run(on_error="dead_letter")
    assert [r["id"] for r in lines(tmp_path / "out")] == [i for i in range(101) if i != 50]


@pytest.mark.parametrize("wrong", [{"num_cpus": 0}, {"stall_warning_secs": 0}, {"stall_warning_secs": float("nan")}])
def test_options_that_make_no_sense_are_told_before_anything_is_written(wrong, tmp_path) -> None:
    with pytest.raises(PlanError, match=f"{next(iter(wrong))} is .*; it is a (whole )?number of"):
        hr.range(3).write_json(tmp_path / "out").run(**wrong)
    assert not (tmp_path / "out").exists()


def test_branches_that_come_together_again_add_up(tmp_path) -> None:
    shared = hr.range(100).map(lambda r: r)
    halves = shared.split({"even": lambda r: r["id"] % 2 == 0, "odd": lambda r: r["id"] % 2})
    result = halves["even"].union(halves["odd"], shared).write_json(tmp_path / "out").run()
    assert "read 100 + copied 200 by branches = written 200 + failed 0 + filtered 100" in str(result.report())


def test_an_output_that_is_removed_meanwhile_is_named(tmp_path) -> None:
    out = tmp_path / "out"

    def hostile(row):
        if row["id"] == 30:
            shutil.rmtree(out)
        return row

    with pytest.raises(SinkError, match="cannot write .*out"):
        hr.range(60).map(hostile, isolation="thread").write_json(out, rows_per_part=20).run()
