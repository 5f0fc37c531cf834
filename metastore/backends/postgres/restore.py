"""Restore into an empty PostgreSQL database by COPY directly into the tables.

Each step is a transaction of several round trips, which keeps its rows locked. As in a migration, no other client may
use the database meanwhile. But a program that caches under a lease may have it open, so each step is announced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from metastore.backends.postgres.announcing import Announcing, Pass, Unannounced
from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.fragments import DURABLE, UNANNOUNCED, WRITER
from metastore.backends.postgres.members import ANNOUNCED, WITHDRAW
from metastore.backends.postgres.read_errors import raise_read_error
from metastore.backends.postgres.settings import LASTING
from metastore.backends.sql.newest import COMPLETE_NEWEST
from metastore.errors import InvalidArgument
from metastore.port.conditions import ROOT_ID
from metastore.port.format import RESTORING
from metastore.port.members import Covered
from metastore.port.restore import (
    NEVER,
    Ending,
    Row,
    Rows,
    Under,
    mark_of,
    raise_not_empty,
    raise_taken,
    required,
    stored,
    under_way,
)

# each entity, and each owner of rows, has a guard
_EMPTY = "SELECT NOT EXISTS (SELECT FROM guard WHERE id <> 0) AND NOT EXISTS (SELECT FROM operation)"
_MARK = "UPDATE guard SET mark = %s, marked_at = 0, marked_until = %s WHERE id = 0"
_UNMARK = "UPDATE guard SET mark = NULL, marked_at = NULL, marked_until = NULL WHERE id = 0"
_DRAW = "SELECT setval(%s, %s) WHERE %s > (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {})"
_EVERYTHING = Covered(scopes=frozenset([ROOT_ID]))
_SOME_UNAWARE = """SELECT EXISTS (SELECT FROM cache_member
  LEFT JOIN cache_announcement a ON a.id = %(announcement)s::bigint
  WHERE pg_visible_in_snapshot(a.xid::text::xid8, seen::pg_snapshot) IS NOT TRUE)"""
"""Read when the transaction has its id: a member that joins later keeps nothing until the transaction is over."""


class PostgresRestorer:
    """The implementation of :class:`metastore.port.restore.Restorer` on PostgreSQL."""

    def __init__(self, pool: Pool, announcing: Announcing) -> None:
        self._pool, self._announcing = pool, announcing

    def begin(self, token: str, last_id: int, last_seq: int) -> int:
        with self._transaction() as connection:
            there = _under_way(connection)
            if there is not None:
                return there.mark if there.token == token else raise_taken()
            # wait for commits in flight that create below the root; the next statement has a new snapshot
            connection.execute("SELECT 1 FROM guard WHERE id = 0 FOR UPDATE")
            ((empty,),) = connection.execute(_EMPTY).fetchall()
            if not empty:
                raise_not_empty()
            ((compatible_from,),) = connection.execute("SELECT compatible_from FROM info").fetchall()
            connection.execute(_MARK, (mark_of(token), NEVER))
            values = (str(Under(token, 0, compatible_from)), RESTORING)
            connection.execute("UPDATE info SET epoch = %s, compatible_from = %s", values)
            for sequence, last in (("entity_id_seq", last_id), ("change_seq", last_seq)):
                connection.execute(_DRAW.format(sequence), (sequence, last, last))
        return 0

    def write(self, token: str, last: int, mark: int, rows: Rows) -> None:
        def step(connection: psycopg.Connection[Any]) -> None:
            there = required(_under_way(connection), token, last)  # first: another process may have written these rows
            for table, some in rows.items():
                _copy(connection, table, some)
            connection.execute("UPDATE info SET epoch = %s", (str(there._replace(mark=mark)),))

        self._announced(step)

    def finish(self, token: str, last: int, ending: Ending) -> None:
        def step(connection: psycopg.Connection[Any]) -> None:
            there = required(_under_way(connection), token, last)
            _copy(connection, "guard", ending.top)
            connection.execute(_UNMARK)
            connection.execute(
                f"""UPDATE info SET writer = {WRITER}, epoch = %s, compatible_from = %s, collected_seq = %s,
                forgotten = %s""",
                (ending.epoch, there.compatible_from, ending.collected_seq, ending.forgotten),
            )
            for statement in COMPLETE_NEWEST:
                connection.execute(statement)

        self._announced(step)

    def _announced(self, step: Callable[[psycopg.Connection[Any]], None]) -> None:
        """Do one step, after announcing it to the members of the cache."""

        def send(may: Pass) -> None:
            announcement = {"announcement": may.announcement}
            with self._transaction() as connection:
                connection.execute(ANNOUNCED, announcement)
                step(connection)
                if connection.execute(_SOME_UNAWARE, announcement).fetchall() != [(False,)]:
                    raise Unannounced
                connection.execute(WITHDRAW, {**announcement, "left": [], "again": None})

        self._announcing.send(send, lambda: _EVERYTHING, tuple)

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            with self._pool.connection() as connection, connection.transaction():
                connection.execute(f"SELECT {DURABLE}")
                connection.execute(LASTING)
                yield connection
        except psycopg.errors.UniqueViolation as error:
            raise InvalidArgument(
                f"the file is damaged: two of its rows have the same key ({error.diag.constraint_name}); export again"
            ) from None
        except psycopg.Error as error:
            if error.sqlstate == UNANNOUNCED:
                raise Unannounced from None
            raise_read_error(error)


def _copy(connection: psycopg.Connection[Any], table: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    columns, values = stored(table, rows)
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in values:
            copy.write_row(row)


def _under_way(connection: psycopg.Connection[Any]) -> Under | None:
    (row,) = connection.execute("SELECT epoch, compatible_from FROM info FOR UPDATE").fetchall()
    return under_way(*row)
