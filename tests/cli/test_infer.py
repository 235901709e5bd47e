from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.main import main
from tests.cli.written import rows

Printed = pytest.CaptureFixture[str]

FLAKY = """
import headrace as hr

class Flaky(hr.ModelHandler):
    def load_model(self):
        return ["busy"]

    def run_inference(self, batch, model):
        if model:
            raise ConnectionError(model.pop())
        return ["ok"] * len(batch)
"""


def infer(*more: str, model: str = "python:own:Upper", source: str = "in.jsonl") -> int:
    return main(["infer", model, source, "-o", "out", "--format", "json", *more])


def test_a_scikit_learn_model_over_csv(model: str, capsys: Printed) -> None:
    assert main(["infer", model, "in.csv", "--inputs", "age,spend", "--output-column", "worth", "-o", "out"]) == 0
    table = hr.read_parquet("out").to_arrow().to_pydict()
    assert [round(worth) for worth in table["worth"]] == [25, 960]
    assert table["zip"] == ["01234", "99999"]
    assert table["model_id"] == ["model.pkl"] * 2
    assert "read 2 = written 2 + failed 0 + filtered 0" in capsys.readouterr().out


def test_columns_to_the_inputs_that_the_model_names() -> None:
    assert infer("--inputs", "words=text,number=id", "--keep", "id", model="python:own:Named") == 0
    assert rows("out")[2] == {"id": 2, "prediction": "fair 2", "model_id": "Named"}


def test_a_model_that_fails_now_and_then_is_asked_again(capsys: Printed) -> None:
    Path("flaky.py").write_text(FLAKY)
    assert infer("--attempts", "2", model="python:flaky:Flaky") == 0
    assert [row["prediction"] for row in rows("out")] == ["ok"] * len(rows("out"))
    assert "1 retry" in capsys.readouterr().out


def test_a_cache_spares_the_model_in_later_runs_whatever_their_output(capsys: Printed) -> None:
    options = ("--inputs", "text", "--cache", "kept", "--durability", "row")
    assert infer(*options) == 0
    assert f"0 hits, {len(rows('out'))} misses" in capsys.readouterr().out
    assert main(["infer", "python:own:Upper", "in.jsonl", "-o", "again", "--format", "json", *options]) == 0
    assert f"{len(rows('out'))} hits, 0 misses" in capsys.readouterr().out
    assert rows("again") == rows("out")


def test_the_newest_model_is_taken(model: str, capsys: Printed) -> None:
    Path("models").mkdir()
    for number in (1, 2):
        Path(f"models/m{number}.pkl").write_bytes(Path("model.pkl").read_bytes())
        os.utime(f"models/m{number}.pkl", (1e9 - number, 1e9 - number))
    assert main(["infer", model, "in.csv", "--inputs", "age,spend", "-o", "out", "--watch", "models/*.pkl"]) == 0
    ids = hr.read_parquet("out").to_arrow()["model_id"].to_pylist()
    assert [id_.partition("@")[0] for id_ in ids] == ["m1.pkl"] * 2
    assert "m1.pkl@" in capsys.readouterr().out
    assert infer("--watch-interval-secs", "5") == 2
    assert "--watch PATTERN" in capsys.readouterr().err
    assert infer("--watch", "models/*.pkl") == 2
    assert "with_model(path)" in capsys.readouterr().err


def test_a_cache_that_lies_elsewhere_is_refused(capsys: Printed) -> None:
    assert infer("--cache", "s3://bucket/kept") == 2
    assert "is no folder of this machine" in capsys.readouterr().err


def test_the_size_and_the_compression_of_the_output() -> None:
    assert infer("--inputs", "text", "--rows-per-part", "1", "--compression", "gzip") == 0
    assert sorted(path.name for path in Path("out").glob("part-*"))[:2] == [
        "part-00000.jsonl.gz",
        "part-00001.jsonl.gz",
    ]
    assert infer("--inputs", "text", "--target-part-bytes", "1", "--overwrite") == 0
    parts = len(list(Path("out").glob("part-*")))
    assert parts == len(rows("out"))


def test_a_compression_that_does_not_exist(capsys: Printed) -> None:
    assert infer("--compression", "gzp") == 2
    assert "there is no compression 'gzp'; did you mean 'gzip'?" in capsys.readouterr().err


def test_a_model_with_a_time_limit_gets_a_process_of_its_own(capsys: Printed) -> None:
    assert infer("--timeout-secs", "60", "--explain") == 0
    assert "1 worker process" in capsys.readouterr().out


def test_one_column_goes_as_it_is() -> None:
    assert infer("--inputs", "text") == 0
    assert rows("out")[0] == {"id": 0, "text": "good", "prediction": "GOOD", "model_id": "Upper"}


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (["--keep", "id"], {"id": 0, "prediction": "GOOD", "model_id": "Upper"}),
        (["--drop", "text, model_id"], {"id": 0, "prediction": "GOOD"}),
        (["--output-column", "loud", "--keep", "id"], {"id": 0, "loud": "GOOD", "model_id": "Upper"}),
        (["--option", "suffix='!'", "--arg", "ending=x", "--keep", "id"], {"id": 0, "prediction": "GOOD!x", "model_id": "Upper"}),
        (["--dtype", "id=string", "--keep", "id"], {"id": "0", "prediction": "GOOD", "model_id": "Upper"}),
        (["--batch-size", "2", "--concurrency", "2", "--num-cpus", "1", "--keep", "id"], {"id": 0, "prediction": "GOOD", "model_id": "Upper"}),
    ],
)  # fmt: skip
def test_options(options: list[str], first: dict[str, Any]) -> None:
    assert infer("--inputs", "text", *options) == 0
    assert rows("out")[0] == first


def test_answers_of_several_values_to_columns_of_their_own() -> None:
    assert (
        infer("--inputs", "text", "--output-column", "label=kind,score=sure", "--keep", "id", model="python:own:Scores")
        == 0
    )
    assert rows("out")[0] == {"id": 0, "kind": "g", "sure": 4.0, "model_id": "Scores"}


def test_limit_takes_the_first_rows() -> None:
    assert infer("--inputs", "text", "--limit", "2") == 0
    assert [row["id"] for row in rows("out")] == [0, 1]


def test_failed_rows_are_put_aside_and_told_by_the_exit_code(capsys: Printed) -> None:
    assert infer("--inputs", "text", "--dead-letters", "failed", model="python:own:Picky") == 3
    assert [row["id"] for row in rows("out")] == [0, 2]
    assert [row["message"] for row in rows("failed")] == ["too dark"]
    assert "1 dead letter in" in capsys.readouterr().out
    # Once finished, the same command says the same.
    assert infer("--inputs", "text", "--dead-letters", "failed", model="python:own:Picky") == 3


def test_nulls_for_failed_answers_are_told_by_the_exit_code_too() -> None:
    assert infer("--inputs", "text", "--on-error", "null", model="python:own:Picky") == 3
    assert [row["prediction"] for row in rows("out")] == ["GOOD", None, "FAIR"]


def test_a_failed_row_fails_the_run_by_default(capsys: Printed) -> None:
    assert infer("--inputs", "text", model="python:own:Picky") == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: ")
    assert "too dark" in error
    assert "Traceback" not in error


def test_a_finished_job_has_nothing_to_do_and_overwrite_starts_afresh(capsys: Printed) -> None:
    assert infer("--inputs", "text") == 0
    assert infer("--inputs", "text") == 0
    assert "an earlier run of the same job had finished it" in capsys.readouterr().out
    assert infer("--inputs", "id,text", "--option", "suffix=x", model="python:own:Upper") == 2
    assert "overwrite" in capsys.readouterr().err
    assert infer("--inputs", "text", "--option", "suffix=x", "--overwrite") == 0
    assert rows("out")[0]["prediction"] == "GOODx"


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_what_models_print_stands_beside_the_json_report(isolation: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert infer("--inputs", "text", "--json", "--isolation", isolation, model="python:own:Chatty") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["balance"]["written"] == 3
    assert "a batch" in err
    assert "from native code" in err


def test_json_report_alone_on_stdout(capsys: Printed) -> None:
    assert infer("--inputs", "text", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["balance"]["written"] == 3
    assert report["balance"]["holds"] is True


def test_rows_of_like_length_go_together_and_stay_in_their_place() -> None:
    assert infer("--inputs", "text", "--length-column", "text", "--max-batch-weight", "100", "--quiet") == 0
    assert infer("--inputs", "text", "--quiet", "--overwrite") == 0


def test_quiet_says_nothing(capsys: Printed) -> None:
    assert infer("--inputs", "text", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_explain_runs_nothing(capsys: Printed) -> None:
    assert infer("--inputs", "text", "--explain") == 0
    assert "run_inference" in capsys.readouterr().out
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--inputs", "txt"], "did you mean 'text'?"),
        (["--inputs", "text", "--option", "sufix=x"], "did you mean 'suffix'?"),
        (["--inputs", "text", "--keep", "idd"], "did you mean 'id'?"),
        (["--inputs", "text,,id"], "has an empty column name"),
        (["--arg", "noequals"], "is no NAME=VALUE"),
        (["--output-column", "a=,b=c"], "is no KEY=NAME,KEY=NAME"),
        (["--dead-letters", "failed", "--on-error", "fail"], "would stay empty with --on-error fail"),
        (["--batch-size", "0"], "0 is not in the range x>=1"),
        (["--min-batch-size", "9", "--max-batch-size", "3"], "max_batch_size"),
        (["--max-batch-weight", "9"], "--max-batch-weight needs to know what rows weigh; pass --length-column or"),
        (["--length-column", "txt"], "needs column 'txt', which is not there; did you mean 'text'?"),
        (["--length-column", "text", "--weight-column", "text"], "pass one of them"),
        (["--input-format", "parquet", "--dtype", "id=string"], "--dtype is for csv and json"),
        (
            ["--max-failed-rows", "5"],
            "--max-failed-rows does nothing where the first failed row ends the run; add --on-error",
        ),
        (["--dead-letters-format", "json", "--on-error", "fail"], "--dead-letters-format does nothing"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_made(options: list[str], told: str, capsys: Printed) -> None:
    assert infer(*options) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("model", "source", "told"),
    [
        ("sklaern:model.pkl", "in.csv", "did you mean 'sklearn'?"),
        ("sklearn:nowhere.pkl", "in.csv", "nowhere.pkl"),
        ("model.pkl", "in.csv", "write kind:path, such as sklearn:model.pkl"),
        ("python:own:Uper", "in.jsonl", "did you mean 'Upper'?"),
        ("python:own:Upper", "nowhere.jsonl", "nowhere.jsonl"),
        ("python:own:Upper", "*.ndjson", "*.ndjson"),
        ("python:own:Upper", "own.py", "cannot tell the format"),
    ],
)
def test_models_and_inputs_that_are_not_there(model: str, source: str, told: str, capsys: Printed) -> None:
    assert infer("--inputs", "text", model=model, source=source) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not Path("out").exists()


def test_a_model_that_does_not_load_fails_the_run(capsys: Printed) -> None:
    assert infer("--inputs", "text", model="python:own:Unloadable") == 1
    assert "weights are gone" in capsys.readouterr().err


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(hr.PlanError):
        infer("--inputs", "text", "--debug", model="python:own:Uper")


SLOW = """
import pathlib, time
import headrace as hr

class Slow(hr.ModelHandler):
    def load_model(self): return None
    def run_inference(self, batch, model, inference_args=None):
        pathlib.Path("STARTED").touch()
        time.sleep(600)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_run_with_one_message(number: signal.Signals, code: int) -> None:
    Path("slow.py").write_text(SLOW)
    command = [sys.executable, "-m", "headrace", "infer", "python:slow:Slow", "in.jsonl", "-o", "out"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not Path("STARTED").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
    os.kill(process.pid, number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert "interrupted" in error.lower()
    assert "Traceback" not in error
    assert list(Path("out").glob("part-*")) == []
