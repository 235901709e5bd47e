"""The fluent API."""

from headrace.dataset.dataset import Dataset
from headrace.dataset.job import Job, run

__all__ = ["Dataset", "Job", "run"]
