"""Send the hot statements without psycopg's cursor, prepared once for each connection.

At each call, a cursor parses the statement, looks up each parameter's type, and counts executions. That takes longer
than libpq itself. Here a statement is prepared at its third execution. Parameters are sent as text, because the
statement casts each. psycopg waits, as for a cursor, so a deadline holds here too.

One statement uses the extended protocol, which is the fastest. Several are sent as one simple query that executes
prepared statements, because the server reads all of it before it begins. With the extended protocol, it would execute
the first statement while the client still sends the last one. A client that stopped in between would keep its locks.

Only sessions that keep prepared statements use this. Behind a pooler, psycopg's cursor sends the statements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format, TransactionStatus

from metastore.backends.postgres.connection import Connection

_NAMED = re.compile(r"%\((\w+)\)s")
_BEFORE = 2
"""How often a statement is executed before it is prepared."""
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


@cache
def numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with numbered parameters, and their names; psycopg would parse a long one at each call."""
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
        """Run one statement in its own transaction; return its rows. Raises psycopg.Error."""
        prepared = self._names.get(text)
        if prepared is None and not self._is_frequent(text):
            return self._connection.execute(text, parameters, prepare=False).fetchall()
        if self._connection.simple:
            return self.message([(text, parameters)])[0]
        statement, names = numbered(text)
        values = _texts(parameters, names)
        if prepared is not None:
            try:
                return self._executed(prepared, values)
            except psycopg.errors.InvalidSqlStatementName:  # psycopg has deallocated all statements, after a rollback
                self._names.clear()
        return self._executed(self._prepared(text, statement), values)

    def message(
        self, statements: Sequence[tuple[str, Mapping[str, Any]]], *, behind: bool = False
    ) -> list[list[tuple[Any, ...]]]:
        """Run statements as one transaction, in one message; return the rows of each. Raises psycopg.Error.

        ``behind``: the last one has its own transaction. If only that one fails, its rows are missing.
        """
        texts = [text for text, _ in statements]
        arguments = [_literals(_texts(given, numbered(text)[1])) for text, given in statements]
        try:
            return self._in_one(texts, arguments, behind)
        except psycopg.errors.InvalidSqlStatementName:  # see rows()
            self._names.clear()
            return self._in_one(texts, arguments, behind)

    def _in_one(self, texts: Sequence[str], arguments: Sequence[bytes], behind: bool) -> list[list[tuple[Any, ...]]]:
        """Send one simple query. The message first prepares the statements that are not prepared yet.

        A failure undoes the executed statements, but not the preparations, so these are remembered.
        """
        new = {text: b"metastore_%d" % next(self._numbers) for text in dict.fromkeys(texts) if text not in self._names}
        names = {**self._names, **new}
        executes = [b"EXECUTE %b%b" % (names[text], sent) for text, sent in zip(texts, arguments, strict=True)]
        return self._answers(new, executes, behind)

    def composed(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run statements that are not worth preparing, as :meth:`message` does with ``behind``."""
        composer = psycopg.ClientCursor(self._connection)
        return self._answers({}, [composer.mogrify(*one).encode() for one in statements], behind=True)

    def _answers(self, new: Mapping[str, bytes], executes: list[bytes], behind: bool) -> list[list[tuple[Any, ...]]]:
        """Prepare the ``new`` statements, by these names, and execute; return the rows of each that is executed."""
        prepares = [b"PREPARE %b AS %b" % (name, numbered(text)[0].encode()) for text, name in new.items()]
        count = len(executes)
        if behind:
            executes = [b"BEGIN", *executes[:-1], b"COMMIT", executes[-1]]
        results = self._results(b";\n".join([*prepares, *executes]))
        done = [result for result in results if result.status in _DONE]
        self._names.update(list(new.items())[: len(done)])
        committed = behind and len(done) >= len(prepares) + len(executes) - 1
        if len(done) < len(results) and not committed:
            error = error_from_result(results[-1], "utf-8")
            if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
                with suppress(psycopg.Error):  # if the ROLLBACK fails, the pool closes the connection
                    self._results(b"ROLLBACK")
            raise error
        if len(done) != len(prepares) + len(executes) and not committed:
            raise psycopg.DatabaseError(f"{len(done)} results for {len(prepares) + len(executes)} statements")
        if len(done) < len(results) and self._connection.pgconn.transaction_status != TransactionStatus.IDLE:
            self._connection.stopped = True  # the session ended after the commit, so do not lend the connection again
        found = done[len(prepares) :]
        if behind:
            found = [*found[1:count], *found[count + 1 :]]
        return [self._loaded(result) for result in found]

    def _results(self, message: bytes) -> list[Any]:
        return self._connection.wait(_sent(self._connection.pgconn, lambda pgconn: pgconn.send_query(message)))

    def _prepared(self, text: str, statement: str) -> bytes:
        """Prepare a statement; return its name, which was not used before in this session."""
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
        """Whether a statement is used often enough to be worth the round trip that prepares it."""
        self._executions[text] += 1
        return self._executions[text] > _BEFORE

    def _result(self, send: Callable[[Any], None]) -> Any:
        (*_, result) = self._connection.wait(_sent(self._connection.pgconn, send))
        if result.status not in _DONE:
            raise error_from_result(result, "utf-8")
        return result


def _sent(pgconn: Any, send: Callable[[Any], None]) -> Generator[Any, Any, list[Any]]:
    """Send one request, and wait for its results. It sends nothing before the first step, so the deadline may pass."""
    send(pgconn)
    results: list[Any] = yield from execute(pgconn)
    if not results:
        raise psycopg.DatabaseError("an answer without a result")
    return results


def _literals(values: Sequence[bytes | None]) -> bytes:
    """Return the arguments of EXECUTE. The session's settings let a backslash in a literal be a backslash."""
    if not values:
        return b""
    literals = [b"NULL" if value is None else b"'%b'" % value.replace(b"'", b"''") for value in values]
    return b"(%b)" % b", ".join(literals)


def _texts(parameters: Mapping[str, Any], names: Sequence[str]) -> list[bytes | None]:
    """Return parameters as text. One loop, with the usual types first, because each statement has about 15."""
    texts: list[bytes | None] = []
    for name in names:
        value = parameters[name]
        kind = type(value)
        if value is None:
            texts.append(None)
        elif kind is int:
            texts.append(b"%d" % value)
        elif kind is UUID:  # str() of a UUID takes four times as long
            texts.append(b"%032x" % value.int)
        elif kind is bool:
            texts.append(b"true" if value else b"false")
        else:
            sent = str(value).encode()
            if b"\x00" in sent:  # libpq would send only the part before the NUL
                raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
            texts.append(sent)
    return texts
