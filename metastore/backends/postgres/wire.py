"""The hot statements on the wire: prepared once for each connection, then sent without psycopg's cursor.

A cursor parses the statement, looks for each parameter's type and counts executions at each call. That takes longer
than libpq itself. Here a statement is prepared at its third execution. Parameters are sent as text, because each has
a cast in the statement; results come in binary form. psycopg waits, as for a cursor: so a deadline holds here too.

Only for sessions that keep prepared statements. Behind a pooler, statements go the way of all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format

__all__ = ["Wire", "numbered"]

_NAMED = re.compile(r"%\((\w+)\)s")
_BEFORE = 2
"""How often a statement is executed before it is prepared."""
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


@cache
def numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with numbered parameters, and their names; psycopg parses long ones again at each call."""
    numbers: dict[str, int] = {}
    found = _NAMED.sub(lambda name: f"${numbers.setdefault(name[1], len(numbers) + 1)}", text)
    return found.replace("%%", "%"), tuple(numbers)


class Wire:
    """The prepared statements of one connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._names: dict[str, bytes] = {}
        self._numbers = count()
        self._executions: Counter[str] = Counter()
        self._transformer = Transformer(connection)

    def rows(self, text: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement, a transaction of its own; return its rows. Raises psycopg.Error."""
        prepared = self._names.get(text)
        if prepared is None and not self._is_frequent(text):
            return self._connection.execute(text, parameters, prepare=False).fetchall()
        statement, names = numbered(text)
        values = [_sent(parameters[name]) for name in names]
        if prepared is not None:
            try:
                return self._executed(prepared, values)
            except psycopg.errors.InvalidSqlStatementName:  # psycopg deallocates all statements after a rollback
                self._names.clear()
        return self._executed(self._prepared(text, statement), values)

    def _prepared(self, text: str, statement: str) -> bytes:
        """Prepare a statement; return its name, which no other had in this session."""
        name = b"metastore_%d" % next(self._numbers)
        self._connection.pgconn.send_prepare(name, statement.encode())
        self._result()
        self._names[text] = name
        return name

    def _executed(self, prepared: bytes, values: list[bytes | None]) -> list[tuple[Any, ...]]:
        self._connection.pgconn.send_query_prepared(prepared, values, result_format=Format.BINARY)
        result = self._result()
        transformer = self._transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def _is_frequent(self, text: str) -> bool:
        """Whether a statement is worth the round trip that prepares it."""
        self._executions[text] += 1
        return self._executions[text] > _BEFORE

    def _result(self) -> Any:
        result = self._connection.wait(execute(self._connection.pgconn))[-1]
        if result.status not in _DONE:
            raise error_from_result(result, "utf-8")
        return result


def _sent(value: object) -> bytes | None:
    """Return a parameter as text."""
    if value is None:
        return None
    if type(value) is str:
        sent = value.encode()
        if b"\x00" in sent:  # libpq would send what stands before it
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return sent
    if type(value) is int:
        return b"%d" % value
    if type(value) is UUID:  # its str() takes four times as long
        return b"%032x" % value.int
    if value is True or value is False:
        return b"true" if value else b"false"
    return _sent(str(value))
