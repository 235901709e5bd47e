"""Side inputs: whole before the first row, built once, shared between processes, part of the job."""

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError, ResumeError, SideInputError
from headrace.handlers.function import FunctionModelHandler
from headrace.metrics.report import Report

ISOLATIONS = ["thread", "process"]


def countries():
    return hr.from_items([{"code": "fi", "name": "Finland"}, {"code": "de", "name": "Germany"}])


def by_code(table):
    return dict(zip(table["code"].to_pylist(), table["name"].to_pylist(), strict=True))


def orders(rows=6):
    return hr.from_items([{"id": i, "code": ["fi", "de"][i % 2]} for i in range(rows)])


def logged(path, word):
    with open(path, "a") as file:
        file.write(f"{word}\n")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_every_kind_of_step_gets_the_object_by_name(isolation):
    side = {"names": countries().broadcast(by_code)}

    class Filter:
        def __init__(self, wanted):
            self.wanted = wanted

        def __call__(self, row, names):
            return names[row["code"]] == self.wanted

    def double(row, *, names):
        yield row
        yield row | {"code": names[row["code"]]}

    def batch(columns, names):
        return columns | {"many": np.full(len(columns["id"]), len(names))}

    found = (
        orders()
        .map(lambda row, names: row | {"name": names[row["code"]]}, side_inputs=side, isolation=isolation)
        .filter(Filter, args=["Finland"], side_inputs=side, isolation=isolation)
        .add_column("size", lambda row, names: len(names), side_inputs=side, isolation=isolation)
        .flat_map(double, side_inputs=side, isolation=isolation)
        .map_batches(batch, side_inputs=side, isolation=isolation)
        .take(100)
    )
    assert found == [
        {"id": i, "code": code, "name": "Finland", "size": 2, "many": 2}
        for i in (0, 2, 4)
        for code in ("fi", "Finland")
    ]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_handler_gets_it_among_its_inference_args(isolation):
    class Shift(hr.ModelHandler):
        def load_model(self):
            return 100

        def run_inference(self, batch, model, inference_args=None):
            return [model + inference_args["offset"] + inference_args["more"].num_rows + x for x in batch]

    more = {"more": countries().broadcast()}
    asked = hr.range(3).run_inference(
        Shift(), inputs="id", inference_args={"offset": 10}, side_inputs=more, isolation=isolation
    )
    assert [row["prediction"] for row in asked.take(3)] == [112, 113, 114]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_functions_around_a_model_get_it_where_they_have_the_parameter(isolation):
    def name_of(row, names):
        return names[row["code"]]

    def shouted(names):  # its first parameter is the text
        return names + "!"

    def lengthened(answer, *, names):
        return f"{answer} of {len(names)}"

    upper = FunctionModelHandler(lambda texts: [text.upper() for text in texts])  # would refuse an argument `names`
    asked = orders(2).run_inference(
        upper,
        preprocess=[name_of, shouted],
        postprocess=lengthened,
        length_fn=lambda text, names: len(text) + len(names),
        side_inputs={"names": countries().broadcast(by_code)},
        isolation=isolation,
    )
    assert [row["prediction"] for row in asked.take(2)] == ["FINLAND! of 2", "GERMANY! of 2"]


def test_a_function_and_the_model_get_it_under_two_names():
    names = countries().broadcast(by_code)
    handler = FunctionModelHandler(lambda texts, also: [f"{text} of {len(also)}" for text in texts])
    asked = orders(1).run_inference(
        handler, preprocess=lambda row, names: names[row["code"]], side_inputs={"names": names, "also": names}
    )
    assert asked.take(1)[0]["prediction"] == "Finland of 2"
    assert len(asked.stats().side_inputs) == 1


def test_a_function_that_names_the_model_looks_it_up():
    models = {name: FunctionModelHandler(lambda ids, name=name: [name] * len(ids)) for name in ("Finland", "Germany")}
    keyed = hr.KeyedModelHandler(models, key=lambda row, names: names[row["code"]])
    asked = orders(2).run_inference(keyed, inputs="id", side_inputs={"names": countries().broadcast(by_code)})
    assert [row["prediction"] for row in asked.take(2)] == ["Finland", "Germany"]


def test_it_is_built_once_for_all_who_use_it_before_any_row(tmp_path):
    log = tmp_path / "log"

    def build(table):
        logged(log, f"built of {table.num_rows}")
        return set(table["id"].to_pylist())

    def of_side(row):
        logged(log, "side row")
        return row

    def known(row, ids):
        logged(log, "row")
        return row["id"] in ids

    ids = {"ids": hr.range(3).map(of_side).broadcast(build)}
    jobs = [hr.range(5).filter(known, side_inputs=ids, concurrency=n).write_json(tmp_path / f"out{n}") for n in (1, 2)]
    assert hr.run(*jobs).rows_written == 6
    assert log.read_text().split("\n")[:4] == ["side row"] * 3 + ["built of 3"]
    assert log.read_text().count("built") == 1


def test_without_a_build_function_it_is_a_table_in_the_order_of_its_rows():
    side = hr.range(70_000).map(lambda row: {"n": row["id"] * 2}).broadcast()
    found = hr.range(2).map_batches(
        lambda batch, side: {"n": [side["n"].to_numpy().tolist()], "type": [str(side.schema)]},
        side_inputs={"side": side},
    )
    (row,) = found.take(5)
    assert row["type"] == "n: int64"
    assert row["n"] == list(range(0, 140_000, 2))


def test_its_blocks_stay_as_large_as_they_came():
    side = hr.from_arrow(pa.table({"x": np.zeros((3_000_000,))})).broadcast()  # 24 MB
    found = hr.range(1).map(
        lambda row, side: {"largest": max(b.nbytes for b in side.to_batches()), "rows": side.num_rows},
        side_inputs={"side": side},
    )
    (row,) = found.take(1)
    assert row["rows"] == 3_000_000
    assert row["largest"] < 10_000_000


def test_blocks_of_different_columns_are_united():
    items = [{"a": 1}, {"a": 2.5, "b": "x"}, {"a": None}]
    side = hr.range(3).map(lambda row: items[row["id"]]).flat_map(lambda row: [row] * 40_000).broadcast()
    found = hr.range(1).map(
        lambda row, side: {"side": side.group_by(["a", "b"]).aggregate([]).to_pylist()}, side_inputs={"side": side}
    )
    (row,) = found.take(1)
    assert row["side"] == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}, {"a": None, "b": None}]


def test_a_side_input_without_rows_has_its_columns():
    side = countries().filter(lambda row: False).broadcast()
    found = hr.range(1).map(
        lambda row, side: {"rows": side.num_rows, "names": side.column_names}, side_inputs={"side": side}
    )
    assert found.take(1) == [{"rows": 0, "names": ["code", "name"]}]


def test_side_inputs_of_side_inputs_are_made_before_and_once(tmp_path):
    log = tmp_path / "log"

    def build(table):
        logged(log, "inner")
        return by_code(table)

    names = countries().broadcast(build)
    long = countries().map(lambda row, names: row | {"name": names[row["code"]] + "!"}, side_inputs={"names": names})
    both = {"names": names, "long": long.broadcast(by_code)}
    found = orders(1).map(lambda row, names, long: {"both": names[row["code"]] + long[row["code"]]}, side_inputs=both)
    assert found.take(1) == [{"both": "FinlandFinland!"}]
    assert log.read_text() == "inner\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has mapped")
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_arrays_are_mapped_and_cannot_be_written_to(isolation):
    def build(table):
        return {"array": np.arange(100_000), "table": pa.table({"x": np.arange(100_000)}), "small": np.arange(3)}

    def look(row, side):
        with open("/proc/self/maps") as maps:
            mapped = any("headrace-run-" in line and line.rstrip().endswith("buffers") for line in maps)
        return {
            "sum": int(side["array"].sum() + side["table"]["x"].to_numpy().sum() + side["small"].sum()),
            "writeable": side["array"].flags.writeable,
            "mapped": mapped,
        }

    found = countries().broadcast(build)
    job = hr.range(2).map(look, side_inputs={"side": found}, isolation=isolation)
    expected = 2 * sum(range(100_000)) + 3
    assert job.take(2) == [{"sum": expected, "writeable": False, "mapped": True}] * 2


def test_the_report_says_what_is_shared():
    sides = {
        "mapped": hr.range(3).broadcast(lambda table: np.zeros(1_000_000), name="mapped"),
        "own": hr.range(3).broadcast(lambda table: list(range(10_000)), name="own"),
        "lock": hr.range(3).broadcast(lambda table: threading.Lock(), name="lock"),
    }
    result = hr.range(1).filter(lambda row, mapped, own, lock: True, side_inputs=sides).stats()
    mapped, own, lock = result.side_inputs
    assert (mapped.name, mapped.rows, mapped.mapped_bytes) == ("mapped", 3, 8_000_000)
    assert mapped.process_bytes < 1000
    assert own.mapped_bytes == 0
    assert own.process_bytes > 10_000
    assert "lock" in lock.rebuilt
    text = str(Report(result))
    assert "side input mapped: 3 rows" in text
    assert "8.0 MB in memory once a machine" in text
    assert "side input lock: 3 rows" in text
    assert "built once a process, since it cannot be sent" in text


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_cannot_be_sent_is_built_once_a_process(isolation, tmp_path):
    log = tmp_path / "log"

    def build(table):
        logged(log, str(os.getpid()))
        return threading.Lock(), table.num_rows

    side = {"side": hr.range(3).broadcast(build)}
    rows = hr.range(4).map(lambda row, side: {"n": side[1], "pid": os.getpid()}, side_inputs=side, isolation=isolation)
    found = rows.take(4)
    assert {row["n"] for row in found} == {3}
    pids = [int(line) for line in log.read_text().split()]
    assert len(pids) == len(set(pids))
    assert set(pids) >= {row["pid"] for row in found} | {os.getpid()}  # a worker may have got no row


def test_a_row_of_it_that_fails_ends_the_run_before_any_other_row(tmp_path):
    log = tmp_path / "log"
    side = {"side": hr.range(5).map(lambda row: {"x": 1 // (3 - row["id"])}).broadcast(name="inverse")}
    job = (
        hr.range(2).filter(lambda row, side: logged(log, "row") or True, side_inputs=side).write_json(tmp_path / "out")
    )
    with pytest.raises(SideInputError, match="side input 'inverse' cannot be made: .*ZeroDivisionError"):
        job.run(on_error="dead_letter")
    assert not log.exists()
    assert not (tmp_path / "out").exists()


def test_rows_of_it_that_are_set_aside_are_counted():
    side = hr.range(5).filter(lambda row: 1 // (3 - row["id"]) != 5, on_error="dead_letter").broadcast()
    result = hr.range(1).filter(lambda row, side: side.num_rows == 4, side_inputs={"side": side}).stats()
    assert [(side.rows, side.failed) for side in result.side_inputs] == [(4, 1)]


def test_a_build_function_that_fails_is_told():
    side = {"side": countries().broadcast(lambda table: table["nmae"], name="names")}
    with pytest.raises(SideInputError, match="side input 'names' cannot be made: its build function failed: KeyError"):
        hr.range(1).map(lambda row, side: row, side_inputs=side).take(1)


def test_a_disk_limit_holds_for_the_rows_of_it_too(tmp_path):
    side = hr.range(100_000).broadcast(name="numbers")
    used = hr.range(1).map(lambda row, side: {"n": side.num_rows}, side_inputs={"side": side}, version="1")
    told = "side input 'numbers' cannot be made: rows of side inputs would take more than disk_limit=100,000 bytes of"
    with pytest.raises(SideInputError, match=told):
        used.write_json(tmp_path / "out").run(disk_limit="100kB")
    assert used.write_json(tmp_path / "out").run(disk_limit="10MB").rows_written == 1


def test_a_full_disk_is_told_with_what_to_do():
    def build(table):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SideInputError, match="No space left on device; it lies in .* TMPDIR names a folder"):
        hr.range(1).map(lambda row, side: row, side_inputs={"side": countries().broadcast(build)}).take(1)


def test_an_interruption_within_the_building_stays_one():
    def build(table):
        raise hr.RunInterrupted("interrupted by SIGINT")

    with pytest.raises(hr.RunInterrupted):
        hr.range(1).map(lambda row, side: row, side_inputs={"side": countries().broadcast(build)}).take(1)


def test_files_are_gone_when_the_run_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    side = {"side": hr.range(3).broadcast(lambda table: np.zeros(100_000))}
    rows = hr.range(1).map(lambda row, side: {"files": len(os.listdir(tmp_path))}, side_inputs=side)
    assert rows.take(1) == [{"files": 2}]
    assert list(tmp_path.iterdir()) == []


# -- resume ----------------------------------------------------------------------------------------------------------


def job_over(folder, side_file, *, build=by_code, out="out"):
    side = {"names": hr.read_csv(str(side_file)).broadcast(build)}
    rows = orders(4).map(lambda row, names: row | {"name": names[row["code"]]}, side_inputs=side)
    return rows.write_json(folder / out)


def write_side(path, fi="Finland"):
    path.write_text(f"code,name\nfi,{fi}\nde,Germany\n")
    return path


def test_a_job_goes_on_with_side_data_of_the_same_content(tmp_path):
    side = write_side(tmp_path / "names.csv")
    assert job_over(tmp_path, side).run().rows_written == 4
    os.utime(side, (1, 1))
    again = job_over(tmp_path, side).run()
    assert again.rows_written == 0
    assert again.statistics.side_inputs == ()  # nothing to do


def test_new_files_of_a_finished_job_have_their_side_input(tmp_path):
    side, folder = write_side(tmp_path / "names.csv"), tmp_path / "in"
    folder.mkdir()

    def run():
        names = {"names": hr.read_csv(str(side)).broadcast(by_code)}
        rows = hr.read_csv(str(folder)).map(lambda row, names: {"name": names[row["code"]]}, side_inputs=names)
        return rows.write_json(tmp_path / "out").run()

    (folder / "a.csv").write_text("code\nfi\n")
    assert run().rows_written == 1
    (folder / "b.csv").write_text("code\nde\n")
    assert run().rows_written == 1
    assert [row["name"] for row in hr.read_json(str(tmp_path / "out")).take(5)] == ["Finland", "Germany"]


def test_other_side_data_is_another_job(tmp_path):
    side = write_side(tmp_path / "names.csv")
    job_over(tmp_path, side).run()
    with pytest.raises(ResumeError, match="side input names of map has changed"):
        job_over(tmp_path, write_side(side, "Suomi")).run()


def test_another_build_function_is_another_job(tmp_path):
    side = write_side(tmp_path / "names.csv")
    job_over(tmp_path, side).run()
    with pytest.raises(ResumeError, match="side input names of map has changed"):
        job_over(tmp_path, side, build=lambda table: by_code(table.slice(0))).run()


def test_a_run_that_was_stopped_builds_it_again_and_goes_on(tmp_path):
    side = write_side(tmp_path / "names.csv")
    stop = tmp_path / "stop"
    stop.touch()

    def named(row, names):
        if row["id"] == 3 and Path(stop).exists():
            raise OSError("not now")
        return row | {"name": names[row["code"]]}

    def job():
        names = {"names": hr.read_csv(str(side)).broadcast(by_code)}
        return orders(4).map(named, side_inputs=names).write_json(tmp_path / "out", rows_per_part=1)

    with pytest.raises(hr.RunError):
        job().run()
    stop.unlink()
    result = job().run()
    assert [side.rows for side in result.statistics.side_inputs] == [2]
    rows = hr.read_json(str(tmp_path / "out")).take(10)
    assert [row["name"] for row in rows] == ["Finland", "Germany"] * 2


def test_a_cache_knows_answers_by_side_data(tmp_path):
    class Name(hr.ModelHandler):
        def load_model(self):
            return None

        def run_inference(self, batch, model, inference_args=None):
            return [inference_args["names"][code] for code in batch]

    def named(fi):
        side = {"names": hr.read_csv(str(write_side(tmp_path / "names.csv", fi))).broadcast(by_code)}
        cache = hr.PredictionCache(str(tmp_path / "cache"))
        asked = orders(1).run_inference(Name(), inputs="code", side_inputs=side, cache=cache)
        return asked.take(1)[0]["prediction"]

    assert [named("Finland"), named("Suomi"), named("Finland")] == ["Finland", "Suomi", "Finland"]


def test_failed_rows_that_are_run_again_have_their_side_input(tmp_path):
    broken = tmp_path / "broken"
    broken.touch()

    def counted(row, side):
        if row["id"] == 1 and Path(broken).exists():
            raise ValueError("not now")
        return row | {"rows": side.num_rows}

    job = hr.range(2).map(counted, side_inputs={"side": hr.range(3).broadcast()}).write_json(tmp_path / "out")
    assert job.run(on_error="dead_letter").failed == 1
    broken.unlink()
    assert job.retry().rows_written == 1
    assert hr.read_json(str(tmp_path / "out")).take(5) == [{"id": 0, "rows": 3}, {"id": 1, "rows": 3}]


@pytest.mark.parametrize("mode", ["route", "all"])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_each_of_several_models_gets_it(mode, isolation):
    class Times(hr.ModelHandler):
        def __init__(self, factor):
            self.factor = factor

        def load_model(self):
            return self.factor

        def run_inference(self, batch, model, inference_args=None):
            return [model * inference_args["side"].num_rows for _ in batch]

    models = {"one": Times(1), "ten": Times(10)}
    keyed = hr.KeyedModelHandler(models, mode="all") if mode == "all" else hr.KeyedModelHandler(models, key="model")
    rows = hr.from_items([{"model": "ten"}, {"model": "one"}])
    side = {"side": hr.range(3).broadcast()}
    found = rows.run_inference(keyed, inputs="model", side_inputs=side, isolation=isolation).take(2)
    expected = [{"one": 3, "ten": 30}] * 2 if mode == "all" else [30, 3]
    assert [row["prediction"] for row in found] == expected


def test_an_interruption_while_it_is_made_leaves_nothing(tmp_path):
    script = f"""
import os, signal
import headrace as hr

def interrupt(row):
    if row["id"] == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return row

side = hr.range(10).map(interrupt, isolation="thread").broadcast(lambda table: signal.pause())
hr.range(3).map(lambda row, side: row, side_inputs={{"side": side}}).write_json({str(tmp_path / "out")!r}).run()
"""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    ended = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert "interrupted by SIGINT" in ended.stderr
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "out").exists()


# -- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_told_where_they_are_written():
    names = countries().broadcast()
    with pytest.raises(PlanError, match="map: side input 'names' is a Dataset; call broadcast"):
        orders().map(lambda row, names: row, side_inputs={"names": countries()})
    with pytest.raises(PlanError, match="'names' goes to the function by that name, and it has no such parameter"):
        orders().map(lambda row: row, side_inputs={"names": names})
    with pytest.raises(PlanError, match=r"look: side_inputs is list; pass a dict"):
        orders().map(lambda row: row, side_inputs=[names], name="look")
    with pytest.raises(PlanError, match="'names' is among inference_args and among side_inputs"):
        orders().run_inference(None, inference_args={"names": 1}, side_inputs={"names": names})
    with pytest.raises(PlanError, match="from table to object, not dict"):
        countries().broadcast({})
    with pytest.raises(PlanError, match="nothing but a plan; pass it as side_inputs="):
        pickle.dumps(names)


def test_a_handler_that_takes_no_arguments_is_told():
    class Plain(hr.ModelHandler):
        def load_model(self):
            return None

        def run_inference(self, batch, model):
            return batch

    asked = orders().run_inference(Plain(), inputs="id", side_inputs={"names": countries().broadcast()})
    with pytest.raises(PlanError, match=r"given inference_args \(names\)"):
        asked.take(1)


def test_what_is_wrong_with_the_side_plan_is_found_before_anything_runs(tmp_path):
    log = tmp_path / "log"
    side = countries().map(lambda row: logged(log, "row") or row).select("code")
    wrong = hr.from_items([{"a": 1}]).select("b").broadcast()
    sides = {"one": side.broadcast(), "two": wrong}
    with pytest.raises(hr.PlanError, match="needs column 'b'"):
        orders().map(lambda row, one, two: row, side_inputs=sides).take(1)
    assert not log.exists()


def test_two_of_one_name_are_told():
    sides = {"one": countries().broadcast(name="x"), "two": orders().broadcast(name="x")}
    with pytest.raises(PlanError, match="side input 'x' appears twice"):
        orders().map(lambda row, one, two: row, side_inputs=sides).take(1)


def test_memory_that_the_building_took_is_in_the_report():
    side = hr.range(3).broadcast(lambda table: len(np.ones(60_000_000).tobytes()))  # 480 MB, and as much once more
    result = hr.range(1).filter(lambda row, side: side == 480_000_000, side_inputs={"side": side}).stats()
    assert result.peak_memory_bytes > 900_000_000
