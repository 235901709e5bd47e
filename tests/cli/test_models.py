from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from sklearn.dummy import DummyClassifier

import headrace as hr
from headrace.cli.main import main
from headrace.cli.models import models_by_name
from headrace.engine import nvml
from headrace.model.inventory import Gpu, Inventory
from tests.cli.written import rows

Printed = pytest.CaptureFixture[str]
BY_KEY = "sklearn:models/{key}/model.pkl"
BY_NAME = "acme=sklearn:models/acme/model.pkl,globex=sklearn:models/globex/model.pkl"


@pytest.fixture(autouse=True)
def models(folder: Path) -> None:
    """A model for each customer, which answers with its name."""
    for name in ("acme", "globex"):
        Path("models", name).mkdir(parents=True)
        fitted = DummyClassifier(strategy="constant", constant=name).fit([[0], [0]], [name, "other"])
        Path("models", name, "model.pkl").write_bytes(pickle.dumps(fitted))
    lines = [{"id": i, "customer": ("acme", "globex", "../acme")[i % 3], "age": i} for i in range(6)]
    Path("orders.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def infer(model: str, *more: str) -> int:
    return main(["infer", model, "orders.jsonl", "--inputs", "age", "-o", "out", "--format", "json", *more])


@pytest.mark.parametrize("model", [BY_KEY, BY_NAME])
def test_each_row_is_answered_by_the_model_that_its_column_names(model: str, capsys: Printed) -> None:
    assert infer(model, "--key", "customer", "--keep", "id", "--on-error", "dead_letter") == 3
    assert rows("out") == [
        {"id": i, "prediction": name, "model_id": name} for i, name in enumerate(["acme", "globex", ""] * 2) if name
    ]
    assert "failed 2" in capsys.readouterr().out
    assert main(["retry", "out"]) == 3


def test_models_take_turns_within_a_budget(capsys: Printed) -> None:
    options = ("--key", "customer", "--memory-budget", "1GB", "--on-error", "dead_letter")
    assert infer(BY_KEY, *options) == 3
    assert len(rows("out")) == 4
    assert "2 loads, 0 swaps" in capsys.readouterr().out


def test_every_model_answers_every_row(capsys: Printed) -> None:
    assert infer(BY_NAME, "--mode", "all", "--keep", "id") == 0
    assert rows("out")[0] == {"id": 0, "prediction": {"acme": "acme", "globex": "globex"}}
    assert "agree" in capsys.readouterr().out
    assert infer(BY_NAME, "--mode", "all", "--labelled", "--keep", "id", "--overwrite") == 0
    assert rows("out")[0] == {"id": 0, "prediction": ["acme:acme", "globex:globex"]}
    assert infer(BY_NAME, "--mode", "all", "--output-column", "acme=a,globex=g", "--keep", "id", "--overwrite") == 0
    assert rows("out")[0] == {"id": 0, "a": "acme", "g": "globex"}


def test_a_function_may_name_the_model() -> None:
    Path("own.py").write_text("def customer(row): return row['customer'].rpartition('/')[2]\n")
    assert infer(BY_KEY, "--key", "own:customer", "--keep", "id") == 0
    assert [row["prediction"] for row in rows("out")] == ["acme", "globex", "acme"] * 2


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("sklearn:models/acme/model.pkl", ["--key", "customer"], "make it a pattern such as"),
        ("python:own:Upper", ["--key", "customer"], "make it a pattern such as"),
        (BY_KEY, [], "say with --key which column names the model of each row"),
        (BY_NAME, [], "with --key, or --mode all"),
        (BY_KEY, ["--key", "customer", "--mode", "all"], "--mode is for several models"),
        (BY_KEY, ["--key", "customer", "--labelled"], "--labelled is for several models"),
        (BY_NAME, ["--key", "customer", "--mode", "all"], "leave --key out, or use --mode route"),
        (BY_NAME, ["--key", "customer", "--labelled"], "--labelled is for --mode all"),
        (BY_NAME, ["--mode", "all", "--memory-budget", "1GB"], "leave --memory-budget out, or use --key"),
        (f"{BY_NAME},acme=onnx:a.onnx", ["--key", "customer"], "MODEL names 'acme' twice"),
        ("a=sklaern:a.pkl,b=onnx:b.onnx", ["--key", "customer"], "did you mean 'sklearn'?"),
        ("sklearn:models/acme/model.pkl", ["--memory-budget", "1GB"], "--memory-budget is for models that take turns"),
        (BY_KEY, ["--key", "customer", "--memory-budget", "much"], "memory-budget"),
        (BY_KEY, ["--key", "custmer"], "did you mean 'customer'?"),
        (BY_KEY, ["--key", ""], "pass the column that names each row's model"),
        (BY_KEY, ["--key", "own:nobody"], "module 'own' has no 'nobody'"),
        (BY_KEY, ["--key", "customer", "--large-model"], "--large-model is for one model"),
        ("sklearn:s3://bucket/{key}.pkl", ["--key", "customer"], "pass --model-version, and another one"),
    ],
)
def test_what_does_not_go_together(model: str, options: list[str], message: str, capsys: Printed) -> None:
    assert infer(model, *options) == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("a=x:1,b=y:2", {"a": "x:1", "b": "y:2"}),
        ("a=x:1,2,b=y:m/year=2024/b=c.pkl", {"a": "x:1,2", "b": "y:m/year=2024/b=c.pkl"}),
        ("one=python:own:Upper", {"one": "python:own:Upper"}),
        (" a = x:s3://b/c , b=y:2", {"a": "x:s3://b/c", "b": "y:2"}),
        ("sklearn:a=b.pkl,c=d.pkl", {}),
        ("models/year=2024:1.pkl", {}),
        ("=x:1", {}),
        ("", {}),
    ],
)
def test_names_of_models(model: str, expected: dict[str, str]) -> None:
    assert models_by_name(model) == expected


def test_the_plan_is_shown_without_a_model_being_loaded(capsys: Printed) -> None:
    assert infer(BY_KEY, "--key", "customer", "--memory-budget", "auto", "--explain") == 0
    assert "half of the run's memory limit" in capsys.readouterr().out
    assert not hr.read_json("orders.jsonl").take(0)


def test_what_a_model_needs_of_the_machine_is_asked_for_and_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA L4") for n in range(2))
    monkeypatch.setattr(nvml, "inventory", lambda: Inventory(gpus=gpus))
    model = "sklearn:models/acme/model.pkl"
    assert infer(model, "--num-gpus", "1", "--accelerator", "nvidia-l4", "--explain") == 0
    assert "placed on: GPU 0 (NVIDIA L4), GPU 1 (NVIDIA L4)" in capsys.readouterr().out
    monkeypatch.setattr(nvml, "inventory", Inventory)
    assert infer(model, "--num-gpus", "0.5") == 2
    assert "asks for --num-gpus 0.5, and no NVIDIA GPU is found" in capsys.readouterr().err
    assert infer(model, "--min-ram", "900TB") == 2
    assert "--min-ram asks for 900.0 TB" in capsys.readouterr().err
