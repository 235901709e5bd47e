import json

import pytest

from benchmarks.bars import Bar
from benchmarks.benchmark import Benchmark, Measurement, Settings
from benchmarks.outcome import exit_code, outcome, save

BARS = (
    Bar(figure="slower", unit="x", relation="<=", bound=1.05),
    Bar(figure="faster than peer", unit="x", relation=">=", bound=6, needs_peers=True),
)
MACHINE = {"cpu": "abacus", "cores": 2, "memory_gib": 24.0, "os": "Linux 6", "python": "3.11.7"}


def benchmark():
    return Benchmark(name="fake", about="a fake", bars=BARS, measure=lambda settings: measurement())


def measurement(slower=1.0, faster=7.0):
    return Measurement(
        runs={"a, s": [3.0, 1.0, 2.0]},
        figures={"slower": slower, "faster than peer": faster},
        versions={"python": "3.11"},
    )


REAL = Settings()


def result(settings=REAL, **figures):
    return outcome(benchmark(), measurement(**figures), settings=settings, machine=MACHINE)


def test_the_object_has_the_agreed_shape():
    found = json.loads(json.dumps(result()))
    assert found["benchmark"] == "fake"
    assert found["machine"] == MACHINE
    assert found["versions"] == {"python": "3.11"}
    assert found["runs"] == {"a, s": {"values": [3.0, 1.0, 2.0], "median": 2.0, "spread": 1.0}}
    assert found["figures"]["slower"] == {"value": 1.0, "unit": "x", "bar": "<= 1.05", "holds": True}


@pytest.mark.parametrize(
    ("figures", "code"), [({}, 0), ({"slower": 1.06}, 4), ({"faster": 5.9}, 4), ({"slower": 2, "faster": 1}, 4)]
)
def test_a_missed_bar_exits_with_4(figures, code):
    assert exit_code(result(**figures)) == code


def test_a_bar_is_judged_by_the_figure_itself_not_by_what_is_printed():
    found = result(slower=1.05001)["figures"]["slower"]
    assert found["value"] == 1.05
    assert not found["holds"]


def test_without_peers_their_figures_are_left_out():
    assert list(result(Settings(peers=False))["figures"]) == ["slower"]


def test_a_bar_without_a_figure_is_an_error():
    with pytest.raises(KeyError, match="slower"):
        outcome(benchmark(), Measurement(runs={}, figures={}), settings=Settings(), machine=MACHINE)


def test_a_quick_look_never_replaces_a_real_result(tmp_path):
    real = save(result(), tmp_path)
    quick = save(result(Settings(quick=True)), tmp_path)
    assert (real.name, quick.name) == ("fake.json", "fake-quick.json")
    assert json.loads(real.read_text())["quick"] is False
