"""A tree of read-write locks in ZooKeeper: its recipe for shared locks, for a whole path at once.

A transaction makes a sequential ephemeral node below each node of the path, so that all queues have the same order. The
client asks for the lists of earlier nodes without waiting in between, because a session's requests are answered in
order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, RolledBackError

from tests.bench.peers.contender import waited
from tests.bench.peers.locked import Nodes

__all__ = ["ZooKeeperTree", "plant"]

ROOT = "/tree"
CHUNK = 500
_QUIET = logging.getLogger(__name__)
_QUIET.setLevel(logging.CRITICAL)  # a connection that is closed is told of as one that is lost
PATIENCE = 30.0
"""How long one waits for another before it looks again, in seconds."""


def plant(port: int, paths: Sequence[str]) -> None:
    """Make the persistent nodes below which paths are locked."""
    client = KazooClient(f"127.0.0.1:{port}", logger=_QUIET)
    client.start()
    try:
        client.ensure_path(ROOT)
        for first in range(0, len(paths), CHUNK):
            transaction = client.transaction()
            for path in paths[first : first + CHUNK]:
                transaction.create(_of(path))
            transaction.commit()
    finally:
        client.stop()
        client.close()


class ZooKeeperTree:
    """One session. Nobody waits for the answer to an unlock."""

    def __init__(self, port: int) -> None:
        self._client: Any = KazooClient(f"127.0.0.1:{port}", logger=_QUIET)
        self._client.start()
        self._held: list[str] = []

    def acquire(self, nodes: Nodes, *, exclusive: bool) -> int:
        made, lists = self._queued(nodes, exclusive)
        while made is None:  # a name that was not there before: its place is made
            waited()
            self._client.ensure_path(_of(nodes[-1]))
            made, lists = self._queued(nodes, exclusive)
        self._held, waits = made, 0
        for node, own, others in zip(nodes, made, lists, strict=True):
            while (before := _before(own, others)) is not None:
                waits += self._waited_for(f"{_of(node)}/{before}")
                waited()
                others = self._client.get_children(_of(node))  # noqa: PLW2901
        return waits

    def release(self) -> None:
        self._commit("delete", [(path,) for path in self._held])

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _queued(self, nodes: Nodes, exclusive: bool) -> tuple[list[str] | None, list[list[str]]]:
        modes = ["w-" if exclusive and node is nodes[-1] else "r-" for node in nodes]
        places = [f"{_of(node)}/{mode}" for node, mode in zip(nodes, modes, strict=True)]
        making = self._commit("create", [(place, b"", None, True, True) for place in places])
        listing = [self._client.get_children_async(_of(node)) for node in nodes]
        waited()
        made = making.get()
        if any(isinstance(one, (NoNodeError, RolledBackError)) for one in made):
            return None, []
        return made, [one.get() for one in listing]

    def _commit(self, what: str, calls: Sequence[tuple[Any, ...]]) -> Any:
        transaction = self._client.transaction()
        for arguments in calls:
            getattr(transaction, what)(*arguments)
        return transaction.commit_async()

    def _waited_for(self, path: str) -> int:
        gone = Event()
        waited()
        if self._client.exists(path, watch=lambda _: gone.set()):
            gone.wait(PATIENCE)
        return 1


def _of(path: str) -> str:
    return f"{ROOT}/{path}"


def _before(own: str, others: Sequence[str]) -> str | None:
    """Return the nearest one that must be gone first: for a reader the last writer before it, for a writer anyone."""
    mode, _, mine = own.rpartition("/")[2].partition("-")
    earlier = [other for other in others if other[2:] < mine and (mode == "w" or other[0] == "w")]
    return max(earlier, key=lambda other: other[2:], default=None)
