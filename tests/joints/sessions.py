"""Checks of the sessions of a run: by the server's views, and by each process before it ends.

No session holds locks while the server waits for its client. And no session keeps a prepared statement that its client
has forgotten: the statement would never be used again, and never freed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg

from metastore.backends.postgres.backend import PostgresBackend

__all__ = ["STRANGER", "Sessions", "forgotten"]

STRANGER: Final = "stranger"
"""The name of a session that is not of this library."""
_LONGEST: Final = 8
"""A client that fell silent within its last message loses its locks sooner than that: deadlines are 5 s (seconds)."""
_WAITED_FOR: Final = f"""SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity
  WHERE backend_type = 'client backend' AND backend_xid IS NOT NULL AND application_name <> '{STRANGER}'
  AND (state = 'idle in transaction' OR wait_event = 'ClientRead' AND xact_start < clock_timestamp()
    - make_interval(secs => {_LONGEST}))"""
"""Each session that has locked or written a row, while its client is to send what comes next."""
_PREPARED: Final = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'metastore_%'"


class Sessions:
    """Looks at the sessions of a server, from time to time."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None
        self.held: dict[int, float] = {}
        """Of each process of the server that kept locks while it waited for its client: for how long (seconds)."""

    def look(self) -> None:
        """Look at all sessions now, unless the server is away."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._dsn, autocommit=True, application_name=STRANGER)
            for pid, seconds in self._connection.execute(_WAITED_FOR):
                self.held[pid] = max(seconds, self.held.get(pid, 0.0))
        except psycopg.Error:
            self.close()

    def wrong(self) -> list[str]:
        """Return what was seen that must not be."""
        return [
            f"a session ({pid}) kept its locks for {seconds:.2f} s while the server waited for its client"
            for pid, seconds in self.held.items()
        ]

    def close(self) -> None:
        """End the own session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def forgotten(store: Any) -> Iterator[str]:
    """Yield each session of a store, sync or async, that has prepared statements which nobody knows any more."""
    session = getattr(store, "_sync", store)._session
    backend = getattr(session.backend, "_port", session.backend)
    if not isinstance(backend, PostgresBackend):
        return
    for place in backend.pool._pool._places:
        if place.connection is None or place.is_lent or place.wire is None:
            continue
        try:
            ((prepared,),) = place.connection.execute(_PREPARED).fetchall()
        except psycopg.Error:  # it is dead
            continue
        if prepared > (known := len(place.wire._names)):
            yield f"a session has {prepared} prepared statements, of which its client knows {known}"
