"""Steps: rows in, rows out, covers without a gap, failures where they belong."""

import decimal
import itertools
import weakref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.steps import StepChain
from headrace.errors import RowError, StageError
from headrace.plan.steps import Step
from headrace.records.block import Block, Origin, Unit, dense_block
from headrace.records.columns import to_rows
from headrace.records.position import END


def run(steps, block, on_error="fail"):
    chain = StepChain(steps, on_error)
    chain.open()
    out = list(chain.process(block))
    chain.close()
    return out, chain.counts()


def step(kind, function, **more):
    return Step(name=kind, kind=kind, function=function, **more)


def rows_of(blocks):
    return [row for block in blocks for row in to_rows(block.batch)]


def source(rows: int, end=None) -> Block:
    block = dense_block(pa.record_batch({"x": list(range(rows))}), split=0, first=0, origin=Origin("a.csv"))
    return block if end is None else Block(batch=block.batch, unit=block.unit, start=(0,), end=end, origin=block.origin)


def assert_covers(block, pieces) -> None:
    assert pieces[0].start == block.start
    assert pieces[-1].end == block.end
    for left, right in itertools.pairwise(pieces):
        assert left.end == right.start
        assert left.start < left.end


def test_map_replaces_rows() -> None:
    out, counts = run([step("map", lambda r: {"y": r["x"] * 2})], source(3))
    assert rows_of(out) == [{"y": 0}, {"y": 2}, {"y": 4}]
    assert (counts["map"].rows_in, counts["map"].rows_out) == (3, 3)


def test_columns_that_a_map_hands_on_keep_their_exact_type() -> None:
    batch = pa.record_batch(
        {
            "price": pa.array([decimal.Decimal("1.10"), decimal.Decimal("2.20")], pa.decimal128(10, 2)),
            "small": pa.array([1, None], pa.int8()),
            "when": pa.array([1, 2], pa.timestamp("ns", "Europe/Paris")),
        }
    )
    out, _ = run([step("map", lambda r: {**r, "n": 1})], dense_block(batch, split=0, first=0))
    assert out[0].batch.schema.types[:3] == batch.schema.types


def test_filter_counts_what_it_leaves_out_and_keeps_identity() -> None:
    out, counts = run([step("filter", lambda r: r["x"] % 2)], source(5))
    assert out[0].ordinal_array().tolist() == [1, 3]
    assert counts["filter"].filtered == 3
    assert_covers(source(5), out)


def test_a_failing_row_under_fail_names_file_row_and_remedy() -> None:
    def picky(row):
        if row["x"] == 2:
            raise ValueError("too dark")
        return row

    with pytest.raises(StageError, match=r"'map' failed on row 2 of a.csv \(ValueError: too dark\).*dead_letter"):
        run([step("map", picky)], source(4))


@pytest.mark.parametrize("kind", ["map", "filter", "flat_map", "add_column"])
def test_a_failing_row_becomes_a_dead_letter_with_the_row_as_it_was(kind) -> None:
    def picky(row):
        row["x"] += 0
        if row["x"] == 2:
            raise RowError("no")
        return {"map": row, "filter": True, "flat_map": [row], "add_column": 1}[kind]

    kwargs = (("column", "c"),) if kind == "add_column" else ()
    out, counts = run([step(kind, picky, kwargs=kwargs)], source(4), "dead_letter")
    assert [r["x"] for r in rows_of(out)] == [0, 1, 3]
    (failure,) = out[0].failures
    assert (failure.stage, failure.ordinal, failure.row, failure.error_type) == (kind, 2, '{"x": 2}', "RowError")
    assert (failure.file, failure.position) == ("a.csv", 2)
    assert counts[kind].failed == 1


def test_null_keeps_the_row_without_the_new_column() -> None:
    def bad(row):
        raise ValueError

    out, counts = run([step("add_column", bad, kwargs=(("column", "c"),))], source(2), "null")
    assert rows_of(out) == [{"x": 0, "c": None}, {"x": 1, "c": None}]
    assert out[0].errors == counts["add_column"].with_error == 2


def test_a_function_is_never_called_for_no_rows() -> None:
    def never(_):
        raise AssertionError

    empty = source(0, end=END)
    out, _ = run([step("map", never), step("map_batches", never), step("filter", never)], empty)
    assert [(b.num_rows, b.start, b.end) for b in out] == [(0, (0,), END)]


def test_map_batches_sees_at_most_batch_size_rows_in_its_format() -> None:
    sizes = []

    def double(batch):
        sizes.append(len(batch["x"]))
        return {"x": batch["x"] * 2}

    out, _ = run([step("map_batches", double, batch_format="numpy", batch_size=4)], source(10))
    assert sizes == [4, 4, 2]
    assert [r["x"] for r in rows_of(out)] == [2 * i for i in range(10)]
    assert_covers(source(10), out)
    assert [i for b in out for i in b.ordinal_array()] == list(range(10))


@pytest.mark.parametrize("batch_format", ["rows", "numpy", "pyarrow", "pandas"])
def test_every_batch_format_goes_round(batch_format) -> None:
    out, _ = run([step("map_batches", lambda b: b, batch_format=batch_format)], source(3))
    assert rows_of(out) == [{"x": 0}, {"x": 1}, {"x": 2}]


def test_a_row_wise_batch_is_halved_until_the_bad_row_stands_alone() -> None:
    calls = []

    def picky(rows):
        calls.append([r["x"] for r in rows])
        if any(r["x"] == 5 for r in rows):
            raise ValueError("five")
        return rows

    out, _ = run([step("map_batches", picky, row_wise=True)], source(8), "dead_letter")
    assert [r["x"] for r in rows_of(out)] == [0, 1, 2, 3, 4, 6, 7]
    assert [f.ordinal for b in out for f in b.failures] == [5]
    assert sum(5 in call for call in calls) == 4


def test_a_batch_that_is_not_row_wise_fails_whole() -> None:
    def bad(rows):
        raise ValueError("no")

    out, counts = run([step("map_batches", bad)], source(3), "dead_letter")
    assert counts["map_batches"].failed == 3
    assert [f.ordinal for b in out for f in b.failures] == [0, 1, 2]


def test_classes_are_set_up_once_a_replica_and_closed() -> None:
    events = []

    class Adder:
        def __init__(self, n, *, extra):
            self.n = n + extra

        def setup(self):
            events.append("setup")

        def __call__(self, row):
            return {"x": row["x"] + self.n}

        def close(self):
            events.append("close")

    out, _ = run([step("map", Adder, args=(10,), kwargs=(("extra", 1),))], source(1))
    assert rows_of(out) == [{"x": 11}]
    assert events == ["setup", "close"]


def test_a_wrong_return_value_says_so() -> None:
    with pytest.raises(StageError, match="map functions return a dict, not int"):
        run([step("map", lambda r: 1)], source(1))
    with pytest.raises(StageError, match="returned nothing; is its return missing"):
        run([step("map", lambda r: None)], source(1))


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    again=st.integers(0, 3),
    target=st.integers(1, 400),
)
def test_fan_out_keeps_parents_and_covers_without_a_gap(sizes, again, target) -> None:
    import headrace.engine.steps as module

    block = dense_block(pa.record_batch({"n": sizes}), split=3, first=7)
    before = module.TARGET_BLOCK_BYTES
    module.TARGET_BLOCK_BYTES = target
    try:
        first = step("flat_map", lambda r: ({"k": i} for i in range(r["n"])))
        second = Step(name="again", kind="flat_map", function=lambda r: [{"k": r["k"], "j": j} for j in range(again)])
        out, _ = run([first, second], block)
    finally:
        module.TARGET_BLOCK_BYTES = before
    assert_covers(block, out)
    expected = [(7 + p, k, j) for p, n in enumerate(sizes) for k in range(n) for j in range(again)]
    found = [(int(o), r["k"], r["j"]) for b in out for o, r in zip(b.ordinal_array(), to_rows(b.batch), strict=True)]
    assert found == expected


def test_large_fan_out_is_cut_into_blocks_of_normal_size() -> None:
    block = dense_block(pa.record_batch({"n": [200]}), split=0, first=0)
    big = np.zeros(100_000, dtype="float64")
    out, _ = run([step("flat_map", lambda r: ({"v": big} for _ in range(r["n"])))], block)
    assert sum(b.num_rows for b in out) == 200
    assert len(out) > 3
    assert_covers(block, out)


def test_small_children_are_cut_by_number_since_python_objects_are_large() -> None:
    block = dense_block(pa.record_batch({"n": [200_000]}), split=0, first=0)
    out, _ = run([step("flat_map", lambda r: ({"k": i} for i in range(r["n"])))], block)
    assert sum(b.num_rows for b in out) == 200_000
    assert max(b.num_rows for b in out) <= 65_536
    assert_covers(block, out)


def test_a_map_that_makes_rows_large_is_cut_into_blocks_of_normal_size() -> None:
    block = dense_block(pa.record_batch({"n": list(range(300))}), split=0, first=5)
    picture = np.zeros(50_000, dtype="float64")

    def grow(row):
        if row["n"] % 7 == 3:
            raise ValueError("no picture")
        return {"n": row["n"], "picture": picture}

    out, _ = run([step("map", grow, on_error="dead_letter")], block)
    assert len(out) > 3
    assert max(b.nbytes for b in out) < 2 * 16 * 2**20
    assert_covers(block, out)
    found = [(int(o), r) for b in out for o, r in zip(b.ordinal_array(), b.batch.column("n").to_pylist(), strict=True)]
    assert found == [(5 + n, n) for n in range(300) if n % 7 != 3]
    assert [f.ordinal for b in out for f in b.failures] == [5 + n for n in range(300) if n % 7 == 3]


def test_a_block_is_kept_by_nobody_once_its_result_is_out() -> None:
    chain = StepChain([step("map", lambda r: {"y": r["x"]}), step("map", lambda r: {"z": 1})], "fail")
    chain.open()
    block = dense_block(pa.record_batch({"x": ["a" * 1000]}), split=0, first=0)
    gone = weakref.ref(block.batch)
    pieces = chain.process(block)
    del block
    next(pieces)
    assert gone() is None
    pieces.close()
    chain.close()


def test_unit_and_lane_pass_through() -> None:
    block = Block(batch=pa.record_batch({"x": [1]}), unit=Unit(4, (1,)), start=(0,), end=END)
    out, _ = run([step("map", lambda r: r)], block)
    assert out[0].unit == Unit(4, (1,))


def test_what_was_set_up_is_closed_also_where_a_later_step_fails_to_be() -> None:
    closed = []

    class Fine:
        def __call__(self, row):
            return row

        def close(self):
            closed.append("fine")

    class Broken(Fine):
        def setup(self):
            raise OSError("no service")

    chain = StepChain([step("map", Fine), Step(name="broken", kind="map", function=Broken)], "fail")
    with pytest.raises(StageError, match="no service"):
        chain.open()
    chain.close()
    assert closed == ["fine"]


def test_a_step_that_cannot_be_closed_does_not_keep_others_from_it() -> None:
    closed = []

    class Fine:
        def __call__(self, row):
            return row

        def close(self):
            closed.append("fine")

    class Broken(Fine):
        def close(self):
            raise OSError("gone")

    chain = StepChain([step("map", Fine), Step(name="broken", kind="map", function=Broken)], "fail")
    chain.open()
    with pytest.raises(StageError, match="'broken' could not be closed"):
        chain.close()
    assert closed == ["fine"]


def test_halves_of_a_failing_batch_may_differ_in_columns_and_widen() -> None:
    def picky(rows):
        if any(r["id"] == 1 for r in rows):
            raise ValueError("no")
        return [{"id": r["id"], **({"x": 0.5} if r["id"] == 3 else {"x": None, "y": 1})} for r in rows]

    ids = dense_block(pa.record_batch({"id": [0, 1, 2, 3]}), split=0, first=0)
    steps = [step("map_batches", picky, row_wise=True)]
    ((out,), _) = run(steps, ids, on_error="dead_letter")
    assert to_rows(out.batch) == [
        {"id": 0, "x": None, "y": 1},
        {"id": 2, "x": None, "y": 1},
        {"id": 3, "x": 0.5, "y": None},
    ]


def test_halves_of_a_failing_batch_that_quarrel_are_told() -> None:
    def picky(rows):
        if len(rows) > 1:
            raise ValueError("no")
        return [{"x": "text" if rows[0]["id"] else 1}]

    ids = dense_block(pa.record_batch({"id": [0, 1]}), split=0, first=0)
    with pytest.raises(StageError, match=r"'map_batches' returned column 'x' as int64 for some rows and as string"):
        run([step("map_batches", picky, row_wise=True)], ids, on_error="dead_letter")


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow", "rows"])
def test_identifiers_beside_nulls_survive_every_format(batch_format) -> None:
    large = 2**53 + 1
    ids = dense_block(pa.record_batch({"id": [large, None, large + 2]}), split=0, first=0)
    ((out,), _) = run([step("map_batches", lambda batch: batch, batch_format=batch_format)], ids)
    assert to_rows(out.batch) == [{"id": large}, {"id": None}, {"id": large + 2}]
    assert out.batch.schema.field("id").type == pa.int64()


def clumsy(x):
    if x % 5 == 3:
        raise ValueError("no")
    return x


PACED = {
    "map": lambda row: {"x": 10 * clumsy(row["x"])},
    "add_column": lambda row: clumsy(row["x"]),
    "filter": lambda row: clumsy(row["x"]) % 2 == 0,
    "flat_map": lambda row: [{"y": row["x"]}] * (clumsy(row["x"]) % 3),
}


@pytest.mark.parametrize("on_error", ["dead_letter", "null"])
@pytest.mark.parametrize("first", ["map", "flat_map"])
@pytest.mark.parametrize("kind", PACED)
def test_slow_rows_are_handed_on_one_by_one_with_nothing_else_changed(kind, first, on_error, monkeypatch) -> None:
    more = {"kwargs": (("column", "y"),)} if kind == "add_column" else {}
    twice = (lambda row: [row, row]) if first == "flat_map" else (lambda row: row)
    steps = [Step(name="before", kind=first, function=twice), step(kind, PACED[kind], **more)]
    block = source(13, END)

    def answers():
        out, counts = run(steps, block, on_error)
        assert_covers(block, out)
        rows = [(b.ordinal_of(i), row) for b in out for i, row in enumerate(to_rows(b.batch))]
        failed = [(f.ordinal, f.row, f.message) for b in out for f in b.failures]
        count = counts[kind]
        numbers = (count.rows_in, count.rows_out, count.failed, count.filtered, count.with_error)
        return len(out), (rows, failed, numbers, sum(b.errors for b in out))

    one, whole = answers()
    monkeypatch.setattr("headrace.engine.pace.HAND_ON_SECS", 0.0)
    many, one_by_one = answers()
    assert one_by_one == whole
    assert (one, many) == (1, 26 if first == "flat_map" else 13)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_an_error_that_fails_to_give_its_text_costs_its_row_and_not_the_run(isolation, tmp_path) -> None:
    class SulkyError(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def picky(row):
        if row["id"] == 3:
            raise SulkyError
        return row

    job = hr.range(5).map(picky, isolation=isolation).write_json(tmp_path / "out")
    with pytest.raises(StageError, match="row 3 of .*SulkyError: <its text cannot be had"):
        job.run()
    result = job.run(on_error="dead_letter")
    assert (result.rows_written, result.failed) == (4, 1)
