"""The pool of connections to PostgreSQL: it opens, lends and takes back connections; a forked child begins again.

Connections are in autocommit: one statement is a transaction, and so are the statements of one message. Behind a pooler
(recognised by a backend id that is not the server's) a session keeps nothing: no prepared statements, no settings.

Every wait (for a free connection, a new connection, an answer) ends with the call (``connection.py``).

A URL may lead to several servers, or after a fail-over to another server. A store that reads the primary never gets a
connection to a replica, whose state may be old.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import psycopg

from metastore.backends.postgres.connection import Connection, OutOfTime
from metastore.backends.postgres.read_errors import first_line
from metastore.backends.postgres.settings import ASKED, PRIMARY, SESSION, check_session, options_of
from metastore.backends.postgres.wire import Wire
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.pool import Loan, Place, WaitingPool
from metastore.clock import SYSTEM, process_id
from metastore.deadlines import cleans_up, remaining, until
from metastore.errors import BackendUnavailable, DeadlineExceeded, StoreClosed
from metastore.port.stats import PoolUse
from metastore.urls import Url

Rows = list[tuple[Any, ...]]

# psycopg warns of errors that it ignores, such as a rollback on a broken connection. Without this handler, logging
# would print the warnings to stderr if the program configures no logs.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_DEFAULTS: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "metastore",
    "client_encoding": "utf8",
}
_CONNECT_TIMEOUT = (2, 10)
"""The shortest and the longest wait for a connection to one address (seconds); libpq treats 1 as 2.

The call's deadline may end it earlier.
"""
_COMING_BACK = (None, "57P03", "57P01", "57P02", "57014", "53300", "08P01")
"""SQLSTATEs of a server that is briefly unavailable: no answer, starting, stopping, or too many connections.

57014: somebody else has cancelled the set-up of the session. The last one comes from a pooler that is full, or cannot
reach its server (pgbouncer: "server login has been failing").
"""
_KEPT_OWN = 2
"""How many used listening connections are kept; a new waiter listens on its own channel."""
_LONGEST = 2**31 - 1
"""PostgreSQL's longest time-out (milliseconds)."""
_HAS_TRANSACTION_TIMEOUT = 170000
"""The first version of PostgreSQL with transaction_timeout, which also counts waits for the client."""
_LATER = 1000
"""How much later than its statement a transaction times out (milliseconds), because that ends the session too."""


class Pool:
    """A pool of connections; a forked child does not share it with its parent."""

    def __init__(self, url: Url, timeout: float, limits: Limits | None = None, *, replica: bool = False) -> None:
        """``replica``: ``url`` is one of ``read_from``, so its server may be a replica."""
        self.limits = limits or Limits()
        self._where = f"{url.host or 'local socket'}:{url.port or 5432}/{url.database or ''}"
        shortest, longest = _CONNECT_TIMEOUT
        waits = max(shortest, min(longest, math.ceil(timeout)))
        arguments = {**_DEFAULTS, "connect_timeout": waits, **options_of(url)}
        names = {"host": url.host, "port": url.port, "dbname": url.database, "user": url.username}
        # leave out empty values: libpq takes these from a service file or the environment
        arguments |= {k: v for k, v in names.items() if v}
        if url.password is not None:
            arguments["password"] = str(url.password)
        self._arguments = arguments
        self._replica = replica
        self._needs_primary = arguments.get("target_session_attrs") in PRIMARY
        self._timeout = timeout
        self._closed = False
        self._of_parent: list[object] = []
        self._pool, self._own = self._new_pool(), deque[Connection]()
        self.opened = object()
        """A new object after each new connection, and after each new run of the server."""
        self.run: str | None = None
        """The :data:`~metastore.backends.postgres.settings.RUN` in the server's last answer; None: no answer yet."""
        self.when_started: Callable[[], None] = _nothing
        """Called when a connection leads to a restarted server, or to another server."""

    def _new_pool(self) -> WaitingPool:
        return WaitingPool(self._connect, self._settle, self.limits, self._timeout)

    def _begin_in_child(self) -> None:
        """Begin with an empty pool."""
        # keep the parent's connections open: closing them here would end the parent's sessions
        self._of_parent += (self._pool, self._own)
        self._own = deque()
        self._pool = self._new_pool()  # last, because the new pool marks the steps above as done

    def use(self) -> PoolUse:
        """Return how many connections are in use."""
        return self._pool.use()

    def _connect(self) -> Any:
        connection: Connection | None = None
        try:
            with self.in_time():
                connection = Connection.connect(autocommit=True, prepare_threshold=2, **self._arguments)
                connection.timeout = self._timeout
                ready = self._set_up(connection)
                self.opened = object()
                return ready
        except BaseException as error:
            if connection is not None:
                connection.close()
            stopped = connection is not None and connection.stopped and isinstance(error, psycopg.Error)
            if stopped or isinstance(error, OutOfTime):
                late = DeadlineExceeded(
                    f"no connection to PostgreSQL at {self._where} before the deadline: the server does not answer; "
                    "nothing was sent; call again later"
                )
                late.names_place = True
                raise late from None
            if isinstance(error, psycopg.Error):
                # libpq's text names host, port and user, but never the password
                unavailable = BackendUnavailable(
                    f"cannot connect to PostgreSQL at {self._where}: {first_line(error)}; "
                    "check the URL, the credentials, and that the server runs"
                )
                unavailable.transient = error.sqlstate in _COMING_BACK
                raise unavailable from None
            raise

    def _set_up(self, connection: Connection) -> Connection:
        ((pid, *session, replica, run),) = connection.execute(ASKED).fetchall()
        pooled = pid != connection.info.backend_pid
        if pooled or connection.info.server_version < _HAS_TRANSACTION_TIMEOUT:
            connection.simple, connection.cursor_factory = True, psycopg.ClientCursor
        check_session(self._where, *session, pooled=pooled)
        self._check_role(replica)
        connection.run = run
        self._note_run(run)
        if not pooled:
            connection.execute("; ".join([SESSION, *self._ends(connection)]))
            return connection
        connection.prepare_threshold = None
        connection.asks, connection.told = replica, self._note_run
        return connection

    def _ends(self, connection: Connection) -> Iterator[str]:
        """Yield the settings that make the server end the unfinished work of a client that is gone or stopped."""
        longest = min(math.ceil(self._timeout * 1000), _LONGEST - _LATER)
        yield f"SET statement_timeout = {longest}"
        if connection.info.server_version >= _HAS_TRANSACTION_TIMEOUT:
            yield f"SET transaction_timeout = {longest + _LATER}"
        yield from (f"SET tcp_{name} = {_DEFAULTS[name]}" for name in _DEFAULTS if name.startswith("keepalives_"))

    def _note_run(self, run: str) -> None:
        """Forget everything that is remembered if the server was restarted, perhaps from a backup."""
        if run != self.run:
            if self.run is not None:
                self._pool.forget()  # the connections are dead, or lead to a replaced server
                self.when_started()
                self.opened = object()
            # set last: a thread that sees the new run must not find answers of the earlier run in memory
            self.run = run

    def check_run(self, connection: Connection, run: str | None) -> None:
        """Raise AnotherRun if the connection leads to another run than ``run`` of the server (None: any run is right).

        The pool's note may come from another connection, which asked earlier but noted its answer later.
        """
        if run is not None and run != connection.run:
            self._note_run(cast(str, connection.run))
            raise AnotherRun("the server was started again meanwhile")

    def _check_role(self, replica: bool) -> None:
        """Refuse a replica in a store that reads the primary.

        The first connection that shows it is enough.
        """
        if replica and self._needs_primary:
            refused = BackendUnavailable(
                f"the server at {self._where} is a replica, whose state may be old; expected the primary; check the "
                "URL, or wait until the replica is promoted"
            )
            refused.transient = True
            raise refused
        self._needs_primary = self._needs_primary or not (replica or self._replica)

    def own_connection(self, first: str) -> psycopg.Connection[Any] | None:
        """Lend a connection with a session of its own, and execute ``first`` in it.

        Return None behind a pooler, where no session lasts.
        """
        if self._closed:
            raise StoreClosed
        while True:
            kept = self._kept_own()
            connection: Connection = self._connect() if kept is None else kept
            if connection.prepare_threshold is None:
                connection.close()
                return None
            try:
                with self.in_time():  # limited, because a kept connection may be dead
                    connection.execute(first.encode())
                connection.timeout = math.inf
                return connection
            except BaseException as error:
                connection.close()
                if kept is None or not isinstance(error, psycopg.Error):
                    raise

    def _kept_own(self) -> Connection | None:
        if self._pool.pid != process_id():
            self._begin_in_child()
        try:
            return self._own.pop()
        except IndexError:
            return None

    def take_back_own(self, connection: psycopg.Connection[Any], *, usable: bool) -> None:
        """Keep such a connection for the next waiter, but only a few, and none after :meth:`close`."""
        mine = self._pool.pid == process_id()
        if usable and mine and not self._closed and not connection.closed and len(self._own) < _KEPT_OWN:
            self._own.append(cast(Connection, connection))
        elif mine:
            connection.close()

    def connection(self) -> Loan[Connection]:
        """Lend a connection for a ``with`` block; a broken connection is thrown away."""
        # a clean-up after the close gets a connection of its own, which is closed at the end
        if self._closed and not cleans_up():
            raise StoreClosed
        if self._pool.pid != process_id():
            self._begin_in_child()
        if remaining(SYSTEM, self._timeout) <= 0:
            raise DeadlineExceeded("the deadline passed before the database was asked; call again, with a longer one")
        return Loan(self._pool)

    def in_time(self) -> AbstractContextManager[None]:
        """Limit all statements of the block together to the store's timeout, or to an earlier deadline."""
        return until(SYSTEM.monotonic() + self._timeout)

    def fetch(
        self,
        text: str,
        parameters: Mapping[str, Any],
        pooled: Callable[[Connection], Rows] | None = None,
        run: str | None = None,
    ) -> Rows:
        """Run one statement in its own transaction, and return its rows: the hot path.

        ``pooled``: how to run it behind a pooler, if it needs settings that the session there may lack. ``run``: see
        :meth:`check_run`.
        """
        with (loan := self.connection()) as connection:
            if run not in (None, connection.run):
                self.check_run(connection, run)
            if connection.prepare_threshold is None:
                return connection.execute(text, parameters).fetchall() if pooled is None else pooled(connection)
            return _wire_of(loan.place).rows(text, parameters)

    def send(
        self,
        statements: Sequence[tuple[str, Mapping[str, Any]]],
        pooled: Callable[[Connection], list[Rows]],
        run: str | None = None,
        behind: tuple[str, Mapping[str, Any]] | None = None,
        *,
        prepared: bool = True,
    ) -> list[Rows]:
        """Run statements as one transaction, in one message; return the rows of each. See :meth:`fetch`.

        ``behind``: a statement that follows the transaction in the same message, and may fail; behind a pooler it is
        not sent. ``prepared``: the statements are worth preparing. If they are not, ``behind`` is required.
        """
        with (loan := self.connection()) as connection:
            self.check_run(connection, run)
            if connection.prepare_threshold is None:
                return pooled(connection)
            wire = _wire_of(loan.place)
            if behind is None:
                return wire.message(statements)
            every = [*statements, behind]
            rows = wire.message(every, behind=True) if prepared else wire.composed(every)
            return rows[: len(statements)]

    def _settle(self, connection: Connection, error: type[BaseException] | None) -> bool:
        """Whether a connection may be lent again: the next borrower must not meet unfinished work.

        After an interrupt it may not: the connection may have a held lock or be in pipeline mode, although it seems
        idle. A connection with an incomprehensible answer (an error without a SQLSTATE) is closed too: the next
        borrower would get the rest of that answer. Raises if the received answers must not count, because the server
        may have changed (``connection.py``).
        """
        if error is None and connection.asks:
            connection.ask()
        elif not connection.stopped and connection.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            connection.stop_what_was_left()  # otherwise the statement continues at the server, and keeps its locks
        if self._closed or connection.stopped:
            return False
        return error is None or (
            issubclass(error, Exception)
            and not (issubclass(error, psycopg.Error) and error.sqlstate is None)
            and not connection.closed
            and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        )

    def forget(self) -> None:
        """Never lend the present connections again, because one was found dead and others may be dead too."""
        self._pool.forget()

    def close(self) -> None:
        """Close the connections that are not lent; lend no more."""
        self._closed = True
        while (own := self._kept_own()) is not None:
            own.close()
        self._pool.close_idle()


class AnotherRun(psycopg.OperationalError):
    """The commit rests on reads from an earlier run of the server. Nothing was sent."""


def _nothing() -> None:
    pass


def _wire_of(place: Place) -> Wire:
    wire: Wire | None = place.wire
    if wire is None:
        wire = place.wire = Wire(place.connection)
    return wire
