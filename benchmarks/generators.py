"""Input for benchmarks and examples, made up but lifelike, and the same every time."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

if TYPE_CHECKING:
    from pathlib import Path

FEATURES = ("age", "monthly_spend", "tenure_months", "tickets")
TEXT = """
the customer called about billing and asked for refund because service was slow yesterday agent helped quickly thanks
great bad ok plan upgrade cancel
"""
WORDS = pa.array(TEXT.split())
COUNTRIES = np.array(["KR", "US", "DE", "JP"])


def customers(rows: int, *, first_id: int = 0, seed: int = 0) -> pa.Table:
    """Make a table of customers.

    >>> customers(2).column_names
    ['customer_id', 'age', 'monthly_spend', 'tenure_months', 'tickets', 'country', 'note']
    """
    rng = np.random.default_rng([seed, first_id])
    return pa.table(
        {
            "customer_id": np.arange(first_id, first_id + rows),
            "age": rng.integers(18, 90, rows),
            "monthly_spend": np.round(rng.gamma(2, 30, rows), 2),
            "tenure_months": rng.integers(0, 120, rows),
            "tickets": rng.poisson(1.2, rows),
            "country": COUNTRIES[rng.integers(0, len(COUNTRIES), rows)],
            "note": _notes(rng, rows),
        }
    )


def write_customers(folder: Path, *, rows: int, files: int) -> Path:
    """Write `rows` customers into `files` CSV files under `folder`, once, and return the folder.

    About 95 bytes a row. `rows` must be a multiple of `files`.
    """
    if rows % files:
        raise ValueError(f"{rows} rows do not go evenly into {files} files")
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    each = rows // files
    for number in range(files):
        pyarrow.csv.write_csv(customers(each, first_id=number * each), unfinished / f"part-{number:03d}.csv")
    unfinished.rename(folder)
    return folder


def write_churn_model(path: Path) -> Path:
    """Fit a logistic regression that guesses which customers leave, pickle it to `path`, and return the path."""
    from sklearn.linear_model import LogisticRegression

    table = customers(5_000, seed=1)
    matrix = feature_matrix(table)
    # Whoever asks for help often and came lately tends to leave; the noise keeps the answers away from 0 and 1.
    inclination = 0.9 * matrix[:, 3] - 0.03 * matrix[:, 2] + np.random.default_rng(1).normal(size=len(matrix))
    model = LogisticRegression(max_iter=2_000).fit(matrix, inclination > np.median(inclination))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(model))
    return path


def feature_matrix(table: pa.Table) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the columns that the churn model looks at as a matrix of (rows, 4)."""
    return np.column_stack([table[name].to_numpy() for name in FEATURES]).astype(np.float64)


def _notes(rng: np.random.Generator, rows: int) -> pa.Array:
    lengths = rng.integers(3, 20, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    words = WORDS.take(pa.array(rng.integers(0, len(WORDS), int(offsets[-1]))))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), " ")
