"""Input, models and outputs that cannot be used: one clear error each, and nothing half-written left."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import pickle
import re
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.cli.main import main
from headrace.errors import ModelLoadError, SinkError, SourceError
from tests.field.running import end_of, litter, rows_in, run, start, write_script

Printed = pytest.CaptureFixture[str]
ROWS = 1_000

HANDLERS = """
import headrace as hr

class Upper(hr.ModelHandler):
    def load_model(self): return str.upper
    def run_inference(self, batch, model): return [model(str(t)) for t in batch]

class Unloadable(Upper):
    def load_model(self): raise OSError("weights are gone")

class Lacking(Upper):
    def load_model(self): raise KeyError("layer.0")

class Exiting(Upper):
    def load_model(self): raise SystemExit(3)

class Checked(Upper):
    def check(self): raise RuntimeError("no card in this machine")
"""


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    Path("own.py").write_text(HANDLERS)
    lines = "".join(json.dumps({"id": i, "text": f"t{i}"}) + "\n" for i in range(ROWS)).encode()
    cells = ("id,text\n" + "".join(f"{i},t{i}\n" for i in range(ROWS))).encode()
    pq.write_table(
        pa.table({"id": range(ROWS), "text": [f"t{i}" for i in range(ROWS)]}), "good.parquet", row_group_size=100
    )
    columns = Path("good.parquet").read_bytes()
    damaged = columns[:200] + bytes(200) + columns[400:]
    for name, data in {
        "good.jsonl": lines,
        "good.csv": cells,
        "torn.jsonl.gz": gzip.compress(lines)[:-500],
        "torn.csv.gz": gzip.compress(cells)[:-500],
        "not.jsonl.gz": lines,
        "not.csv.gz": cells,
        "torn.parquet": columns[: len(columns) // 2],
        "not.parquet": lines,
        "damaged.parquet": damaged,
        "not.jsonl": columns,
        "not.csv": columns,
        "array.json": json.dumps([{"id": 1}, {"id": 2}], indent=1).encode(),
        "not.pkl": b"no pickle",
        "dict.pkl": pickle.dumps({"a": 1}),
        "not.onnx": b"no model",
    }.items():
        Path(name).write_bytes(data)
    for name in ("empty.jsonl", "empty.parquet", "empty"):
        Path(name).mkdir()
    Path("link.jsonl").symlink_to("nowhere.jsonl")


def infer(source: str, model: str = "python:own:Upper", inputs: str = "text", out: str = "out") -> int:
    return main(["infer", model, source, "--inputs", inputs, "-o", out, "--format", "json"])


def check_error(printed: Printed, *told: str) -> None:
    """One short error that tells what, where and what to do; nothing left."""
    out, error = printed.readouterr()
    assert [words for words in told if words not in error] == [], error
    assert error.startswith("Error: ")
    assert len(error.splitlines()) == 1
    assert len(error) < 400
    for word in ("Traceback", "mistake in Headrace", "bug"):
        assert word not in error
    assert "written" not in out
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("source", "code", "told"),
    [
        ("missing.jsonl", 2, ["missing.jsonl does not exist", "check the path"]),
        ("godo.jsonl", 2, ["godo.jsonl does not exist", "did you mean 'good.jsonl'?"]),
        ("none*.jsonl", 2, ["none*.jsonl matches no file", "check the pattern"]),
        ("empty.jsonl", 2, ["empty.jsonl holds no files"]),
        ("empty.parquet", 2, ["empty.parquet holds no files"]),
        ("empty", 2, ["cannot tell the format of empty", "--input-format"]),
        ("link.jsonl", 2, ["link.jsonl is a link to nowhere.jsonl", "mend the link"]),
        ("torn.jsonl.gz", 1, ["cannot read torn.jsonl.gz", "truncated", "fetch"]),
        ("torn.csv.gz", 1, ["cannot read torn.csv.gz", "truncated", "fetch"]),
        ("not.jsonl.gz", 1, ["cannot read not.jsonl.gz", "not gzip"]),
        ("not.csv.gz", 1, ["cannot read not.csv.gz", "not gzip"]),
        ("torn.parquet", 1, ["cannot read torn.parquet", "truncated", "fetch it again"]),
        ("not.parquet", 1, ["cannot read not.parquet", "no Parquet file"]),
        ("damaged.parquet", 1, ["cannot read damaged.parquet", "fetch it again"]),
        ("not.jsonl", 1, ["not.jsonl", "JSON Lines"]),
        ("not.csv", 1, ["cannot read not.csv", "it holds zero bytes"]),
        ("array.json", 1, ["array.json holds one JSON array", "jq"]),
    ],
)
def test_input_that_cannot_be_read(source: str, code: int, told: list[str], capsys: Printed) -> None:
    assert infer(source) == code
    check_error(capsys, *told)


@contextmanager
def no_superuser() -> Iterator[None]:
    """Let file modes count, as they do not for root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_read(folder: Path) -> None:
    folder.chmod(0o777)
    Path("good.jsonl").chmod(0)
    with no_superuser(), pytest.raises(SourceError) as caught:
        hr.read_json("good.jsonl").write_json("out").run()
    assert str(caught.value) == (
        "cannot read good.jsonl: permission denied; check the file's owner and mode, or your credentials"
    )
    assert not Path("out").exists()


@pytest.mark.parametrize("out", ["out", "kept/out"])
def test_an_output_that_may_not_be_written(out: str, folder: Path) -> None:
    Path("kept").mkdir()
    for closed in (Path("kept"), folder):
        closed.chmod(0o555)
    with no_superuser(), pytest.raises(SinkError) as caught:
        hr.read_json("good.jsonl").write_json(out).run()
    folder.chmod(0o755)
    assert str(caught.value) == (
        f"cannot write {out}: permission denied; give this user the right to write there, or choose another output"
    )
    assert list(Path("kept").iterdir()) == []


def test_an_unknown_column(capsys: Printed) -> None:
    for source in ("good.jsonl", "good.csv", "good.parquet"):
        assert infer(source, inputs="txt") == 2
        check_error(capsys, "'txt'", "did you mean 'text'?", "Existing columns: id, text")


@pytest.mark.parametrize(
    ("model", "code", "told"),
    [
        ("sklearn:not.pkl", 1, ["not.pkl is not a scikit-learn model", "it seems to be"]),
        ("sklearn:good.parquet", 1, ["good.parquet is not a scikit-learn model", "a Parquet file"]),
        ("sklearn:dict.pkl", 1, ["dict.pkl holds a dict", "predict"]),
        ("sklearn:nowhere.pkl", 2, ["there is no model file nowhere.pkl"]),
        ("sklearn:empty", 2, ["empty is a folder"]),
        ("onnx:not.onnx", 1, ["not.onnx is not an ONNX model", "it seems to be"]),
        ("onnx:dict.pkl", 1, ["dict.pkl is not an ONNX model", "it seems to be"]),
        pytest.param(
            "torchscript:not.onnx", 1, ["not.onnx is not a TorchScript file", "it seems to be"], marks=pytest.mark.heavy
        ),
        ("python:own:Unloadable", 1, ["Unloadable cannot load its model", "weights are gone"]),
        ("python:own:Lacking", 1, ["Lacking cannot load its model", "layer.0"]),
        ("python:own:Exiting", 1, ["SystemExit: 3"]),
        ("python:own:Checked", 2, ["Checked.check()", "no card in this machine"]),
        ("python:own:Uper", 2, ["own has no 'Uper'", "did you mean 'Upper'?"]),
        ("python:own:Zzz", 2, ["own has no 'Zzz'", "it has", "Upper"]),
    ],
)
def test_a_model_that_cannot_be_used(model: str, code: int, told: list[str], capsys: Printed) -> None:
    assert infer("good.csv", model=model, inputs="id") == code
    check_error(capsys, *told)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_model_that_does_not_load_in_python(isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    handler = importlib.import_module("own").Unloadable()
    job = hr.read_csv("good.csv").run_inference(handler, isolation=isolation).write_csv("out")
    with pytest.raises(ModelLoadError, match="weights are gone"):
        job.run()
    assert not Path("out").exists()


def test_an_output_folder_that_holds_something_else(capsys: Printed) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    for more in ([], ["--overwrite"]):
        assert main(["infer", "python:own:Upper", "good.jsonl", "--inputs", "text", "-o", "full", *more]) == 2
        error = capsys.readouterr().err
        assert "notes.txt" in error
        assert "choose an" in error
    assert [p.name for p in Path("full").iterdir()] == ["notes.txt"]


def test_an_output_folder_with_the_results_of_something_unknown(capsys: Printed) -> None:
    Path("full").mkdir()
    Path("full/part-00000.jsonl").write_text('{"old": 1}\n')
    assert infer("good.jsonl", out="full") == 2
    error = capsys.readouterr().err
    assert "part-00000.jsonl" in error
    assert "--overwrite" in error
    assert Path("full/part-00000.jsonl").read_text() == '{"old": 1}\n'


@pytest.mark.parametrize("out", ["good.csv", "good.csv/out"])
def test_a_file_in_place_of_the_output_folder(out: str, capsys: Printed) -> None:
    assert infer("good.jsonl", out=out) == 2
    check_error(capsys, "good.csv is a file, but the output is a folder", "choose another output")


def test_the_output_in_the_input_is_refused(capsys: Printed) -> None:
    Path("data").mkdir()
    Path("good.jsonl").rename("data/good.jsonl")
    assert main(["infer", "python:own:Upper", "data", "--inputs", "text", "-o", "data/out"]) == 2
    error = capsys.readouterr().err
    assert "data/out" in error
    assert not Path("data/out").exists()


FILLING = """
    import os, random, sys
    import headrace as hr

    def noise(row):
        return {"id": row["id"], "text": random.Random(row["id"]).randbytes(400).hex()}

    dataset = hr.range(4_000).map(noise, isolation="thread", version="1")
    getattr(dataset, "write_" + sys.argv[1])(sys.argv[2], rows_per_part=int(sys.argv[3])).run()
"""
FORMATS = ["json", "csv", "parquet"]


@pytest.mark.parametrize("format", FORMATS)
def test_files_may_not_grow_so_large(format: str) -> None:
    write_script(FILLING)
    process = subprocess_with_limit("script.py", format, "out", "4000", limit_bytes=1_000_000)
    ended = end_of(process)
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert re.search(r"SinkError: cannot write (\S*/)?out/", last), last
    assert "ulimit -f" in last
    assert not Path("out").exists() or rows_in() == []
    assert run("script.py", format, "out", "4000").code == 0
    assert [row["id"] for row in rows_in()] == list(range(4_000))
    assert litter() == set()


def subprocess_with_limit(*arguments: str, limit_bytes: int) -> subprocess.Popen[str]:
    """Start Python where no file may grow beyond a limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        return start(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    disk = folder / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk(format: str, small_disk: Path) -> None:
    write_script(FILLING)
    out = str(small_disk / "out")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(500_000))
    ended = run("script.py", format, out, "500")
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert f"cannot write {small_disk}" in last
    assert "the disk is full" in last
    assert "run the same command again" in last
    done = rows_in(out)
    assert [row["id"] for row in done] == list(range(len(done)))
    again = run("script.py", format, out, "500")
    assert (again.code, again.err.splitlines()[-1][:40]) == (1, last[:40]), "it says the same again"
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_disk)], check=True)
    assert run("script.py", format, out, "500").code == 0
    assert [row["id"] for row in rows_in(out)] == list(range(4_000))
    assert litter(out) == set()
