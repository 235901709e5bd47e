import functools
import pickle
import threading

import pytest

from headrace.engine.processes.travel import check_can_travel, pack
from headrace.errors import PlanError

lock = threading.Lock()


class Lang:
    def __init__(self):
        self.inner = {"guard": threading.Lock()}

    def __call__(self, row):
        return row


class Slotted:
    __slots__ = ("file",)

    def __init__(self):
        self.file = threading.Lock()


def closing_over(value):
    return lambda row: (row, value)


def test_what_can_travel_arrives():
    function = pickle.loads(pack(closing_over(3), "function"))
    assert function("row") == ("row", 3)


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (lambda row: lock, "global lock of it"),
        (closing_over(lock), "variable value of it"),
        (Lang(), "item 'guard' of attribute inner of Lang of it"),
        (Lang().__call__, "item 'guard' of attribute inner of Lang of object of method __call__ of it"),
        (Slotted(), "attribute file of Slotted of it"),
        (functools.partial(print, sep=lock), "argument sep of it"),
        (functools.partial(print, lock), "argument 0 of it"),
        ([1, (2, lock)], "item 1 of item 1 of it"),
        (lock, "it"),
    ],
)
def test_what_cannot_is_named_with_its_path(obj, path):
    with pytest.raises(PlanError) as raised:
        check_can_travel(obj, "it")
    assert str(raised.value).startswith(f"{path} is a _thread.lock and cannot be sent to a worker process")
    assert 'isolation="thread"' in str(raised.value)
