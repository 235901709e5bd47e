"""What a search through a batch has found, and the prediction that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import AnswerError, RowTooLarge
from headrace.records.columns import joined_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.model.answers import Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a model made of one record batch."""

    columns: dict[str, pa.Array]
    """The output columns, aligned to the kept rows."""
    rows: int
    """Number of kept rows."""
    kept: NDArray[np.bool_] | None = None
    """For each row of the batch, whether it goes on; None when all do."""
    errors: dict[int, Exception] = field(default_factory=dict)
    """What befell the rows that do not go on, by row of the batch."""
    attempts: dict[int, int] = field(default_factory=dict)
    """How often those of them were asked alone that were asked more than once."""
    with_error: int = 0
    """Rows that go on with nulls, under on_error="null"."""
    model_ids: list[str] | None = None
    """For each kept row; None where the handler's `model_id` stands for all."""
    exhausted: tuple[int, ...] = ()
    """Sizes of calls for which memory did not suffice although each of their rows fits alone."""


@dataclass(slots=True)
class Found:
    """What a search has found so far, in the order of the rows."""

    parts: list[tuple[int, int, Answers | None]] = field(default_factory=list)
    """(first row, count, answers); no answers for a row whose call raised."""
    errors: dict[int, Exception] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    raised: int = 0
    refused: int = 0
    """Of those raised: calls for one row that ended with an error of the handler's own, not with a wrong number."""

    exhausted: list[tuple[int, int]] = field(default_factory=list)
    """(first row, count) of calls for which memory did not suffice."""

    def answered(self, first: int, count: int, answers: Answers) -> None:
        """Take in what the model answered for `count` rows."""
        self.parts.append((first, count, answers))
        self.errors.update((first + row, error) for row, error in answers.failures.items())

    def failed(self, row: int, error: Exception, attempts: int) -> None:
        """Take in a row whose call raised, at all its attempts."""
        self.parts.append((row, 1, None))
        self.errors[row] = error
        if attempts > 1:
            self.attempts[row] = attempts
        self.raised += 1
        self.refused += not isinstance(error, AnswerError)

    @property
    def answered_alone(self) -> bool:
        """Whether an answer to a row that was asked alone is among what was found."""
        return any(count == 1 and answers is not None and not answers.failures for _, count, answers in self.parts)

    def withdraw(self, mark: int) -> list[tuple[int, int, Answers | None]]:
        """Take out the parts found since there were `mark` of them."""
        parts = self.parts[mark:]
        del self.parts[mark:]
        return parts

    def prediction(self, names: Sequence[str], rows: int, model_id: str, *, nulls: bool) -> Prediction:
        """Put all that was found together; with `nulls` failed rows stay, without answers."""
        columns = {name: self._column(name) for name in names}
        ids, exhausted = self._model_ids(model_id), self._exhausted()
        if not self.errors:
            return Prediction(columns=columns, rows=rows, model_ids=ids, exhausted=exhausted)
        if nulls:
            return Prediction(
                columns=columns, rows=rows, with_error=len(self.errors), model_ids=ids, exhausted=exhausted
            )
        kept = np.ones(rows, dtype=bool)
        kept[list(self.errors)] = False
        mask = pa.array(kept)
        return Prediction(
            columns={name: column.filter(mask) for name, column in columns.items()},
            rows=int(kept.sum()),
            kept=kept,
            errors=self.errors,
            attempts=self.attempts,
            exhausted=exhausted,
            model_ids=None if ids is None else [id_ for id_, keep in zip(ids, kept, strict=True) if keep],
        )

    def _exhausted(self) -> tuple[int, ...]:
        # A row that is too large by itself says nothing of how many others would fit.
        alone = [row for row, error in self.errors.items() if isinstance(error, RowTooLarge)]
        return tuple(n for first, n in self.exhausted if not any(first <= row < first + n for row in alone))

    def _column(self, name: str) -> pa.Array:
        return joined_column(
            [pa.nulls(count) if answers is None else answers.columns[name] for _, count, answers in self.parts]
        )

    def _model_ids(self, model_id: str) -> list[str] | None:
        if not any(answers is not None and answers.model_ids is not None for _, _, answers in self.parts):
            return None
        ids: list[str | None] = []
        for _, count, answers in self.parts:
            ids.extend((answers.model_ids if answers is not None else None) or [None] * count)
        return [id_ or model_id for id_ in ids]
