"""Recall as a state machine: every row is answered once and in its place, and equal inputs are asked once."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.recall import Memory, Recall
from headrace.model.answer_store import Found
from headrace.plan.nodes import InferenceSpec
from headrace.records.block import Block, Unit
from headrace.records.failure import RowFailure
from headrace.testing import FakeModelHandler


class Shelf:
    """A store in memory."""

    nbytes = 0

    def __init__(self) -> None:
        self.kept: dict[bytes, pa.RecordBatch] = {}

    def get(self, keys):
        places = [i for i, key in enumerate(keys) if key in self.kept]
        return [Found(np.array([i]), self.kept[keys[i]]) for i in places]

    def put(self, keys, answers):
        for i, key in enumerate(keys):
            self.kept.setdefault(key, answers.slice(i, 1))


def recall_of(shelves: tuple[Shelf | None, Shelf | None], *, nulls: bool = False) -> Recall:
    own, equal = shelves
    return Recall(
        InferenceSpec(handler=FakeModelHandler(answer=len), inputs="text", output="answer"),
        name="model",
        own=own and Memory(own, "model", by_row=True),
        equal=equal and Memory(equal, "content", by_row=False),
        nulls=nulls,
    )


FAILING = "x"


def model(batch: pa.RecordBatch) -> tuple[np.ndarray | None, pa.RecordBatch, dict[int, RowFailure]]:
    """Answer with the text twice over; fail for one."""
    texts = batch["text"].to_pylist()
    kept = np.array([i for i, text in enumerate(texts) if text != FAILING], dtype=np.int64)
    answers = pa.record_batch(
        {
            "answer": pa.array([2 * texts[i] for i in kept], pa.string()),
            "model_id": pa.array(["m"] * len(kept), pa.string()).dictionary_encode(),
        }
    )
    failure = RowFailure(stage="model", ordinal=0, row="", error_type="ValueError", message="no")
    failures = {i: failure for i, text in enumerate(texts) if text == FAILING}
    return (kept if failures else None), answers, failures


@st.composite
def blocks(draw):
    """Blocks that cover one unit, some of whose rows come from the same input row."""
    texts = draw(st.lists(st.sampled_from(["", "a", "b", "c", "d", FAILING]), min_size=1, max_size=30))
    steps = draw(st.lists(st.integers(0, 2), min_size=len(texts), max_size=len(texts)))
    ordinals = np.cumsum([0, *steps[1:]]).astype(np.int64)
    batch = pa.record_batch({"id": pa.array(range(len(texts))), "text": texts})
    whole = Block(batch=batch, unit=Unit(0), start=(0,), end=(int(ordinals[-1]) + 1,), ordinals=ordinals)
    cuts = draw(st.sets(st.integers(1, max(1, len(texts) - 1)), max_size=4))
    return whole.cut(sorted(cut for cut in cuts if cut < len(texts)))


def run(recall: Recall, given_blocks: list[Block], data: st.DataObject) -> tuple[list[Block], Counter]:
    """Let blocks in and settle what is asked, in any order and in batches of any size."""
    out: list[Block] = []
    asked: list[tuple[int, int, pa.RecordBatch]] = []
    calls: Counter = Counter()
    waiting = list(enumerate(given_blocks))
    while waiting or asked:
        if waiting and (not asked or data.draw(st.booleans())):
            number, block = waiting.pop(0)
            wanted, ready = recall.admit(number, block)
            out += ready
            if wanted is not None:
                size = data.draw(st.integers(1, wanted.num_rows))
                asked += [(number, at, wanted.batch.slice(at, size)) for at in range(0, wanted.num_rows, size)]
        else:
            number, at, rows = asked.pop(data.draw(st.integers(0, len(asked) - 1)))
            calls.update(rows["text"].to_pylist())
            out += recall.settle(number, range(at, at + rows.num_rows), *model(rows))
    return out, calls


def check(out: list[Block], given_blocks: list[Block], *, nulls: bool) -> None:
    out = sorted(out, key=lambda block: block.start)
    assert (out[0].start, out[-1].end) == (given_blocks[0].start, given_blocks[-1].end)
    assert all(a.end == b.start for a, b in pairwise(out))
    texts = [text for block in given_blocks for text in block.batch["text"].to_pylist()]
    expected = [(i, None if text == FAILING else 2 * text) for i, text in enumerate(texts) if nulls or text != FAILING]
    got = [pair for b in out for pair in zip(b.batch["id"].to_pylist(), b.batch["answer"].to_pylist(), strict=True)]
    assert got == expected
    failed = texts.count(FAILING)
    ordinals = [int(o) for block in given_blocks for o in block.ordinal_array()]
    assert [int(o) for block in out for o in block.ordinal_array()] == [ordinals[i] for i, _ in expected]
    failures = [failure for block in out for failure in block.failures]
    assert len(failures) == (0 if nulls else failed)
    assert sum(block.errors for block in out) == (failed if nulls else 0)
    if not nulls:
        assert sorted(f.ordinal for f in failures) == [
            o for o, text in zip(ordinals, texts, strict=True) if text == FAILING
        ]
        assert all('"text": "x"' in failure.row for failure in failures)
    else:
        assert {i for b in out for i in b.batch["model_id"].to_pylist()} <= {"m", FakeModelHandler(answer=len).model_id}


@settings(deadline=None)
@given(given_blocks=blocks(), data=st.data(), nulls=st.booleans())
def test_with_a_cache_equal_inputs_are_asked_once_in_all_runs(given_blocks, data, nulls) -> None:
    shelf = Shelf()
    first = recall_of((None, shelf), nulls=nulls)
    out, calls = run(first, given_blocks, data)
    check(out, given_blocks, nulls=nulls)
    assert all(count == 1 for text, count in calls.items() if text != FAILING)
    assert first.held_bytes == 0
    rows = sum(block.num_rows for block in given_blocks)
    assert first.statistics().hits + first.statistics().misses == rows
    again = recall_of((None, shelf), nulls=nulls)
    out, calls = run(again, given_blocks, data)
    check(out, given_blocks, nulls=nulls)
    assert set(calls) <= {FAILING}
    assert again.counts.rows_out + again.counts.failed == rows


@settings(deadline=None)
@given(given_blocks=blocks(), data=st.data(), with_cache=st.booleans())
def test_with_durable_rows_a_second_run_asks_for_what_failed_only(given_blocks, data, with_cache) -> None:
    shelf = Shelf()
    out, calls = run(recall_of((shelf, Shelf() if with_cache else None)), given_blocks, data)
    check(out, given_blocks, nulls=False)
    if not with_cache:  # each row has an answer of its own
        assert calls.total() == sum(block.num_rows for block in given_blocks)
    whole = [piece for block in given_blocks for piece in block.cut(range(1, block.num_rows))]  # cut otherwise
    again = recall_of((shelf, None))
    out, calls = run(again, whole, data)
    check(out, given_blocks, nulls=False)
    assert set(calls) <= {FAILING}
    answered = sum(text != FAILING for block in given_blocks for text in block.batch["text"].to_pylist())
    assert again.statistics().recovered == answered


def test_what_is_known_goes_on_before_the_rest_of_its_block() -> None:
    shelf = Shelf()
    recall = recall_of((None, shelf))
    texts = pa.record_batch({"text": ["a", "b", "c"]})
    block = Block(batch=texts, unit=Unit(0), start=(0,), end=(3,))
    asked, ready = recall.admit(0, block)
    assert ready == []
    (first,) = recall.settle(0, range(1), *model(asked.batch.slice(0, 1)))
    assert (first.start, first.end) == ((0,), (1,))
    assert recall.settle(0, range(2, 3), *model(asked.batch.slice(2, 1))) == []
    (rest,) = recall.settle(0, range(1, 2), *model(asked.batch.slice(1, 1)))
    assert (rest.start, rest.end, rest.batch["answer"].to_pylist()) == ((1,), (3,), ["bb", "cc"])
