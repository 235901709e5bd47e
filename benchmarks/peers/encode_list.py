"""Sentence embeddings by `encode` of sentence-transformers, of all texts at once or ONE BY ONE. SOURCE MODEL OUT [STEP]

With STEP only every STEP-th text is embedded, alone. Prints JSON: seconds with a model that is loaded already, reading
and writing included.
"""

# mypy: ignore-errors

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Embed every text, or some."""
    source, path, out = sys.argv[1:4]
    step = int(sys.argv[4]) if len(sys.argv) > 4 else None
    model = SentenceTransformer(path)
    model.encode(["warm", "now"])
    began = time.perf_counter()
    table = pyarrow.parquet.read_table(source)
    if step is None:
        vectors = model.encode(table["text"].to_pylist())
    else:
        table = table.take(list(range(0, table.num_rows, step)))
        vectors = np.stack([model.encode(text) for text in table["text"].to_pylist()])
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    Path(out).mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table.select(["id"]).append_column("embedding", column), f"{out}/part-0.parquet")
    print(json.dumps({"secs": time.perf_counter() - began}))


main()
