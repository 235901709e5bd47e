"""Which call is to blame when workers die or hang: tried again first, then refused. No processes, no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import RowCrash, RowTimeout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.model.calls import Call
    from headrace.plan.retry import Retry

CRASHES_A_CALL = 2
"""Without a `Retry` a call is made again after one crash, which may have come from outside, and not after two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """Why a call is not made again, told in the place of its rows' answers."""

    message: str
    timed_out: bool
    attempt: int

    def error(self) -> RowTimeout | RowCrash:
        """Return the error to raise in place of the call."""
        error = (RowTimeout if self.timed_out else RowCrash)(self.message)
        error.attempt = self.attempt
        return error


@dataclass(slots=True)
class Suspects:
    """The calls of one block in which workers died or hung.

    >>> from headrace.model.calls import Call
    >>> suspects, batch = Suspects(), Call(0, 0, 0, 8)
    >>> suspects.died(batch, "was killed by SIGSEGV") is None  # made once more
    True
    >>> suspects.died(batch, "was killed by SIGSEGV").attempt  # refused: its halves will be tried
    2
    >>> suspects.died(Call(0, 4, 0, 4), "was killed by SIGSEGV").attempt  # a part of it, refused at once
    1
    """

    sentences: dict[Call, Sentence] = field(default_factory=dict)
    _strikes: Counter[Call] = field(default_factory=Counter)

    def died(self, call: Call, message: str, *, timed_out: bool = False, retry: Retry | None = None) -> Sentence | None:
        """Take down that a worker died in a call; return the sentence, or None where the call is to be made again."""
        self._strikes[call] += 1
        sentence = Sentence(message=message, timed_out=timed_out, attempt=self._strikes[call])
        if self._may_try_again(call, sentence, retry):
            return None
        self.sentences[call] = sentence
        return sentence

    def refuse_halves(self, call: Call) -> None:
        """Refuse what a refused call begins with, half by half, so that its first row is tried alone at once.

        >>> from headrace.model.calls import Call
        >>> suspects = Suspects()
        >>> _ = suspects.died(Call(0, 8, 0, 9), "hung", timed_out=True)
        >>> suspects.refuse_halves(Call(0, 8, 0, 9))
        >>> [call.rows for call in suspects.sentences]
        [9, 4, 2]
        """
        sentence = self.sentences[call]
        while (call := call._replace(rows=call.rows // 2)).rows > 1:
            self.sentences[call] = sentence

    def sound_before(self, call: Call | None, ordinals: NDArray[np.int64]) -> int:
        """Return how many of the block's rows a worker was through with when it died in a call, refused ones left out.

        >>> import numpy as np
        >>> from headrace.model.calls import Call
        >>> suspects = Suspects()
        >>> _ = suspects.died(Call(0, 1, 0, 1), "hung", timed_out=True)
        >>> suspects.sound_before(Call(0, 4, 0, 1), np.arange(8))
        3
        """
        if call is None:
            return 0
        refused = sum(one.rows == 1 and one.first < call.first for one in self.sentences)
        return max(0, int(np.searchsorted(ordinals, call.first)) - refused)

    def strikes(self, call: Call) -> int:
        """Return how many workers have died in a call."""
        return self._strikes[call]

    def _may_try_again(self, call: Call, sentence: Sentence, retry: Retry | None) -> bool:
        in_refused = any(other.holds(call) for other in self.sentences)
        if in_refused and call.rows > 1:
            return False  # some row of it is to blame, so that trying again costs another worker for nothing
        if retry is not None and retry.again(sentence.error(), sentence.attempt):
            return True
        return not sentence.timed_out and not in_refused and sentence.attempt < CRASHES_A_CALL
