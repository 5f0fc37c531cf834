"""What a lock must do to be measured."""

from __future__ import annotations

from itertools import count
from typing import Protocol

import metastore as ms
from metastore.errors import LeaseHeld
from metastore.leases.lease import Lease
from metastore.leases.leases import Leases
from tests.bench.contention.policy import DEADLINE
from tests.bench.core.setting import CATALOG

__all__ = ["DEADLINE", "SCHEMA", "TTL", "Locker", "Ours", "Table", "Unfenced"]

SCHEMA = f"{CATALOG}.s"
TTL = 30.0
"""How long a lock lasts, where it has a time: longer than any window."""


class Locker(Protocol):
    """One holder of locks, with connections of its own. It holds one name at a time."""

    def acquire(self, name: str) -> bool:
        """Acquire, waiting as this kind of lock does it by itself. False: the time to wait was over."""

    def commit(self) -> None:
        """Alter the client's own table, under the lock where the store can be told of it."""

    def release(self) -> None:
        """Give back what :meth:`acquire` got."""

    def close(self) -> None:
        """Close what is this locker's alone."""


class Table:
    """The client's own table, which each commit changes. It stays in hand, so that a commit is one round trip."""

    def __init__(self, store: ms.Store, name: str) -> None:
        self.store = store
        self._table = store.tables.load(f"{SCHEMA}.{name}")
        self._numbers = count()

    def alter(self, lease: Lease | None = None) -> None:
        """Commit one change."""
        self._table = self.store.tables.alter(
            self._table, ms.SetProperty("turn", str(next(self._numbers))), lease=lease
        )


class Unfenced:
    """A lock of others: the store is not told of it."""

    def __init__(self, table: Table, timeout: float) -> None:
        self._table, self._timeout = table, timeout

    def commit(self) -> None:
        self._table.alter()


class Ours:
    """A lease of the library. ``fenced``: the table's store checks its token."""

    def __init__(self, leases: Leases, table: Table, timeout: float, *, fenced: bool = True) -> None:
        self._leases, self._table, self._timeout, self._fenced = leases, table, timeout, fenced
        self._lease: Lease | None = None

    def acquire(self, name: str) -> bool:
        try:
            self._lease = self._leases.acquire(name, ttl=TTL, timeout=self._timeout)
        except LeaseHeld:
            return False
        return True

    def commit(self) -> None:
        self._table.alter(self._lease if self._fenced else None)

    def release(self) -> None:
        assert self._lease is not None
        self._leases.release(self._lease)

    def close(self) -> None:
        """The store is the table's."""
