"""The programs that are measured, where they can be told apart without running them."""

import doctest
import importlib
import pkgutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import benchmarks
from benchmarks import bulk_numpy, start_up
from benchmarks.benchmark import FOLDER, WORK
from benchmarks.bulk_csv import OF_BEAM, OF_HAND, Program, _figures, slope
from benchmarks.equality import require_same
from benchmarks.generators import write_churn_model, write_customers
from benchmarks.process import wall_secs

MODULES = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__" and not m.ispkg]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(f"benchmarks.{name}")).failed == 0


def test_every_script_that_a_benchmark_names_is_there():
    for script in ("programs/headrace_csv.py", "peers/hand_loop.py", "peers/ray_data.py", "peers/daft_frame.py"):
        command = Program("x", "python", script).command(10, WORK / "out")
        assert command[1] == str(FOLDER / script)
        assert (FOLDER / script).is_file()


def test_a_slope_leaves_start_up_out_and_can_be_divided_by():
    assert slope([13.0, 12.0, 14.0], [3.0], 1_000) == pytest.approx(0.01)
    assert slope([1.0], [2.0], 1_000) > 0


def test_the_beam_figure_compares_seconds_a_row():
    runs = {
        "headrace, 1000 rows, s": [2.0],
        "headrace, 100 rows, s": [1.1],
        "hand loop, 1000 rows, s": [2.0],
        "headrace infer, 1000 rows, s": [2.0],
        "daft, 1000 rows, s": [4.0],
        "ray data, 1000 rows, s": [20.0],
        "beam, 100 rows, s": [5.0],
        "beam, 10 rows, s": [4.1],
    }
    figures = _figures(runs, 1_000, peers=True)
    assert figures[OF_BEAM] == pytest.approx(10)  # 0.9 s for 90 rows beside 0.9 s for 900
    assert set(_figures(runs, 1_000, peers=False)) < set(figures)
    assert figures[OF_HAND] == 1


def test_both_hand_loops_do_the_work(tmp_path):
    source = write_customers(tmp_path / "customers", rows=20, files=2)
    model = write_churn_model(tmp_path / "churn.pkl")
    out = tmp_path / "loop"
    hand = Program("hand loop", start_up.sys.executable, "peers/hand_loop.py").command(20, out)
    wall_secs([*hand[:2], str(source), str(model), str(out)])
    assert pq.read_table(out).num_rows == 20

    numpy_out = tmp_path / "numpy"
    wall_secs(bulk_numpy.hand_program(1_000, numpy_out, 300))
    assert pq.read_table(numpy_out)["id"].to_pylist() == list(range(1_000))
    assert bulk_numpy.largest_row_group(numpy_out) == 300


def test_outputs_of_the_plain_script_can_be_compared(tmp_path):
    source = write_customers(tmp_path / "customers", rows=10, files=1)
    model = write_churn_model(tmp_path / "churn.pkl")
    out = tmp_path / "plain"
    out.mkdir()
    wall_secs(start_up.plain_command(source, model, out))
    assert require_same(out, out, key="customer_id") == 10
    assert pa.types.is_boolean(pq.read_table(out)["score"].type)
