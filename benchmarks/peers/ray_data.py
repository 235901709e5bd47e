"""The bulk CSV job with Ray Data, as its guide to offline batch inference advises. SOURCE MODEL OUT"""

# mypy: ignore-errors

import pickle
import sys
from pathlib import Path

import numpy as np
import ray

FEATURES = ["age", "monthly_spend", "tenure_months", "tickets"]


class Scorer:
    """Loads the model once an actor."""

    def __init__(self, model_file: str) -> None:
        self.model = pickle.loads(Path(model_file).read_bytes())

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        matrix = np.column_stack([batch[name] for name in FEATURES]).astype(float)
        batch["score"] = self.model.predict_proba(matrix)[:, 1]
        return batch


def main() -> None:
    """Score every file."""
    source, model_file, out = sys.argv[1:4]
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    (
        ray.data.read_csv(source)
        .map_batches(
            Scorer,
            fn_constructor_args=(str(Path(model_file).resolve()),),
            # Of two cores one must be left to the readers: a pool of two actors starves them.
            compute=ray.data.ActorPoolStrategy(size=1),
            batch_size=32_768,
            batch_format="numpy",
        )
        .write_parquet(str(Path(out).resolve()))
    )


main()
