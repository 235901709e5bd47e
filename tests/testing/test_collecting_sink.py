import pyarrow as pa
import pytest

import headrace as hr
from headrace.sinks.sink import Sink
from headrace.testing import CollectingSink

IDS = pa.schema({"id": pa.int64()})


def part(sink, number, ids, schema=IDS):
    writer = sink.open_part(number, schema, "unused")
    writer.write(pa.record_batch({"id": ids}, schema=schema))
    return writer.prepare()


def test_it_is_a_sink():
    assert isinstance(CollectingSink(), Sink)
    assert CollectingSink("mine").name == "mine"
    assert CollectingSink().folder is None


def test_rows_show_once_they_are_published():
    sink = CollectingSink()
    receipt = part(sink, 0, [1, 2])
    assert sink.rows() == []
    sink.publish(receipt)
    sink.publish(receipt)
    assert sink.rows() == [{"id": 1}, {"id": 2}]


def test_parts_come_in_order_of_number():
    sink = CollectingSink()
    for receipt in (part(sink, 1, [3]), part(sink, 0, [1, 2])):
        sink.publish(receipt)
    assert [p.num_rows for p in sink.parts] == [2, 1]
    assert sink.to_arrow().column("id").to_pylist() == [1, 2, 3]


def test_what_is_discarded_never_shows():
    sink = CollectingSink()
    writer = sink.open_part(0, IDS, "unused")
    writer.write(pa.record_batch({"id": [1]}, schema=IDS))
    writer.discard()
    writer.discard()
    assert sink.rows() == []


def test_a_batch_with_other_columns_is_a_bug():
    with pytest.raises(AssertionError):
        CollectingSink().open_part(0, IDS, "unused").write(pa.record_batch({"x": [1]}))


def test_a_part_may_be_given_wider_columns():
    sink = CollectingSink()
    receipt = part(sink, 0, [1])
    sink.publish(receipt)
    sink.rewrite(receipt, pa.schema({"id": pa.float64(), "lang": pa.string()}), "unused")
    assert sink.rows() == [{"id": 1.0, "lang": None}]


def test_parts_that_differ_in_columns_make_one_table():
    sink = CollectingSink(holds_late_columns=True)
    sink.publish(part(sink, 0, [1]))
    sink.publish(part(sink, 1, [0.5], pa.schema({"id": pa.float64()})))
    assert sink.holds_late_columns()
    assert sink.to_arrow().column("id").to_pylist() == [1.0, 0.5]


def test_an_empty_result_keeps_its_columns():
    sink = CollectingSink()
    hr.from_items([{"id": 1}]).filter(lambda row: False).write(sink).run()
    assert sink.rows() == []


def test_many_rows_arrive_in_the_order_of_the_input():
    sink = CollectingSink()
    hr.range(100_000).map_batches(lambda b: {"id": b["id"] * 2}, batch_format="numpy").write(sink).run()
    assert sink.to_arrow().column("id").to_pylist() == list(range(0, 200_000, 2))
