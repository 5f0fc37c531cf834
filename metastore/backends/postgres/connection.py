"""A connection to PostgreSQL whose waits end with the call.

A wait ends at the instant that :func:`metastore.deadlines.until` has set, or else after the store's timeout. Then the
server is asked to stop the statement, and has a moment to report the outcome. Only if the server does not answer, the
outcome of a commit is unknown. Looking up a host name has no deadline.

An answer counts only if no notice or parameter that came with it casts doubt on it (``doubt.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import psycopg

from metastore.backends.postgres.doubt import Doubt, Promoted, Unconfirmed
from metastore.backends.postgres.settings import RUN
from metastore.clock import SYSTEM
from metastore.deadlines import remaining, stopping

T = TypeVar("T")

_LOOKS = (0.005, 0.1)
"""How long psycopg waits, at least and at most (seconds), before it lets this class look at the clock."""
_STOPPING = (0.15, 0.25)
"""How long it may take to ask the server to stop a statement, and then to get its answer (seconds)."""

_OVERTAKEN = 0.05
"""How long a statement may take to reach the server after the order to stop it (seconds)."""


class OutOfTime(psycopg.OperationalError):
    """The server did not answer in time. It may still apply the statement, so the error has no SQLSTATE."""


class NothingSent(OutOfTime):
    """The time ended before the statement was sent, so it is not applied."""


class Connection(psycopg.Connection[Any]):
    """A connection whose waits end with the call."""

    timeout = math.inf
    """How long a wait without a deadline may take (seconds)."""
    stopped = False
    """Whether it must not be used again: an answer is in doubt, or a late order to stop a statement may stop the next
    one.
    """

    simple = False
    """Each statement is a simple query, which the server reads completely before it executes anything. Otherwise
    nothing would end a statement whose last bytes were lost.
    """
    run: str | None = None
    """The run of its server; behind a pooler, the run of the server that answered last."""
    told: Callable[[str], None] | None = None
    """Behind a pooler, called with the run in each answer, because the pooler hides a restart of the server."""
    asks = False
    """Whether to ask the server after each answer: the server is a replica, and a pooler may hide its promotion."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._doubt = Doubt(self.pgconn)
        self.add_notice_handler(self._doubt)

    @classmethod
    def _connect_gen(cls, *arguments: Any, **options: Any) -> Any:
        """Connect, but not past the deadline. (psycopg's own time-out has whole seconds, and at least two.)

        This method is private in psycopg: without it, a connection would only have psycopg's own time-out.
        """
        left = remaining(SYSTEM, math.inf)
        if left <= 0:
            raise NothingSent("the time was over before the server was asked for a connection")
        return _ending(super()._connect_gen(*arguments, **options), left, None)

    def wait(self, gen: Generator[Any, Any, T], interval: float = _LOOKS[1], *arguments: Any, **options: Any) -> T:
        """Wait as psycopg does, but not past the deadline: ``gen`` sends, and then waits for the answer.

        Raises OutOfTime; NothingSent before ``gen`` begins.
        """
        left = remaining(SYSTEM, self.timeout)
        if left <= 0:
            raise NothingSent("the time was over before anything was sent")
        looks = interval if stopping() is None else min(interval, _LOOKS[1])
        return super().wait(_ending(gen, left, self), min(looks, max(left, _LOOKS[0])), *arguments, **options)

    def execute(self, query: Any, *arguments: Any, **options: Any) -> psycopg.Cursor[Any]:
        """Execute as psycopg does. Behind a pooler, the same message asks for the run of the server."""
        if self.told is None or not isinstance(query, str) or not query.lstrip().startswith(("SELECT", "WITH")):
            return super().execute(query, *arguments, **options)
        cursor = super().execute(f"SELECT {RUN};\n{query}", *arguments, **options)
        self._tell(cursor)
        cursor.nextset()
        return cursor

    def at_one_instant(self, statements: Sequence[tuple[str, Any]]) -> list[psycopg.Cursor[Any]]:
        """Execute queries in one round trip, all at one instant."""
        execute = super().execute
        with self.pipeline():
            execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            run = None if self.told is None else execute(f"SELECT {RUN}")
            cursors = [execute(text, parameters) for text, parameters in statements]
            execute("COMMIT")
        if run is not None:
            self._tell(run)
        return cursors

    def _tell(self, cursor: psycopg.Cursor[Any]) -> None:
        assert self.told is not None
        ((self.run,),) = cursor.fetchall()
        self.told(self.run)

    def doubt(self) -> psycopg.OperationalError | None:
        """Return the error to raise instead of the answer; None: the answer counts."""
        error: psycopg.OperationalError
        if self._doubt.unconfirmed:  # ``stopped``: this program ended the wait, because the call's time was over
            error = OutOfTime("no answer in time") if self.stopped else Unconfirmed("no replica confirmed the commit")
        elif self._doubt.promoted:
            error = Promoted("the replica was promoted")
        else:
            return None
        self.stopped = True
        return error

    def ask(self) -> None:
        """Raise Promoted if the server behind a pooler was a replica, and is now a primary."""
        if self.execute("SELECT pg_is_in_recovery()").fetchall() != [(True,)]:
            self.stopped = True
            raise Promoted("the replica was promoted")

    def stop(self) -> None:
        """Ask the server to stop its statement, so that it frees its locks and reports the outcome."""
        self.stopped = True
        if psycopg.capabilities.has_cancel_safe():  # libpq's older cancel function may wait for ever
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=_STOPPING[0])

    def stop_what_was_left(self) -> None:
        """Ask the server twice to stop a statement that an interrupt left: the first order may overtake the statement.

        A server ignores an order that comes before the statement, and would then run the statement until its time-out.
        """
        self.stop()
        SYSTEM.sleep(_OVERTAKEN)  # not select(2), which refuses sockets with numbers above 1,023
        self.stop()


def _ending(gen: Generator[Any, Any, T], left: float, connection: Connection | None) -> Generator[Any, Any, T]:
    """Run one of psycopg's generators for ``left`` seconds; then stop the connection's statement, or give up."""
    now, stop = SYSTEM.monotonic, stopping()
    ends = now() + left
    try:
        wanted = next(gen)
        while now() < ends and not (stop is not None and stop.asked):
            wanted = gen.send((yield wanted))
        if connection is not None:
            ends = now() + _STOPPING[1]
            connection.stop()
            wanted = gen.send((yield wanted))
            if now() <= ends:
                connection.stop()  # the first request to stop may have overtaken the statement
            while now() <= ends:
                wanted = gen.send((yield wanted))
    except StopIteration as end:
        error = None if connection is None else connection.doubt()
        if error is None:
            return cast("T", end.value)
    else:
        error = OutOfTime("no answer in time")
    raise error
