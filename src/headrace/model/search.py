"""The search through one batch: asked for as a whole, and in halves where that fails, until bad rows stand alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import AnswerError, HeadraceError, RowTooLarge
from headrace.model.attempts import attempts_behind
from headrace.model.found import Found

if TYPE_CHECKING:
    from typing import Protocol

    from headrace.model.answers import Answers
    from headrace.model.attempts import Attempts
    from headrace.model.tally import Tally

    class Ask(Protocol):
        """Asks the model for `count` rows from `first` on, and `again` where that fails and is worth it."""

        def __call__(self, first: int, count: int, *, again: bool) -> Answers: ...


class Search:
    """Finds the answers to a batch, and the rows that have none. No part that was answered is asked again.

    A call that is answered the wrong number of times is halved like one that raises. A row has to be to blame for it:
    if all rows of the call, asked in parts, are answered, the call is made once more, and if its number is wrong again
    the handler does not answer row by row. Then all rows of that call fail, and what it answers to a row alone is not
    taken from there on: a sum over the batch looks like an answer where the batch is one row.
    """

    def __init__(self, ask: Ask, attempts: Attempts, tally: Tally) -> None:
        self._ask, self._attempts, self._tally = ask, attempts, tally
        self.found = Found()

    def span(
        self, first: int, count: int, *, part: bool = False, known_bad: bool = False, whole: int | None = None
    ) -> int | None:
        """Answer rows `first…` of the batch, in halves where they fail together.

        A `part` of a batch that failed is asked once, unless it is one row: a row fails only after all its attempts.
        `known_bad` spares the call for several rows of which one is known to fail; `whole` is the number of answers
        that this call would give, as far as earlier ones tell. Returns the number of answers, None where a call raised.
        """
        failure: Exception | None = None
        if count == 1 or not known_bad:
            failure = self._tried(first, count, again=count == 1 or not part)
            if failure is None:
                return count
            whole = failure.count if isinstance(failure, AnswerError) else None
        if isinstance(failure, RowTooLarge):
            self.found.exhausted.append((first, count))
        if failure is not None and count == 1:
            self.found.failed(first, failure, attempts_behind(failure, self._attempts))
            self._tally.settle({first: failure}, 1)
            return whole
        if isinstance(failure, AnswerError):
            return self._explained(first, count, failure)
        return self._halves(first, count, whole, too_large=isinstance(failure, RowTooLarge))

    def _tried(self, first: int, count: int, *, again: bool) -> Exception | None:
        """Make a call and take its answers in; return what went wrong instead, if it did."""
        try:
            answers = self._ask(first, count, again=again)
            if count == 1 and self._tally.distrust is not None and not answers.failures:
                return self._tally.distrust
        except AnswerError as error:
            return error
        except HeadraceError:
            raise
        except Exception as error:
            return error
        self._take(first, count, answers)
        return None

    def _halves(self, first: int, count: int, whole: int | None, *, too_large: bool = False) -> int | None:
        """Answer the rows of a call that failed, half by half; return the number of answers as `span` does."""
        half, raised = count // 2, self.found.raised
        left = self.span(first, half, part=True)
        # If the first half is sound, what made the whole fail is in the second, unless it was their number.
        sound = self.found.raised == raised and not too_large
        rest = None if whole is None or left is None else whole - left
        right = self.span(first + half, count - half, part=True, known_bad=sound, whole=rest)
        return None if left is None or right is None else left + right

    def _explained(self, first: int, count: int, miscounted: AnswerError) -> int | None:
        """Find the rows to blame for the number of answers to a call; where there are none, fail all."""
        mark, errors, whole = len(self.found.parts), len(self.found.errors), miscounted.count
        total = None
        if self._tally.distrust is None:
            total = self._halves(first, count, whole)
        if self._tally.distrust is not None:
            self._refuse(first, count, mark, miscounted)
        elif len(self.found.errors) == errors:
            return self._ask_once_more(first, count, mark, miscounted)
        elif whole is not None and total is not None and total != whole:
            self._ask_alone(mark)
        return total

    def start_anew(self) -> None:
        """Forget all that was found, as though nothing had been asked."""
        self._take_back(0)
        self.found = Found()

    def _take(self, first: int, count: int, answers: Answers) -> None:
        """Take answers in; rows in whose place an error stands that is worth another attempt are asked again alone."""
        done = 0
        for row, error in answers.failures.items():
            if count > 1 and self._attempts.worthwhile(error):
                self._take_part(first + done, row - done, answers.part(done, row))
                self.span(first + row, 1)
                done = row + 1
        self._take_part(first + done, count - done, answers.part(done, count) if done else answers)

    def _take_part(self, first: int, count: int, answers: Answers) -> None:
        if count:
            self.found.answered(first, count, answers)
            self._tally.settle({first + row: error for row, error in answers.failures.items()}, count)

    def _ask_once_more(self, first: int, count: int, mark: int, miscounted: AnswerError) -> int:
        """Make a call again whose number was wrong, although each of its rows is answered in smaller parts."""
        try:
            answers = self._ask(first, count, again=False)
        except AnswerError as error:
            self._tally.distrusted(error)
        except HeadraceError:
            raise
        except Exception:
            pass  # it says nothing about the number, which is what these rows fail for
        else:
            self._take_back(mark)
            self._take(first, count, answers)
            return count
        self._refuse(first, count, mark, miscounted)
        return miscounted.count or 0

    def _refuse(self, first: int, count: int, mark: int, miscounted: AnswerError) -> None:
        """Fail all rows of a call for whose number of answers none of them is to blame."""
        self._take_back(mark)
        error = AnswerError(
            f"{miscounted}. No row is to blame, since asked alone each is answered: the handler does not answer row by "
            "row. For a model that takes one row at a time pass batch_size=1"
        )
        for row in range(first, first + count):
            self.found.failed(row, error, 1)
        self._tally.settle(dict.fromkeys(range(first, first + count), error), count)

    def _ask_alone(self, mark: int) -> None:
        """Ask again, row by row, where the answers to the parts do not add up to those to the whole.

        Such a handler's number of answers says nothing about its rows, so that a part may have the right one by chance.
        """
        for first, count, answers in self._take_back(mark, at_least=2):
            if count == 1:
                self.found.parts.append((first, count, answers))
                continue
            for row in range(first, first + count):
                self.span(row, 1)

    def _take_back(self, mark: int, *, at_least: int = 1) -> list[tuple[int, int, Answers | None]]:
        """Take out the parts found since there were `mark` of them; those of fewer rows stay counted."""
        found = self.found
        parts = found.withdraw(mark)
        for first, count, _ in parts:
            if count >= at_least:
                errors = [found.errors.pop(row, None) for row in range(first, first + count)]
                self._tally.take_back([error for error in errors if error is not None], count)
        return parts
