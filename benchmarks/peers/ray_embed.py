"""Sentence embeddings with Ray Data, as its guides to batch inference advise, in batches of 32. SOURCE MODEL OUT

Prints JSON: seconds from when the model is loaded.
"""

# mypy: ignore-errors

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import ray

BATCH = 32


class Embedder:
    """Loads the model once an actor."""

    def __init__(self, path: str, note: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(path)
        Path(note).write_text(repr(time.time()))

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"id": batch["id"], "embedding": self.model.encode(batch["text"].tolist(), batch_size=BATCH)}


def main() -> None:
    """Embed every text."""
    source, path, out = (str(Path(argument).resolve()) for argument in sys.argv[1:4])
    note = f"{out}.loaded"
    # An actor gets as many threads as it asks for cores; here all programs have all of them.
    threads = {"OMP_NUM_THREADS": str(os.cpu_count())}
    ray.init(address="local", include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": threads})
    (
        ray.data.read_parquet(source)
        .map_batches(
            Embedder,
            fn_constructor_args=(path, note),
            # Of two cores one must be left to the readers: a pool of two actors starves them.
            compute=ray.data.ActorPoolStrategy(size=1),
            batch_size=BATCH,
            batch_format="numpy",
        )
        .write_parquet(out)
    )
    print(json.dumps({"secs": time.time() - float(Path(note).read_text())}))


main()
