"""A tree of read-write locks in etcd: one transaction locks a whole path, one unlocks it; under the session's lease.

Keys: ``w/PATH`` is a writer, ``r/PATH/HOLDER`` a reader, ``i/PATH`` a writer that waits, before whom new readers stand
back.
"""

from __future__ import annotations

import random
import time
from base64 import b64encode
from functools import lru_cache
from typing import Any
from uuid import uuid4

import etcd3gw

from tests.bench.peers.contender import waited
from tests.bench.peers.locked import Nodes

__all__ = ["EtcdTree", "locking", "unlocking"]

SESSION = 3600
"""Seconds. A session's lease is kept alive at no cost that could be seen here; this one lasts for a whole window."""
SHORTEST, LONGEST = 0.002, 0.05
"""Between two attempts, in seconds; a random part of it."""

Json = dict[str, Any]


class EtcdTree:
    """One session."""

    def __init__(self, port: int) -> None:
        self._client: Any = etcd3gw.client(host="127.0.0.1", port=port)
        self._session = self._client.lease(SESSION)
        self._holder = uuid4().hex
        self._held: tuple[Nodes, bool] = ((), False)

    def acquire(self, nodes: Nodes, *, exclusive: bool) -> int:
        asked, vain = locking(nodes, self._holder, str(self._session.id), exclusive=exclusive), 0
        while not self._sent(asked):
            time.sleep(random.uniform(0, min(LONGEST, SHORTEST * 2 ** min(vain, 10))))
            vain += 1
        self._held = nodes, exclusive
        return vain

    def release(self) -> None:
        nodes, exclusive = self._held
        self._sent(unlocking(nodes, self._holder, exclusive=exclusive))

    def close(self) -> None:
        self._session.revoke()
        self._client.session.close()

    def _sent(self, transaction: Json) -> bool:
        waited()
        return bool(self._client.transaction(transaction).get("succeeded"))


def locking(nodes: Nodes, holder: str, lease: str, *, exclusive: bool) -> Json:
    """The transaction that locks a path, or notes that a writer waits."""

    def put(key: str) -> Json:
        return {"request_put": {"key": _b64(key), "value": _b64(holder), "lease": lease}}

    shared, last = (nodes[:-1], nodes[-1]) if exclusive else (nodes, "")
    free = [_absent(f"{kind}/{node}") for node in shared for kind in ("w", "i")]
    puts = [put(f"r/{node}/{holder}") for node in shared]
    asked: Json = {"compare": free, "success": puts}
    if last:
        free += [_absent(f"w/{last}"), _absent(f"r/{last}/", f"r/{last}0")]
        puts += [put(f"w/{last}"), {"request_delete_range": {"key": _b64(f"i/{last}")}}]
        asked["failure"] = [put(f"i/{last}")]
    return asked


def unlocking(nodes: Nodes, holder: str, *, exclusive: bool) -> Json:
    """The transaction that gives it back."""
    keys = [f"w/{node}" if exclusive and node is nodes[-1] else f"r/{node}/{holder}" for node in nodes]
    return {"success": [{"request_delete_range": {"key": _b64(key)}} for key in keys]}


@lru_cache(100_000)
def _b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _absent(key: str, end: str = "") -> Json:
    """No such key; with ``end``, none from the one to before the other."""
    compare = {"key": _b64(key), "target": "CREATE", "create_revision": "0", "result": "EQUAL"}
    return {**compare, "range_end": _b64(end)} if end else compare
