"""For tests of your own pipelines: a fake model, a sink in memory, a clock, asserts that say what differs."""

from headrace.testing.asserts import assert_balanced, assert_same_rows
from headrace.testing.clock import ManualClock
from headrace.testing.collecting_sink import CollectingSink
from headrace.testing.fake_handler import FakeModelHandler
from headrace.testing.files import scatter

__all__ = [
    "CollectingSink",
    "FakeModelHandler",
    "ManualClock",
    "assert_balanced",
    "assert_same_rows",
    "scatter",
]
