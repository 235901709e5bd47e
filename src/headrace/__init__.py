"""Headrace runs machine-learning models over data, in bulk, on one machine and beyond.

>>> import headrace as hr
>>> hr.from_items([{"text": "hello"}]).map(lambda r: {"n": len(r["text"])}).take(1)
[{'n': 5}]
"""

from headrace.dataset import Dataset, Job, SideInput, run
from headrace.errors import HeadraceError, PlanError, RowError, RunError, RunInterrupted
from headrace.model.cache import PredictionCache
from headrace.model.collation import PadSequences
from headrace.model.handler import ModelHandler, PredictionResult
from headrace.model.keyed import KeyedModelHandler, MemoryBudget
from headrace.model.pictures import FitPictures
from headrace.model.shared import shared
from headrace.model.updates import ModelMetadata, WatchFilePattern
from headrace.plan.retry import Retry
from headrace.read import (
    from_arrow,
    from_items,
    from_pandas,
    range,
    read,
    read_binary_files,
    read_csv,
    read_images,
    read_json,
    read_parquet,
    read_text,
)

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "FitPictures",
    "HeadraceError",
    "Job",
    "KeyedModelHandler",
    "MemoryBudget",
    "ModelHandler",
    "ModelMetadata",
    "PadSequences",
    "PlanError",
    "PredictionCache",
    "PredictionResult",
    "Retry",
    "RowError",
    "RunError",
    "RunInterrupted",
    "SideInput",
    "WatchFilePattern",
    "from_arrow",
    "from_items",
    "from_pandas",
    "range",
    "read",
    "read_binary_files",
    "read_csv",
    "read_images",
    "read_json",
    "read_parquet",
    "read_text",
    "run",
    "shared",
]
