"""Sentence embeddings with Beam's DirectRunner, RunInference and a handler of one's own, as its guide to such handlers
shows it, in batches of 32. SOURCE MODEL OUT

Prints JSON: seconds from when the model is loaded.
"""

# mypy: ignore-errors

import json
import sys
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, PredictionResult, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

BATCH = 32
SCHEMA = pa.schema({"id": pa.int64(), "embedding": pa.list_(pa.float32())})


class Embedder(ModelHandler):
    """Runs a SentenceTransformer."""

    def __init__(self, path: str, note: str) -> None:
        super().__init__(min_batch_size=BATCH, max_batch_size=BATCH)
        self._path, self._note = path, note

    def load_model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(self._path)
        Path(self._note).write_text(repr(time.time()))
        return model

    def run_inference(self, batch: list[str], model: Any, inference_args: Any = None) -> list[PredictionResult]:
        vectors = model.encode(list(batch), batch_size=BATCH)
        return [PredictionResult(text, vector) for text, vector in zip(batch, vectors, strict=True)]


def main() -> None:
    """Embed every text."""
    source, path, out = sys.argv[1:4]
    note = f"{out}.loaded"
    with beam.Pipeline(options=PipelineOptions(["--runner=DirectRunner"])) as pipeline:
        (
            pipeline
            | beam.io.ReadFromParquet(f"{source}/*.parquet")
            | beam.Map(lambda row: (row["id"], row["text"]))
            | RunInference(KeyedModelHandler(Embedder(path, note)))
            | beam.Map(lambda keyed: {"id": keyed[0], "embedding": keyed[1].inference.tolist()})
            | beam.io.WriteToParquet(f"{out}/part", SCHEMA, file_name_suffix=".parquet")
        )
    print(json.dumps({"secs": time.time() - float(Path(note).read_text())}))


main()
