"""Data keys on SQLite: :mod:`metastore.port.secret_keys`, with each change in a writing transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metastore.backends.sql.dialect import Fetch
from metastore.backends.sqlite.connect import DRIVER, Pool, raise_read_error
from metastore.backends.sqlite.group import Written, wrote
from metastore.port.secret_keys import KeyRow, Redaction
from metastore.retry.classify import Consequence, of_sqlite

_ROWS = "SELECT number, wrapped, wrapper, created_at FROM secret_key"
_REDACT = """UPDATE operation SET doc = ?, changes = ?, result = ?
  WHERE operation_id = ? AND ordinal = ? AND doc IS ? AND changes IS ? AND result IS ?"""


class SqliteSecretKeys:
    """The implementation of :class:`metastore.port.secret_keys.SecretKeys`."""

    def __init__(self, pool: Pool, written: Written, fetch: Fetch) -> None:
        self._pool, self._written, self._fetch = pool, written, fetch

    def rows(self) -> list[KeyRow]:
        return [KeyRow(*row) for row in self._fetch(f"{_ROWS} ORDER BY number", {})]

    def add(self, number: int, wrapped: str, wrapper: str) -> KeyRow:
        def insert(connection: Any, now: int) -> KeyRow:
            sql = """INSERT INTO secret_key (number, wrapped, wrapper, created_at) VALUES (?, ?, ?, ?)
            ON CONFLICT (number) DO NOTHING"""
            connection.execute(sql, (number, wrapped, wrapper, now))
            (row,) = connection.execute(f"{_ROWS} WHERE number = ?", (number,)).fetchall()
            return KeyRow(*row)

        return self._written(insert)

    def rewrap(self, row: KeyRow, wrapped: str | None, wrapper: str) -> bool:
        sql = """UPDATE secret_key SET wrapped = :wrapped, wrapper = :wrapper
          WHERE number = :number AND wrapped IS :before RETURNING 1"""
        values = {"number": row.number, "wrapped": wrapped, "wrapper": wrapper, "before": row.wrapped}
        return wrote(self._written, sql, **values)

    def redact(self, rows: Sequence[Redaction]) -> int:
        def change(connection: Any, _: int) -> int:
            done = 0
            for row in rows:
                values = (row.doc, row.changes, row.result, str(row.operation_id), row.ordinal, *row.before)
                done += connection.execute(_REDACT, values).rowcount
            return done

        return self._written(change)

    def erase(self) -> bool:
        """Rewrite the file without its free space, and empty the log, because both still have earlier rows.

        A process that reads at an earlier instant, or that writes for too long, prevents this.
        """
        try:
            with self._pool.connection() as connection:
                connection.execute("VACUUM")
                ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except DRIVER.Error as error:
            if of_sqlite(getattr(error, "sqlite_errorcode", None)) is Consequence.RETRY:
                return False
            raise_read_error(error)
        return not busy
