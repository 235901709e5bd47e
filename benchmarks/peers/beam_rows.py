"""The bulk CSV job with Beam's DirectRunner and RunInference, one element a row. SOURCE MODEL OUT"""

# mypy: ignore-errors

import csv
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.ml.inference.sklearn_inference import SklearnModelHandlerNumpy
from apache_beam.options.pipeline_options import PipelineOptions

NAMES = ["customer_id", "age", "monthly_spend", "tenure_months", "tickets", "country", "note"]
KINDS = [int, int, float, int, int, str, str]
SCHEMA = pa.schema(
    [(n, {int: pa.int64(), float: pa.float64(), str: pa.string()}[k]) for n, k in zip(NAMES, KINDS, strict=True)]
    + [("score", pa.float64())]
)


def parse(line: str) -> tuple[tuple[Any, ...], np.ndarray]:
    """Turn a line into (row, features), the row being the key."""
    row = tuple(kind(value) for kind, value in zip(KINDS, next(csv.reader([line])), strict=True))
    return row, np.array(row[1:5], dtype=float)


def probabilities(model: Any, batch: list[np.ndarray], inference_args: Any = None) -> np.ndarray:
    """Answer a batch with the probability of the second class."""
    return model.predict_proba(np.stack(batch))[:, 1]


def joined(keyed: tuple[tuple[Any, ...], Any]) -> dict[str, Any]:
    """Turn (row, prediction) into the dict that is written."""
    row, prediction = keyed
    return dict(zip(NAMES, row, strict=True)) | {"score": float(prediction.inference)}


def main() -> None:
    """Score every file."""
    source, model_file, out = sys.argv[1:4]
    handler = SklearnModelHandlerNumpy(str(Path(model_file).resolve()), inference_fn=probabilities)
    with beam.Pipeline(options=PipelineOptions(["--runner=DirectRunner"])) as pipeline:
        (
            pipeline
            | beam.io.ReadFromText(f"{source}/*.csv", skip_header_lines=1)
            | beam.Map(parse)
            | RunInference(KeyedModelHandler(handler))
            | beam.Map(joined)
            | beam.io.WriteToParquet(f"{out}/part", SCHEMA, file_name_suffix=".parquet")
        )


main()
