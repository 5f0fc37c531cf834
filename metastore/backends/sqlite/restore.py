"""Restore into an empty SQLite database; each step is one writing transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metastore.backends.sql.newest import COMPLETE_NEWEST
from metastore.backends.sqlite.connect import DRIVER
from metastore.backends.sqlite.group import Written
from metastore.errors import InvalidArgument
from metastore.port.format import RESTORING, SCHEMA_FORMAT
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

_MARK = "UPDATE guard SET mark = ?, marked_at = 0, marked_until = ? WHERE id = 0"
_UNMARK = "UPDATE guard SET mark = NULL, marked_at = NULL, marked_until = NULL WHERE id = 0"
# each entity, and each owner of rows, has a guard
_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM guard WHERE id <> 0) AND NOT EXISTS (SELECT 1 FROM operation)"


class SqliteRestorer:
    """The implementation of :class:`metastore.port.restore.Restorer` on SQLite."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def begin(self, token: str, last_id: int, last_seq: int) -> int:
        def work(connection: Any, _: int) -> int:
            there = _under_way(connection)
            if there is not None:
                return there.mark if there.token == token else raise_taken()
            if not connection.execute(_EMPTY).fetchone()[0]:
                raise_not_empty()
            ((compatible_from,),) = connection.execute("SELECT compatible_from FROM info").fetchall()
            connection.execute(_MARK, (str(mark_of(token)), NEVER))
            connection.execute(
                """UPDATE info SET epoch = ?, compatible_from = ?, last_id = max(last_id, ?),
                last_seq = max(last_seq, ?)""",
                (str(Under(token, 0, compatible_from)), RESTORING, last_id, last_seq),
            )
            return 0

        lines: int = self._done(work)
        return lines

    def write(self, token: str, last: int, mark: int, rows: Rows) -> None:
        def work(connection: Any, _: int) -> None:
            there = required(_under_way(connection), token, last)
            for table, some in rows.items():
                _insert(connection, table, some)
            connection.execute("UPDATE info SET epoch = ?", (str(there._replace(mark=mark)),))

        self._done(work)

    def finish(self, token: str, last: int, ending: Ending) -> None:
        def work(connection: Any, _: int) -> None:
            there = required(_under_way(connection), token, last)
            _insert(connection, "guard", ending.top)
            connection.execute(_UNMARK)
            connection.execute(
                f"""UPDATE info SET writer = {SCHEMA_FORMAT}, epoch = ?, compatible_from = ?, collected_seq = ?,
                forgotten = ?""",
                (ending.epoch, there.compatible_from, ending.collected_seq, ending.forgotten),
            )
            for statement in COMPLETE_NEWEST:
                connection.execute(statement)

        self._done(work)

    def _done(self, work: Callable[[Any, int], Any]) -> Any:
        try:
            return self._written(work)
        except DRIVER.IntegrityError as error:
            raise InvalidArgument(
                f"the file is damaged: two of its rows have the same key ({error}); export again"
            ) from None


def _insert(connection: Any, table: str, rows: Sequence[Row]) -> None:
    columns, values = stored(table, rows)
    text = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    connection.executemany(text, values)


def _under_way(connection: Any) -> Under | None:
    return under_way(*connection.execute("SELECT epoch, compatible_from FROM info").fetchone())
