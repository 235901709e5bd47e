from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from headrace.records.lists import is_any_list, items_of

KINDS = [
    pa.list_(pa.int8()),
    pa.large_list(pa.int8()),
    pa.list_view(pa.int8()),
    pa.large_list_view(pa.int8()),
    pa.list_(pa.int8(), 2),
]


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_every_kind_of_list(kind: pa.DataType) -> None:
    array = pa.array([[1, 2], None, [3, None], None, [5, 6]], kind)
    assert is_any_list(kind)
    for piece in (array, array.slice(1), array.slice(2, 2), array.slice(0, 0)):
        items, bounds = items_of(piece)
        found = items.to_pylist()
        lists = [found[a:b] for a, b in pairwise(bounds)]
        assert lists == [value or [] for value in piece.to_pylist()]


def test_items_of_maps_are_pairs() -> None:
    array = pa.array([[("a", 1)], None, [("b", None), ("c", 3)]], pa.map_(pa.string(), pa.int64()))
    items, bounds = items_of(array.slice(1))
    assert items.to_pylist() == [{"key": "b", "value": None}, {"key": "c", "value": 3}]
    assert bounds.tolist() == [0, 0, 2]
