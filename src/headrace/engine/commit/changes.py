"""Which rows of an SQLite database changed, as plain data with which a copy elsewhere can follow."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

Changes: TypeAlias = dict[str, dict[str, list[list[Any]]]]
"""By table: rows that are there now ("put"), and keys of rows that are gone ("gone"); all of it JSON."""


class ChangeLog:
    """Notes the keys of rows as they change; taking the changes and whatever made them belong in one transaction.

    >>> import sqlite3
    >>> db = sqlite3.connect(":memory:", isolation_level=None)
    >>> _ = db.execute("create table parts (number integer primary key, rows integer)")
    >>> log = ChangeLog(db)
    >>> _ = db.execute("insert into parts values (0, 10), (1, 20)"), db.execute("delete from parts where number = 1")
    >>> log.take()
    {'parts': {'put': [[0, 10]], 'gone': [[1]]}}
    >>> log.take()
    {}
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.execute("create temp table changed (name text, key text, primary key (name, key)) without rowid")
        self._keys = keys_of(db)
        for name, key in self._keys.items():
            for event, row in (("insert", "new"), ("update", "new"), ("delete", "old")):
                values = f"json_array({', '.join(f'{row}.{column}' for column in key)})"
                # Not "insert or ignore": inside a trigger the outer statement's conflict clause would hold.
                db.execute(
                    f"create temp trigger {name}_{event} after {event} on main.{name} begin"
                    f" delete from changed where name = '{name}' and key = {values};"
                    f" insert into changed values ('{name}', {values}); end"
                )

    def take(self) -> Changes:
        """Return what changed since it was last asked, and forget it."""
        changes: Changes = {}
        for name, text in self._db.execute("select name, key from changed").fetchall():
            key = json.loads(text)
            row = self._db.execute(f"select * from {name} where {_where(self._keys[name])}", key).fetchone()
            of_table = changes.setdefault(name, {"put": [], "gone": []})
            if row is None:
                of_table["gone"].append(key)
            else:
                of_table["put"].append([_plain(cell) for cell in row])
        self._db.execute("delete from changed")
        return changes


def apply(db: sqlite3.Connection, changes: Changes) -> None:
    """Make the changes in another database with the same tables.

    Raises:
        ValueError: they are for a table that is not there.
    """
    keys = keys_of(db)
    for name, of_table in changes.items():
        if name not in keys:
            raise ValueError(f"there is no table {name!r}")
        db.executemany(f"delete from {name} where {_where(keys[name])}", of_table["gone"])
        for row in of_table["put"]:
            marks = ", ".join("?" * len(row))
            db.execute(f"insert or replace into {name} values ({marks})", [_cell(cell) for cell in row])


def keys_of(db: sqlite3.Connection) -> dict[str, Sequence[str]]:
    """Return the columns of the primary key of every table."""
    names = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'").fetchall()]
    found: dict[str, Sequence[str]] = {}
    for name in names:
        columns = db.execute(f"select name, pk from pragma_table_info('{name}') where pk > 0 order by pk").fetchall()
        found[name] = [column for column, _ in columns]
    return found


def _where(key: Sequence[str]) -> str:
    return " and ".join(f"{column} = ?" for column in key)


def _plain(cell: Any) -> Any:
    return {"base64": base64.b64encode(cell).decode()} if isinstance(cell, bytes) else cell


def _cell(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value
