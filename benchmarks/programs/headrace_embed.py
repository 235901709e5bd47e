"""Sentence embeddings with Headrace. SOURCE MODEL OUT

Prints JSON: seconds of the whole run with a model that is loaded already, how much was padding, and peak memory.
"""

# mypy: ignore-errors

import functools
import json
import resource
import sys
import time

from sentence_transformers import SentenceTransformer

import headrace as hr
from headrace.handlers.sentence_transformers import SentenceTransformerModelHandler


class Loaded(SentenceTransformerModelHandler):
    """The handler with a model that is there already, so that loading it is not measured."""

    def load_model(self) -> SentenceTransformer:
        return loaded(self.model)


@functools.cache
def loaded(path: str) -> SentenceTransformer:
    """Return the model, warm."""
    model = SentenceTransformer(path)
    model.encode(["warm", "now"])
    return model


def main() -> None:
    """Embed every text."""
    source, path, out = sys.argv[1:4]
    loaded(path)
    embedded = hr.read_parquet(source).run_inference(
        Loaded(path), inputs="text", output="embedding", model_id_column=None, version="1"
    )
    job = embedded.select("id", "embedding").write_parquet(out)
    began = time.perf_counter()
    result = job.run()
    secs = time.perf_counter() - began
    (model,) = [stage.model for stage in result.statistics.stages if stage.model is not None]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    print(json.dumps({"secs": secs, "padded": 1 / (1 - model.padding), "peak_mib": peak}))


main()
