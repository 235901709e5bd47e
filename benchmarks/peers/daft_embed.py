"""Sentence embeddings with Daft: a batch method of a class, in batches of 32, on its native engine. SOURCE MODEL OUT

Prints JSON: seconds from when the model is loaded.
"""

# mypy: ignore-errors

import json
import sys
import time
from pathlib import Path

import daft
import numpy as np

BATCH, DIMENSIONS = 32, 384


@daft.cls
class Embedder:
    """Loads the model once an instance."""

    def __init__(self, path: str, note: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(path)
        Path(note).write_text(repr(time.time()))

    @daft.method.batch(return_dtype=daft.DataType.embedding(daft.DataType.float32(), DIMENSIONS), batch_size=BATCH)
    def embed(self, texts: daft.Series) -> np.ndarray:
        return self.model.encode(texts.to_pylist(), batch_size=BATCH)


def main() -> None:
    """Embed every text."""
    source, path, out = sys.argv[1:4]
    note = f"{out}.loaded"
    embedder = Embedder(path, note)
    frame = daft.read_parquet(source)
    frame = frame.select("id", embedder.embed(frame["text"]).alias("embedding"))
    frame.write_parquet(out)
    print(json.dumps({"secs": time.time() - float(Path(note).read_text())}))


main()
