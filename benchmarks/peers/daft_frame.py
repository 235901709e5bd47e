"""The bulk CSV job with Daft: a batch method of a class, on its native engine. SOURCE MODEL OUT"""

# mypy: ignore-errors

import pickle
import sys
from pathlib import Path

import daft
import numpy as np

FEATURES = ["age", "monthly_spend", "tenure_months", "tickets"]


@daft.cls
class Scorer:
    """Loads the model once an instance."""

    def __init__(self, model_file: str) -> None:
        self.model = pickle.loads(Path(model_file).read_bytes())

    @daft.method.batch(return_dtype=daft.DataType.float64())
    def score(self, a: daft.Series, b: daft.Series, c: daft.Series, d: daft.Series) -> np.ndarray:
        matrix = np.column_stack([s.to_arrow().to_numpy() for s in (a, b, c, d)]).astype(float)
        return self.model.predict_proba(matrix)[:, 1]


def main() -> None:
    """Score every file."""
    source, model_file, out = sys.argv[1:4]
    scorer = Scorer(model_file)
    frame = daft.read_csv(f"{source}/*.csv")
    frame = frame.with_column("score", scorer.score(*(frame[name] for name in FEATURES)))
    frame.write_parquet(out)


main()
