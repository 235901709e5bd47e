"""The fluent API."""

from headrace.dataset.dataset import Dataset
from headrace.dataset.job import Job, run
from headrace.dataset.side_input import SideInput

__all__ = ["Dataset", "Job", "SideInput", "run"]
