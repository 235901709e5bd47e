from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

OWN = """
import headrace as hr

class Upper(hr.ModelHandler):
    def __init__(self, suffix=""): self.suffix = suffix
    def load_model(self): return str.upper
    def run_inference(self, batch, model, inference_args=None):
        ending = self.suffix + (inference_args or {}).get("ending", "")
        return [model(text) + ending for text in batch]

class Named(Upper):
    def run_inference(self, batch, model):
        return [f"{word} {number}" for word, number in zip(batch["words"], batch["number"])]

class Picky(Upper):
    def run_inference(self, batch, model, inference_args=None):
        return [hr.RowError("too dark") if "bad" in text else model(text) for text in batch]

class Unloadable(Upper):
    def load_model(self): raise OSError("weights are gone")

class Chatty(Upper):
    def run_inference(self, batch, model):
        import os
        print("a batch")
        os.write(1, b"from native code\\n")
        return [model(text) for text in batch]

class Scores(Upper):
    def run_inference(self, batch, model, inference_args=None):
        return [{"label": text[:1], "score": float(len(text))} for text in batch]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with handlers, rows and a scikit-learn model."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    texts = ["good", "bad", "fair"]
    Path("in.jsonl").write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
    Path("in.csv").write_text("zip,age,spend\n01234,20,5\n99999,60,900\n")
    return tmp_path


@pytest.fixture
def model(folder: Path) -> str:
    """A model of age and spend, as the command line names it."""
    from sklearn.linear_model import LinearRegression

    fitted = LinearRegression().fit([[20, 5], [60, 900], [1, 1]], [25, 960, 2])
    Path("model.pkl").write_bytes(pickle.dumps(fitted))
    return "sklearn:model.pkl"
