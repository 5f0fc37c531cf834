"""A lock in etcd: that of its own lock service."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import etcd3gw
from etcd3gw.exceptions import ConnectionTimeoutError

from tests.bench.leases.locker import Table, Unfenced

__all__ = ["EtcdLock"]

SESSION = 3600
"""Seconds. A session's lease is kept alive at no cost that could be seen here; this one lasts for a whole run."""


class EtcdLock(Unfenced):
    """One request locks and one unlocks; each is one transaction in the server, under the session's lease.

    A waiter's request stays in the server until its turn, in the order of arrival.
    """

    def __init__(self, port: int, table: Table, timeout: float) -> None:
        super().__init__(table, timeout)
        self._client: Any = etcd3gw.client(host="127.0.0.1", port=port)
        self._lock, self._unlock = map(self._client.get_url, ("/lock/lock", "/lock/unlock"))
        self._session = self._client.lease(SESSION)
        self._client.timeout = timeout
        self._key = ""

    def acquire(self, name: str) -> bool:
        asked = {"name": b64encode(name.encode()).decode(), "lease": self._session.id}
        try:
            self._key = self._client.post(self._lock, json=asked)["key"]
        except ConnectionTimeoutError:
            return False
        return True

    def release(self) -> None:
        self._client.post(self._unlock, json={"key": self._key})

    def close(self) -> None:
        self._session.revoke()
        self._client.session.close()
