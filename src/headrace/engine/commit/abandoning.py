"""Abandoning: a retry that was stopped is given up, and the rows that it had not come to are failed as they were."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from headrace.engine.commit.amendments import Amendments
from headrace.engine.commit.opening import check_parts, home_of, letters_of, settle
from headrace.engine.commit.publisher import Publisher
from headrace.errors import ResumeError

if TYPE_CHECKING:
    from headrace.sinks.sink import Sink


def abandon_retry(sink: Sink) -> int:
    """Give up a retry that has begun; return how many rows wait for another one.

    Rows that it has answered, or that have failed again in it, stay as they are. Idempotent up to its last step: what
    dies in between leaves a retry that has begun, with fewer rows or none.

    Raises:
        ResumeError: no retry has begun there, or parts have been changed.
        SinkError: the output cannot be written.
    """
    home = home_of(sink.folder, storage_options=getattr(sink, "storage_options", None))
    try:
        home.inspect(if_exists="resume")
        if not home.has_journal:
            raise ResumeError(f"{home.output}: there is no retry to give up, since no job has written here")
        home.claim()
        with closing(home.open_journal()) as journal:
            if not Amendments(journal).retry_begun:
                raise ResumeError(f"{home.output}: there is no retry to give up; none has begun, or it is finished")
            letters = letters_of(home, journal, None, "json", retries=True)
            settle(sink, home, journal, letters)
            check_parts(home, journal)
            home.clear_staging()
            left = Amendments(journal).abandon_retry()
            Publisher(sink, home, journal, letters, retries=True).finish_retry()
            home.clear_segments()
            return left
    finally:
        home.release()
