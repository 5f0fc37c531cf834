"""Send statements to PostgreSQL as one transaction in one message; return the outcome that their rows or error mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import psycopg

from metastore.backends.postgres import errors
from metastore.backends.postgres.announcing import Pass
from metastore.backends.postgres.connect import AnotherRun, Pool
from metastore.backends.postgres.connection import Connection
from metastore.backends.postgres.parameters import Row, Statement
from metastore.backends.postgres.settings import AHEAD
from metastore.backends.postgres.wire import numbered
from metastore.port.commit import CommitOutcome, Conflicted, Unknown


class Sender:
    """The sender of commits.

    If a connection is found dead, neither it nor the other connections of that time are used again.

    A commit is not sent to a server that was restarted since its reads: that server may have lost what they returned.
    This counts as a conflict, so that the next attempt reads.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def one(
        self,
        statements: list[Statement],
        outcome: Callable[[Row], CommitOutcome],
        patience: int | None = None,
        run: str | None = None,
        told: Statement | None = None,
    ) -> CommitOutcome:
        """Send the statements, one of which writes; return the outcome that its row, or an error, means.

        ``run``: the run in which the commit's reads were made; None: the present run. ``told``: see ``waking.py``.
        """
        if len(statements) > 1 or told is not None:
            return self.several(statements, lambda rows: outcome(rows[0]), patience, run, told, prepared=True)
        run = run or self._pool.run
        try:
            one = statements[0]
            rows = self._pool.fetch(one.text, one.parameters, lambda c: rows_of_each(c, statements, run)[0], run)
            if len(rows) != 1:
                raise psycopg.DatabaseError(f"an answer of one row has {len(rows)}")
        except psycopg.Error as error:
            return self._failed(error, patience)
        return outcome(rows[0])

    def several(
        self,
        statements: list[Statement],
        outcome: Callable[[list[Row]], CommitOutcome],
        patience: int | None = None,
        run: str | None = None,
        told: Statement | None = None,
        *,
        prepared: bool = False,
    ) -> CommitOutcome:
        """Send the statements as one transaction; return the outcome that their rows, or an error, mean."""
        run = run or self._pool.run
        try:
            if told is not None:
                found = self._in_one_message(statements, run, told, prepared=prepared)
                return outcome([row for one, rows in zip(statements, found, strict=True) if one.writes for row in rows])
            with self._pool.connection() as connection:
                self._pool.check_run(connection, run)
                rows = rows_of_writes(connection, statements, run)
        except psycopg.Error as error:
            return self._failed(error, patience)
        return outcome(rows)

    def batch(
        self, statements: list[Statement], may: Pass, run: str | None = None, told: Statement | None = None
    ) -> list[list[Row]] | Conflicted | Unknown:
        """Send one message for many requests, with its pass if it was announced; return the rows of each statement.

        A request that loses goes with another batch, which announces its own changes. So this announcement is removed,
        even if the batch had only one request.
        """
        sent = may.around(statements, None)
        before, run = 0 if len(sent) == len(statements) else 1, run or self._pool.run
        try:
            if len(sent) == 1 and told is None:
                (one,) = sent
                return [self._pool.fetch(one.text, one.parameters, lambda c: rows_of_each(c, sent, run)[0], run)]
            rows = self._in_one_message(sent, run, told)
            return rows[before : before + len(statements)]
        except (psycopg.errors.LockNotAvailable, AnotherRun):
            return Conflicted("busy")
        except psycopg.Error as error:
            return self._failed(error)

    def _in_one_message(
        self, sent: list[Statement], run: str | None, told: Statement | None, *, prepared: bool = True
    ) -> list[list[Row]]:
        behind, pooled = told and told[:2], partial(rows_of_each, statements=sent, run=run)
        return self._pool.send([one[:2] for one in sent], pooled, run, behind, prepared=prepared)

    def _failed(self, error: psycopg.Error, patience: int | None = None) -> Conflicted | Unknown:
        if isinstance(error, AnotherRun):
            return Conflicted("serialization")
        if isinstance(error, psycopg.errors.LockNotAvailable) and patience is not None:
            return Conflicted("busy")
        outcome = errors.outcome(error)
        if isinstance(outcome, Unknown):
            self._pool.forget()
        return outcome


def attempt(pool: Pool, text: str, parameters: dict[str, Any]) -> list[Row] | Conflicted | Unknown:
    """Send a statement once; return its rows, or the outcome that its error means."""
    try:
        with pool.connection() as connection:
            return connection.execute(text, parameters).fetchall()
    except psycopg.Error as error:
        outcome = errors.outcome(error)
        if isinstance(outcome, Unknown):
            pool.forget()
        return outcome


def rows_of_writes(
    connection: psycopg.Connection[Any], statements: list[Statement], run: str | None = None
) -> list[tuple[Any, ...]]:
    """Send the statements as one transaction; return the rows of the statements that write.

    See :func:`rows_of_each`.
    """
    found = rows_of_each(connection, statements, run)
    return [row for one, rows in zip(statements, found, strict=True) if one.writes for row in rows]


def rows_of_each(
    connection: psycopg.Connection[Any], statements: list[Statement], run: str | None = None
) -> list[list[tuple[Any, ...]]]:
    """Send the statements as one transaction; return the rows of each.

    Behind a pooler, where a session may have other settings, :data:`AHEAD` is sent with them; it fails if the server's
    run is not ``run``.

    Several statements are composed completely before the first byte is sent, and sent as one message, so that the
    server never holds a lock while Python runs. (psycopg's pipeline sends each statement when it comes.)
    """
    pooled = connection.prepare_threshold is None
    if len(statements) == 1 and not statements[0].many and not cast(Connection, connection).simple:
        text, names = numbered(statements[0].text)
        parameters = [statements[0].parameters[name] for name in names]
        return [psycopg.RawCursor(connection).execute(text, parameters).fetchall()]
    composer = psycopg.ClientCursor(connection)
    # the server accepts SET TRANSACTION only before the first query
    first = 1 if statements[0].text.startswith("SET TRANSACTION") else 0
    sent = [*statements[:first], Statement(AHEAD, {"run": run}), *statements[first:]] if pooled else statements
    message = ";\n".join([composer.mogrify(s.text, s.parameters) for s in sent])
    cursor = connection.execute(message.encode(), prepare=False)
    rows = []
    for _ in sent:
        rows.append(cursor.fetchall() if cursor.description is not None else [])
        cursor.nextset()
    return [*rows[:first], *rows[first + 1 :]] if pooled else rows
