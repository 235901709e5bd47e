"""Support tickets: a composite step, a text model, branches with an output each, and failed rows kept apart.

Some lines of the input are faulty on purpose. They end up as dead letters, with the reason and the line they came from,
and the run goes on. Run it with `python -m examples.tickets`.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.handlers.sklearn import SklearnModelHandler

COMPLAINTS = ["still broken", "slow and no answer", "wrong bill again", "want my money back", "app crashes all day"]
PRAISE = ["works great", "quick and friendly help", "thanks for the refund", "love the new plan", "all good now"]


def clean(tickets: hr.Dataset) -> hr.Dataset:
    """Make the text even and leave out tickets without one: a composite step, named "clean" in plans and reports."""
    return tickets.filter(has_text).map(even_text)


def has_text(row: dict[str, Any]) -> bool:
    """Say whether there is anything to read."""
    return bool(row["text"].strip())


def even_text(row: dict[str, Any]) -> dict[str, Any]:
    """Lower the text's case and turn the stars into a number, which fails for some rows."""
    if row["stars"] not in {"1", "2", "3", "4", "5"}:
        raise hr.RowError(f"stars must be 1 to 5, not {row['stars']!r}")
    return row | {"text": row["text"].strip().lower(), "stars": int(row["stars"])}


def write_tickets(path: Path, *, rows: int) -> Path:
    """Write made-up tickets as JSON Lines; about one in 50 has no text, one in 100 has bad stars."""
    dice = random.Random(0)
    lines = []
    for number in range(rows):
        unhappy = dice.random() < 0.4
        text = " ".join(dice.sample(COMPLAINTS if unhappy else PRAISE, 2)).capitalize()
        stars = "many" if dice.random() < 0.01 else str(dice.randint(1, 2) if unhappy else dice.randint(4, 5))
        lines.append({"id": number, "text": "  " if dice.random() < 0.02 else text, "stars": stars})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_mood_model(path: Path) -> Path:
    """Fit a model that tells complaints from praise by their words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    moods = ["complaint"] * len(COMPLAINTS) + ["praise"] * len(PRAISE)
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(COMPLAINTS + PRAISE, moods)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(model))
    return path


def sort_tickets(source: Path, model_file: Path, out: Path) -> Any:
    """Run the pipeline once for both outputs and return its result."""
    moods = (
        hr.read_json(str(source))
        .apply(clean)
        .run_inference(SklearnModelHandler(str(model_file)), inputs="text", output="mood")
    )
    branches = moods.split(
        {"complaint": lambda row: row["mood"] == "complaint", "praise": lambda row: row["mood"] == "praise"}
    )
    jobs = [branch.write_json(str(out / name)) for name, branch in branches.items()]
    return hr.run(*jobs, on_error="dead_letter")


def main() -> None:
    """Make the input, sort it, show what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000, help="tickets (2000)")
    parser.add_argument("--folder", type=Path, default=Path("tickets-demo"), help="for input, model and outputs")
    options = parser.parse_args()
    source = write_tickets(options.folder / "tickets.jsonl", rows=options.rows)
    model_file = write_mood_model(options.folder / "mood.pkl")
    result = sort_tickets(source, model_file, options.folder / "sorted")
    print(hr.read_json(str(options.folder / "sorted" / "complaint")).take(2))
    print(result.report())


if __name__ == "__main__":
    main()
