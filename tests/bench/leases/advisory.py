"""PostgreSQL's advisory lock of the session."""

from __future__ import annotations

import psycopg

from tests.bench.core.setting import connect
from tests.bench.leases.locker import Table, Unfenced

__all__ = ["Advisory"]

_LOCK = "SELECT pg_advisory_lock(hashtextextended(%s::text, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s::text, 0))"


class Advisory(Unfenced):
    """It lasts as long as the connection, is not part of any commit, and its waiters wait in the server's queue."""

    def __init__(self, url: str, table: Table, timeout: float) -> None:
        super().__init__(table, timeout)
        self._connection = connect(url)
        self._connection.execute(f"SET lock_timeout = {round(1000 * timeout)}")
        self._name = ""

    def acquire(self, name: str) -> bool:
        try:
            self._connection.execute(_LOCK, (name,))
        except psycopg.errors.LockNotAvailable:
            return False
        self._name = name
        return True

    def release(self) -> None:
        self._connection.execute(_UNLOCK, (self._name,))

    def close(self) -> None:
        self._connection.close()
