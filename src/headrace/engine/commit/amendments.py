"""What happens to an output after its job has finished, in its journal: retries of failed rows, and compactions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.engine.commit.retrying import Answered, RetriedRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.engine.commit.entries import LettersRecord, PartRecord
    from headrace.engine.commit.identity import JobIdentity
    from headrace.engine.commit.journal import Journal


class Amendments:
    """The part of a journal that only retries and compactions write. Thread-safe."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._file = journal, journal.file

    # -- retries -------------------------------------------------------------------------------------------------------

    @property
    def retry_begun(self) -> bool:
        """Whether a retry of failed rows has begun and is not finished."""
        return self._file.meta("retry") == "begun"

    def retrying(self) -> list[RetriedRow]:
        """Return the rows of the retry that has begun."""
        query = "select split, ordinal, place, attempt from retrying order by split, ordinal"
        found = self._file.select(query)
        return [RetriedRow(split=s, ordinal=o, place=p, attempt=a) for s, o, p, a in found]

    def begin_retry(self, rows: Sequence[RetriedRow]) -> None:
        """Begin to run failed rows again: from here on they count as not done."""
        with self._file.transaction(durable=True) as db:
            db.executemany(
                "insert into retrying values (?, ?, ?, ?)", [(r.split, r.ordinal, r.place, r.attempt) for r in rows]
            )
            chosen = "exists (select 1 from retrying r where r.split = f.split and r.ordinal = f.ordinal)"
            db.execute(
                "update letters set (rows, solved) = (select letters.rows - count(*), letters.solved + count(*) from"
                f" failed f where f.letters = letters.number and f.line is not null and {chosen})"
            )
            db.execute(f"insert into shelved select * from failed f where {chosen}")
            db.execute(f"delete from failed as f where {chosen}")
            db.execute("delete from meta where key = 'frontier'")
            before = (
                "insert or replace into meta select 'identity before retry', value from meta where key = 'identity'"
            )
            db.execute(before)
            self._file.set_meta("state", "unfinished")
            self._file.set_meta("retry", "begun")

    def abandon_retry(self) -> int:
        """Let the rows of a retry that it has not come to be failed as they were; return how many.

        Where it has answered none, the job is the one it was before.
        """
        same = "{0}.split = s.split and {0}.ordinal = s.ordinal"
        answered, again = (
            f"exists (select 1 from {name} t where {same.format('t')})" for name in ("answered", "failed")
        )
        columns = "letters, line, split, ordinal, place, stage, attempt, siblings"
        with self._file.transaction(durable=True) as db:
            answers = db.execute(f"select count(*) from shelved s where {answered}").fetchone()[0]
            db.execute(f"delete from shelved as s where {answered} or {again}")
            waiting = "(select count(*) from shelved s where s.letters = letters.number and s.line is not null)"
            db.execute(f"update letters set (rows, solved) = (select rows + {waiting}, solved - {waiting})")
            db.execute(f"insert into failed ({columns}) select {columns} from shelved order by id")
            left = int(db.execute("select count(*) from shelved").fetchone()[0])
            for table in ("shelved", "retrying"):
                db.execute(f"delete from {table}")
            if not answers:
                db.execute(
                    "update meta set value = (select value from meta where key = 'identity before retry')"
                    " where key = 'identity'"
                )
        return left

    def go_on_as(self, identity: JobIdentity) -> None:
        """Note that the functions and models of a job are others from here on."""
        with self._file.transaction():
            self._file.set_meta("identity", json.dumps([identity.components, identity.unknown]))

    def lines_kept(self, letters: int) -> list[int]:
        """Return the lines of a file of dead letters whose rows are still failed."""
        query = "select line from failed where letters = ? order by line"
        return [line for (line,) in self._file.select(query, letters)]

    def finish_retry(self, replaced: Mapping[int, LettersRecord | None]) -> None:
        """Note that a retry is done; `replaced` says what stands in place of files whose letters are solved in part."""
        with self._file.transaction(durable=True) as db:
            for number, record in replaced.items():
                if record is not None:
                    kept = db.execute("select line from failed where letters = ? order by line", (number,))
                    moved = [(record.number, line, number, old) for line, (old,) in enumerate(kept.fetchall())]
                    self._journal.add_letters(db, record)
                    db.executemany("update failed set letters = ?, line = ? where letters = ? and line = ?", moved)
                db.execute("update letters set rows = 0, dropped = 1 where number = ?", (number,))
            db.execute("delete from retrying")
            db.execute("delete from shelved")
            self._file.set_meta("retry", "finished")
            self._file.set_meta("state", "finished")

    def forget_dropped(self) -> None:
        """Note that the files of dead letters that were to be removed are gone."""
        with self._file.transaction() as db:
            db.execute("delete from letters where dropped")

    # -- compaction ----------------------------------------------------------------------------------------------------

    def answered(self) -> list[tuple[int, Answered]]:
        """Return where the rows of retries belong, each with the number of its part."""
        query = "select part, row, rows, split, ordinal, place from answered order by part, row"
        found = self._file.select(query)
        return [
            (part, Answered(row=row, rows=rows, split=split, ordinal=ordinal, place=place))
            for part, row, rows, split, ordinal, place in found
        ]

    def replace_parts(self, parts: Sequence[PartRecord], *, places: Sequence[int]) -> None:
        """Let other parts, with the same rows in the order of the input, be the output.

        `places` are those of the failed rows, as `failed()` gives them.
        """
        with self._file.transaction(durable=True) as db:
            db.execute("insert or ignore into replaced select receipt from parts")
            db.execute("delete from parts")
            db.execute("delete from answered")
            for part in parts:
                self._journal.add_part(db, part)
            ids = [id_ for (id_,) in db.execute("select id from failed order by id").fetchall()]
            db.executemany(
                "update failed set place = ? where id = ?", [(p, i) for p, i in zip(places, ids, strict=True)]
            )

    def replaced(self) -> list[str]:
        """Return the receipts of parts whose files have to go, but for those whose names other parts took over."""
        return [receipt for (receipt,) in self._file.select("select receipt from replaced")]

    def forget_replaced(self) -> None:
        """Note that the files of replaced parts are gone."""
        with self._file.transaction() as db:
            db.execute("delete from replaced")
