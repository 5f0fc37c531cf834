"""The hot statements on the wire: prepared once for each connection, then sent without psycopg's cursor.

A cursor parses the statement, looks for each parameter's type and counts executions at each call. That takes longer
than libpq itself. Here a statement is prepared at its third execution. Parameters are sent as text, because each has
a cast in the statement; results come in binary form. psycopg waits, as for a cursor: so a deadline holds here too.

Only for sessions that keep prepared statements. Behind a pooler, statements go the way of all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence, Sized
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many
from psycopg.pq import ExecStatus, Format

from metastore.backends.postgres.connection import Connection

__all__ = ["Wire", "numbered"]

_NAMED = re.compile(r"%\((\w+)\)s")
_BEFORE = 2
"""How often a statement is executed before it is prepared."""
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


@cache
def numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with numbered parameters, and their names; psycopg parses long ones again at each call."""
    numbers: dict[str, int] = {}
    rewritten = _NAMED.sub(lambda name: f"${numbers.setdefault(name[1], len(numbers) + 1)}", text)
    return rewritten.replace("%%", "%"), tuple(numbers)


class Wire:
    """The prepared statements of one connection."""

    def __init__(self, connection: Connection) -> None:
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
        values = [_text(parameters[name]) for name in names]
        if prepared is not None:
            try:
                return self._executed(prepared, values)
            except psycopg.errors.InvalidSqlStatementName:  # psycopg deallocates all statements after a rollback
                self._names.clear()
        return self._executed(self._prepared(text, statement), values)

    def message(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run statements as one transaction, in one message; return the rows of each. Raises psycopg.Error."""
        wanted = [(text, *numbered(text)) for text, _ in statements]
        values = [
            [_text(parameters[name]) for name in names]
            for (_, parameters), (_, _, names) in zip(statements, wanted, strict=True)
        ]
        try:
            return self._piped([(text, statement) for text, statement, _ in wanted], values)
        except psycopg.errors.InvalidSqlStatementName:  # see rows()
            self._names.clear()
            return self._piped([(text, statement) for text, statement, _ in wanted], values)

    def _piped(
        self, texts: Sequence[tuple[str, str]], values: Sequence[list[bytes | None]]
    ) -> list[list[tuple[Any, ...]]]:
        """Send all of it before the first answer is read. What is not prepared yet is prepared in the same message."""
        pgconn = self._connection.pgconn
        answers = list[bool]()

        def send() -> None:
            for (text, statement), sent in zip(texts, values, strict=True):
                prepared = self._names.get(text)
                if prepared is None:
                    prepared = self._names[text] = b"metastore_%d" % next(self._numbers)
                    pgconn.send_prepare(prepared, statement.encode())
                    answers.append(False)
                pgconn.send_query_prepared(prepared, sent, result_format=Format.BINARY)
                answers.append(True)
            pgconn.pipeline_sync()

        pgconn.enter_pipeline_mode()
        try:
            results = self._connection.wait(_answers(pgconn, send, answers))
        finally:
            with suppress(psycopg.Error):  # an answer is missing: the pool throws the connection away
                pgconn.exit_pipeline_mode()
        failed = next((result for result in results if result.status not in _DONE), None)
        if failed is not None:
            for text, _ in texts:  # the server may not have come to those behind it
                self._names.pop(text, None)
            raise error_from_result(failed, "utf-8")
        return [self._loaded(result) for result, counts in zip(results, answers, strict=True) if counts]

    def _prepared(self, text: str, statement: str) -> bytes:
        """Prepare a statement; return its name, which no other had in this session."""
        name = b"metastore_%d" % next(self._numbers)
        self._result(lambda pgconn: pgconn.send_prepare(name, statement.encode()))
        self._names[text] = name
        return name

    def _executed(self, prepared: bytes, values: list[bytes | None]) -> list[tuple[Any, ...]]:
        return self._loaded(
            self._result(lambda pgconn: pgconn.send_query_prepared(prepared, values, result_format=Format.BINARY))
        )

    def _loaded(self, result: Any) -> list[tuple[Any, ...]]:
        transformer = self._transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def _is_frequent(self, text: str) -> bool:
        """Whether a statement is worth the round trip that prepares it."""
        self._executions[text] += 1
        return self._executions[text] > _BEFORE

    def _result(self, send: Callable[[Any], None]) -> Any:
        result = self._connection.wait(_sent(self._connection.pgconn, send))[-1]
        if result.status not in _DONE:
            raise error_from_result(result, "utf-8")
        return result


def _sent(pgconn: Any, send: Callable[[Any], None]) -> Generator[Any, Any, list[Any]]:
    """Send one request, and wait for its results. It sends nothing before the first step: that may come too late."""
    send(pgconn)
    results: list[Any] = yield from execute(pgconn)
    return results


def _answers(pgconn: Any, send: Callable[[], None], requests: Sized) -> Generator[Any, Any, list[Any]]:
    """Send; return the last result of each of the ``requests`` that this makes, without the one of the sync."""
    send()
    found = [(yield from execute(pgconn))]
    while len(found) <= len(requests):
        found += [(yield from fetch_many(pgconn))]
    return [results[-1] for results in found[: len(requests)]]


def _text(value: object) -> bytes | None:
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
    return _text(str(value))
