import json
import sys

import pytest

from benchmarks import model_host
from benchmarks.benchmark import FOLDER
from benchmarks.model_host import LARGE, MIDDLE, NAMES, SIZES, SMALL
from benchmarks.process import output_of


def test_tensors_come_back_by_both_ways():
    sizes = json.dumps({1 << 10: 3, 1 << 20: 3})
    said = json.loads(output_of([sys.executable, str(FOLDER / "programs/headrace_host.py"), sizes]))
    assert {way: set(times) for way, times in said.items()} == {way: {"1024", "1048576"} for way in ("model", "way")}


def test_larger_is_better_for_large_tensors_and_smaller_for_small_ones():
    runs = {
        f"{program}, {name}, ms": [1.0] for program in ("headrace, model", "headrace, way") for name in NAMES.values()
    }
    runs |= {f"beam, {name}, ms": [4.0] for name in NAMES.values()}
    assert model_host._figures(runs) == {LARGE: 4, MIDDLE: 4, SMALL: pytest.approx(0.25)}
    assert set(NAMES) == set(SIZES)
