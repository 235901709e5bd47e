import json

import pytest

from benchmarks import __main__ as program
from benchmarks.bars import Bar
from benchmarks.benchmark import MODULES, Benchmark, Measurement, Settings, load


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(program, "WORK", tmp_path / "work")


def fake(value):
    def measure(settings):
        return Measurement(runs={"a, s": [value]}, figures={"slower": value})

    bar = Bar(figure="slower", unit="x", relation="<=", bound=1.0)
    return Benchmark(name="fake", about="a fake", bars=(bar,), measure=measure)


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (1.1, 4)])
def test_the_last_line_is_the_result_and_the_exit_code_says_whether_bars_hold(value, code, tmp_path, capsys):
    assert program.run(fake(value), Settings()) == code
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["figures"]["slower"]["value"] == value
    assert json.loads((tmp_path / "results" / "fake.json").read_text()) == printed


def test_old_outputs_are_gone_before_a_benchmark_measures(tmp_path):
    stale = tmp_path / "work" / "stale"
    stale.mkdir(parents=True)
    program.run(fake(1.0), Settings())
    assert not stale.exists()


def test_list_names_every_benchmark_with_its_bars(capsys):
    assert program.main(["--list"]) == 0
    listed = capsys.readouterr().out
    for name in MODULES:
        assert f"{name}: {load(name).about}" in listed
        for bar in load(name).bars:
            assert f"{bar.figure} {bar}" in listed


def test_no_name_is_bad_usage(capsys):
    assert program.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_an_unknown_name_is_bad_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        program.main(["bulk-cvs"])
    assert stop.value.code == 2


def test_every_benchmark_goes_by_the_name_it_is_listed_under():
    assert {name: load(name).name for name in MODULES} == {name: name for name in MODULES}
