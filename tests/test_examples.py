"""The examples run as their readers would run them, and do what they say."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.dataset
import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments, folder):
    """Run a command in an empty folder, with the checkout on the path."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows_of(folder, kind="parquet"):
    files = [str(path) for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    return pyarrow.dataset.dataset(files, format=kind).to_table()


def test_customers_are_scored(tmp_path):
    shown = run("-m", "examples.customers", "--rows", "1600", folder=tmp_path)
    scored = rows_of(tmp_path / "customers-demo" / "scored-1600")
    assert sorted(scored["customer_id"].to_pylist()) == list(range(1_600))
    probabilities = np.array(scored["probabilities"].to_pylist())
    assert probabilities.shape == (1_600, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert "1,600 rows" in shown


def test_tickets_are_sorted_and_faulty_ones_kept_apart(tmp_path):
    shown = run("-m", "examples.tickets", folder=tmp_path)
    complaints = rows_of(tmp_path / "tickets-demo" / "sorted" / "complaint", "json")
    praise = rows_of(tmp_path / "tickets-demo" / "sorted" / "praise", "json")
    assert set(complaints["stars"].to_pylist()) == {1, 2}
    assert set(praise["stars"].to_pylist()) == {4, 5}
    lines = (tmp_path / "tickets-demo" / "tickets.jsonl").read_text().splitlines()
    blank, bad = sum('"text": "  "' in x for x in lines), sum('"many"' in x and '"  "' not in x for x in lines)
    assert min(blank, bad) > 0
    assert len(complaints) + len(praise) == 2_000 - blank - bad
    assert f"{bad} dead letters" in shown


def test_the_same_as_yaml(tmp_path):
    run("-m", "examples.tickets", folder=tmp_path)
    assert "clean" in run("-m", "headrace", "explain", str(ROOT / "examples" / "pipeline.yaml"), folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", str(ROOT / "examples" / "pipeline.yaml")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr  # some tickets are faulty
    moods = rows_of(tmp_path / "tickets-demo" / "moods")
    assert moods.column_names == ["id", "mood", "text"]
    assert set(moods["mood"].to_pylist()) == {"complaint", "praise"}


@pytest.mark.heavy
def test_digits_are_read(tmp_path):
    shown = run("-m", "examples.images", folder=tmp_path)
    answers = rows_of(tmp_path / "digits-demo" / "out")
    assert len(answers) == 899
    right = np.mean(np.array(answers["digit"]) == np.array(answers["truth"]))
    assert right > 0.9
    assert f"{round(right * 899)} of 899 digits read rightly" in shown


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("magika") is None, reason="the demo's model comes with the package magika")
def test_the_demo_names_files_as_magika_does(tmp_path):
    from magika import Magika, PredictionMode

    shown = run("-m", "examples.demo", "--files", "150", folder=tmp_path)
    assert "probability" in shown
    named = rows_of(tmp_path / "demo-out").to_pylist()
    assert len(named) > 100
    judge = Magika(prediction_mode=PredictionMode.BEST_GUESS)
    for row in named:
        content = Path(row["path"]).read_bytes()
        if len(content.strip()) < 8:  # magika itself asks no model about so little
            continue
        expected = judge.identify_bytes(content).prediction
        # Sums over a batch round otherwise than over one file, which shows where the model is unsure.
        assert row["probability"] == pytest.approx(expected.score, abs=0.01)
        assert row["kind"] == expected.dl.label or expected.score < 0.4


def test_the_demo_cuts_both_ends_off_a_file():
    from examples.demo import PADDING, ends_of

    short = ends_of(b"\n ab \n")
    assert short[:5].tolist() == [97, 98, 32, 10, PADDING]
    assert short[-5:].tolist() == [PADDING, 10, 32, 97, 98]
    long = ends_of(bytes(range(1, 256)) * 40)
    assert PADDING not in long
    assert (long[0], long[-1]) == (1, 255)
