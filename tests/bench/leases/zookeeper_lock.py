"""A lock in ZooKeeper: kazoo's recipe."""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

from tests.bench.leases.locker import Table, Unfenced

__all__ = ["ZooKeeperLock"]


class ZooKeeperLock(Unfenced):
    """A sequential ephemeral node; a waiter watches the one before its own, so that the order is that of arrival."""

    def __init__(self, port: int, table: Table, timeout: float) -> None:
        super().__init__(table, timeout)
        self._client: Any = KazooClient(f"127.0.0.1:{port}")
        self._client.start()
        self._locks: dict[str, Any] = {}
        self._held: Any = None

    def acquire(self, name: str) -> bool:
        if name not in self._locks:
            self._locks[name] = self._client.Lock(f"/bench/{name}")
        self._held = self._locks[name]
        try:
            return bool(self._held.acquire(timeout=self._timeout))
        except LockTimeout:
            return False

    def release(self) -> None:
        self._held.release()

    def close(self) -> None:
        self._client.stop()
        self._client.close()
