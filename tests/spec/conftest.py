from __future__ import annotations

from pathlib import Path

import pytest

STEPS = """
import pathlib
import headrace as hr
from headrace.errors import ModelLoadError

class Upper(hr.ModelHandler):
    def __init__(self, suffix=""): self.suffix = suffix
    def load_model(self):
        pathlib.Path("LOADED").touch()
        return str.upper
    def run_inference(self, batch, model): return [model(r.get("text", "")) + self.suffix for r in batch]

class Needy(Upper):
    def __init__(self, path): self.path = path

class Kept(Upper):
    def __init__(self): self.path = "model.txt"
    def model_files(self): return [self.path]

class Broken(Upper):
    def __init__(self): raise RuntimeError("no licence")

class Missing(Upper):
    def check(self): raise ModelLoadError("m.bin is not there")

class NoHandler:
    pass

ready = Upper("!")
keyed = hr.KeyedModelHandler({"good": Upper("!"), "bad": Upper("?")}, key="text")

def clean(row): return {**row, "text": row["text"].strip()}
def long_enough(row): return len(row["text"]) > 1
def words(row): return [{"word": word} for word in row["text"].split()]
def double(batch): return [{**row, "twice": row["text"] * 2} for row in batch]
def number(row): return row["id"]
def length(row): return len(row["text"])
def by_id(table): return dict(zip(table["id"].to_pylist(), table["text"].to_pylist()))
def looked_up(row, texts): return {"id": row["id"], "found": texts[row["id"]]}
def known(row, texts): return texts[row["id"]]
def place(row): return [float(row["id"]), 1.0]
def prepared(dataset): return dataset.map(clean)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's module steps.py, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.py").write_text(STEPS)
    return tmp_path
