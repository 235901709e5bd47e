"""Recall: what a model stage knows without asking the model, from earlier runs and from equal rows.

Rows that a memory knows are answered at once, those equal to a row that the model is being asked about with that one,
all others by the model. Each block waits meanwhile, and goes on piece by piece (`gathering.py`).
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.engine.gathering import UNKNOWN, Gathered, Gathering
from headrace.errors import StageError
from headrace.metrics.statistics import RecallStatistics
from headrace.model.inputs import columns_of
from headrace.records.keys import KEY_BYTES, keys_of, layout, row_bytes
from headrace.records.plain import array_of_numbers
from headrace.records.position import is_whole
from headrace.records.private import public
from headrace.records.tensors import has_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from headrace.engine.commit.answer_mirror import AnswerMirror
    from headrace.engine.task import StepCounts
    from headrace.model.answer_store import AnswerStore
    from headrace.model.versions import Version
    from headrace.plan.nodes import InferenceSpec
    from headrace.records.block import Block
    from headrace.records.failure import RowFailure


@dataclass(frozen=True, slots=True)
class Memory:
    """A store of answers, and what is in its keys beside the input."""

    store: AnswerStore | AnswerMirror
    salt: str
    by_row: bool
    """Whether an answer is that of one row of the job only, rather than of every equal row."""
    filled: bool = True
    """Whether there is anything in it that this run has not put there."""

    def keys(self, block: Block, inputs: NDArray[np.uint8], kinds: str) -> list[bytes]:
        """Return the key of each row of a block."""
        salt = f"{self.salt}\0{kinds}"
        if self.by_row:
            ordinals = block.ordinal_array().astype("<i8").reshape(-1, 1).view(np.uint8)
            inputs, salt = np.hstack([ordinals, inputs]), f"{salt}\0{block.unit}"
        return keys_of(inputs, salt=salt.encode())


@dataclass(slots=True, eq=False)
class _Known(Gathered):
    """A block that waits, with the keys of its rows."""

    own_keys: list[bytes] = field(default_factory=list)
    equal_keys: list[bytes] = field(default_factory=list)
    version: Version | None = None
    """The version of the model that was in use when the keys were made."""
    asked: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The rows that the model is asked about."""


class Recall:
    """Answers rows from memory, and the rest with the model's help; each answer is in the memories before it goes on.

    `own` has the answers of this job, by row; `equal` those of all jobs, by input, and equal rows are asked once.
    `admit` is called by one thread at a time, `settle` by any.
    """

    def __init__(
        self,
        spec: InferenceSpec,
        *,
        name: str,
        own: Memory | None,
        equal: Memory | None,
        nulls: bool,
        version: Callable[[], Version | None] | None = None,
    ) -> None:
        """`version` says which version of the model is in use, where that changes."""
        self._spec, self._name = spec, name
        self._version = version or (lambda: None)
        self._own, self._equal = own, equal
        self._gathering = Gathering(spec, nulls=nulls)
        self._lock = threading.Lock()
        self._asked_for: dict[bytes, list[tuple[_Known, int]]] = {}
        """Keys that the model is being asked about, and the equal rows that wait for the answer."""
        self._repeats = Counter[bytes]()
        self._recovered = self._hits = self._misses = 0

    @property
    def counts(self) -> StepCounts:
        """What became of the rows."""
        return self._gathering.counts

    @property
    def held_bytes(self) -> int:
        """Bytes of blocks that wait for answers."""
        return self._gathering.held_bytes

    def admit(self, number: int, block: Block) -> tuple[Block | None, list[Block]]:
        """Take a block; return what of it the model has to be asked about, and pieces that may go on at once.

        `number` is the block's name for `settle`. What is asked keeps the rows' identity and the block's cover.
        """
        waiting = self._enter(number, block)
        ready: list[Block] = []
        rows = np.arange(block.num_rows)
        if self._own is not None and self._own.filled:
            found = self._own.store.get(waiting.own_keys)
            ready += self._gathering.mark([(waiting, some.places, self._named(some.answers)) for some in found], {})
            rows = np.flatnonzero(waiting.part == UNKNOWN)
            self._recovered += block.num_rows - len(rows)
        if self._equal is not None:
            unknown, rows = len(rows), self._reserve(waiting, rows)
            for some in self._equal.store.get([waiting.equal_keys[row] for row in rows.tolist()]):
                ready += self._spread(waiting, rows[some.places], self._named(some.answers), {})
            rows = rows[waiting.part[rows] == UNKNOWN]
            self._hits += unknown - len(rows)
            self._misses += len(rows)
        waiting.asked = rows
        if len(rows) == 0:
            return None, ready
        asked = replace(block, failures=(), errors=0)
        return asked.derive(block.batch.take(array_of_numbers(rows)), rows), ready

    def settle(
        self,
        number: int,
        rows: range | NDArray[np.int64],
        kept: NDArray[np.int64] | None,
        answers: pa.RecordBatch,
        failures: Mapping[int, RowFailure],
    ) -> list[Block]:
        """Take the model's answers to some rows of what was asked of a block.

        `kept` names those of `rows` that `answers` is to (None: all), `failures` has the others. Returns the pieces, of
        this block and of others, that may go on now.
        """
        waiting = self._gathering.waiting(number)
        assert isinstance(waiting, _Known)
        places = waiting.asked[np.asarray(rows)]
        answered = places if kept is None else places[kept]
        self._refuse_objects(answers)
        # Where another version has taken over meanwhile, whose answers these are is not known here.
        if self._equal is not None and waiting.version is self._version():
            self._equal.store.put([waiting.equal_keys[row] for row in answered.tolist()], _nameless(answers))
        return self._spread(waiting, answered, answers, {int(places[i]): failure for i, failure in failures.items()})

    def statistics(self) -> RecallStatistics:
        """Return how many rows needed no model."""
        return RecallStatistics(
            recovered=self._recovered,
            hits=self._hits,
            misses=self._misses,
            cache_bytes=self._equal.store.nbytes if self._equal is not None else 0,
        )

    # -- rows in ---------------------------------------------------------------------------------------------------

    def _enter(self, number: int, block: Block) -> _Known:
        batch, inputs = block.batch, self._spec.inputs
        names = columns_of(inputs)  # as they are before the handler prepares them: it counts with its own content
        key = self._spec.key_column
        asked = [] if key is None else [batch.column(key)]  # the same input has another answer by another model
        if names is not None and set(names) <= set(batch.schema.names):
            batch = batch.select(list(names))
        else:
            batch = public(batch)
        columns = [*batch.columns, *asked]
        matrix = row_bytes(columns, batch.num_rows)
        # The name of a column that goes in alone means nothing to the model.
        names_in = [""] if isinstance(inputs, str) else batch.schema.names
        kinds = layout([*names_in, *([] if key is None else ["key"])], columns)
        waiting = _Known.of(number, block)
        if self._own is not None:
            waiting.own_keys = self._numbered(block, self._own.keys(block, matrix, kinds))
        if self._equal is not None:
            waiting.version = version = self._version()
            made_by = "" if version is None else f"\0{version.model_id}\0{version.digest}"
            waiting.equal_keys = self._equal.keys(block, matrix, kinds + made_by)
        self._gathering.enter(waiting)
        return waiting

    def _numbered(self, block: Block, keys: list[bytes]) -> list[bytes]:
        """Tell equal rows that come of one input row apart by numbers, so that each keeps an answer of its own.

        Which of them has which number is all the same, in this run and in a later one: they are equal.
        """
        same = np.diff(block.ordinal_array()) == 0
        repeated = np.append(not is_whole(block.start), same) | np.append(same, not is_whole(block.end))
        for row in np.flatnonzero(repeated).tolist():
            number = self._repeats[keys[row]]
            self._repeats[keys[row]] += 1
            if number:
                keys[row] = hashlib.blake2b(keys[row] + number.to_bytes(8, "little"), digest_size=KEY_BYTES).digest()
        return keys

    def _reserve(self, waiting: _Known, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those rows whose keys nobody asks for yet; the others will be answered with the first.

        They are reserved before the memory is looked into: whoever is let in while an answer is on its way either
        waits for it here or finds it there.
        """
        firsts = []
        with self._lock:
            for row in rows.tolist():
                equal = self._asked_for.get(waiting.equal_keys[row])
                if equal is None:
                    self._asked_for[waiting.equal_keys[row]] = []
                    firsts.append(row)
                else:
                    equal.append((waiting, row))
        return np.array(firsts, dtype=np.int64)

    # -- answers out -----------------------------------------------------------------------------------------------

    def _spread(
        self,
        waiting: _Known,
        rows: NDArray[np.int64],
        answers: pa.RecordBatch,
        failures: Mapping[int, RowFailure],
    ) -> list[Block]:
        """Give answers to the rows of a block and to all that are equal to them."""
        answered: dict[_Known, list[tuple[int, int]]] = defaultdict(list)
        answered[waiting] = [(row, i) for i, row in enumerate(rows.tolist())]
        failed: dict[tuple[Gathered, int], RowFailure] = {(waiting, row): f for row, f in failures.items()}
        if self._equal is not None:
            with self._lock:
                for row, i in list(answered[waiting]):
                    for other, equal in self._asked_for.pop(waiting.equal_keys[row]):
                        answered[other].append((equal, i))
                for row, failure in failures.items():
                    for other, equal in self._asked_for.pop(waiting.equal_keys[row]):
                        failed[other, equal] = failure
        marks = []
        for each, pairs in answered.items():
            to, taken = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
            whole = each is waiting and len(pairs) == len(rows)
            marks.append((each, to, answers if whole else answers.take(array_of_numbers(taken))))
        if self._own is not None:
            keys = [each.own_keys[row] for each, to, _ in marks for row in to.tolist()]
            self._own.store.put(keys, _nameless(pa.concat_batches([its for _, _, its in marks])))
        return self._gathering.mark(marks, failed)

    def _named(self, answers: pa.RecordBatch) -> pa.RecordBatch:
        return answers.rename_columns(self._gathering.names)

    def _refuse_objects(self, answers: pa.RecordBatch) -> None:
        for field_ in answers.schema:
            if has_objects(field_.type):
                raise StageError(
                    f"step {self._name!r} answers column {field_.name!r} with Python objects, which neither cache= nor"
                    " durability='row' can keep; let the handler return numbers, text, bytes, arrays, lists or dicts"
                )


def _nameless(answers: pa.RecordBatch) -> pa.RecordBatch:
    """Return answers with columns that count, since jobs give equal answers other names."""
    return answers.rename_columns([str(i) for i in range(answers.num_columns)])
