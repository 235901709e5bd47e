"""Which customers will leave? A scikit-learn model over CSV files.

`python -m examples.customers` makes 20,000 customers; `--rows 2000000` makes the 190 MB that the benchmarks use.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import headrace as hr
from benchmarks.generators import FEATURES, write_churn_model, write_customers
from headrace.handlers.sklearn import SklearnModelHandler

FILES = 16


def score(source: Path, model_file: Path, out: Path) -> Any:
    """Score every customer and return the run's result."""
    model = SklearnModelHandler(str(model_file), method="predict_proba")
    return (
        hr.read_csv(f"{source}/*.csv")
        .run_inference(model, inputs=list(FEATURES), output="probabilities")
        .write_parquet(str(out))
        .run()
    )


def main() -> None:
    """Make the input where there is none, score it, show the first rows and the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="customers, a multiple of 16 (20000)")
    parser.add_argument("--folder", type=Path, default=Path("customers-demo"), help="for input, model and output")
    options = parser.parse_args()
    source = write_customers(options.folder / f"input-{options.rows}", rows=options.rows, files=FILES)
    model_file = write_churn_model(options.folder / "churn.pkl")

    out = options.folder / f"scored-{options.rows}"
    result = score(source, model_file, out)
    for row in hr.read_parquet(str(out)).select("customer_id", "tickets", "tenure_months", "probabilities").take(3):
        print(row)
    print(result.report())


if __name__ == "__main__":
    main()
