"""An output that a run has claimed: nobody else writes to it, and it is known to be this job's."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from headrace.engine.commit.amendments import Amendments
from headrace.engine.commit.opening import (
    begin_afresh,
    claim_output,
    home_of,
    progress_of,
    rows_finished,
    something_finished,
)
from headrace.errors import HeadraceError, ResumeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine.commit.identity import JobIdentity
    from headrace.engine.commit.input_status import Progress
    from headrace.sinks.sink import Sink


class Claim:
    """The folder of an output with its journal, from `take` to `let_go`."""

    def __init__(
        self,
        sink: Sink,
        identity: JobIdentity,
        *,
        if_exists: Literal["resume", "overwrite", "fail"],
        dead_letters: str | None,
        retry: bool,
    ) -> None:
        self._sink, self._identity = sink, identity
        self._if_exists, self._dead_letters, self._retry = if_exists, dead_letters, retry
        self.taken = False

    def take(self) -> None:
        """Claim the output and check that it is this job's; raises before it writes.

        Raises:
            OutputExistsError: the output holds what is not this job's.
            ResumeError: the output is another job's or damaged.
            SinkError: another run writes to it.
        """
        self.home = home_of(self._sink.folder, storage_options=getattr(self._sink, "storage_options", None))
        try:
            self.home.inspect(if_exists="resume" if self._retry else self._if_exists)
            if self._retry and not self.home.has_journal:
                raise ResumeError(f"{self.home.output}: there is nothing to retry, since no job has written here")
            self.home.claim()
            self.journal = claim_output(
                self.home, self._identity, self._if_exists, self._dead_letters, retry=self._retry
            )
        except BaseException:
            self.home.release()
            raise
        self.taken = True

    def restart(self) -> None:
        """Throw away what earlier runs wrote; before anything is begun."""
        self.journal.close()
        self.journal = begin_afresh(self.home, self._identity, dead_letters=self._dead_letters, overwrite=True)

    def rows_done(self) -> int:
        """Return the rows that earlier runs finished."""
        return rows_finished(self.home, self.journal)

    def failed_splits(self) -> set[int]:
        """Return the splits with rows that a retry runs again."""
        return {row.split for row in self.journal.failed()} | {row.split for row in Amendments(self.journal).retrying()}

    def progress(self) -> Callable[[int], Progress]:
        """Return what says how far a split is, by its number."""
        return progress_of(self.journal, self.home.segments)

    def let_go(self) -> None:
        """Close the journal and let others write; an output in which nothing is finished vanishes. Raises nothing."""
        with suppress(HeadraceError):
            if not something_finished(self.home, self.journal):
                self.home.vanish()
        self.close()

    def close(self) -> None:
        """Close the journal and let others write. Raises nothing."""
        self.taken = False
        with suppress(HeadraceError):
            self.journal.close()
        self.home.release()
