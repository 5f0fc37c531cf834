"""A lock in Redis, as its usual client has it."""

from __future__ import annotations

from typing import Any

import redis

from tests.bench.leases.locker import TTL, Table, Unfenced

__all__ = ["RedisLock"]


class RedisLock(Unfenced):
    """redis-py's Lock: SET NX PX; a script compares and deletes. A waiter asks again every 0.1 s (its default)."""

    def __init__(self, port: int, table: Table, timeout: float) -> None:
        super().__init__(table, timeout)
        self._client: Any = redis.Redis(host="127.0.0.1", port=port)
        self._locks: dict[str, Any] = {}
        self._held: Any = None

    def acquire(self, name: str) -> bool:
        if name not in self._locks:
            self._locks[name] = self._client.lock(name, timeout=TTL, blocking_timeout=self._timeout)
        self._held = self._locks[name]
        return bool(self._held.acquire())

    def release(self) -> None:
        self._held.release()

    def close(self) -> None:
        self._client.close()
