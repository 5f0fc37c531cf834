"""All kinds of locks of one process: the clients stay open while others are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from importlib import import_module
from types import TracebackType
from typing import Self

import metastore as ms
from tests.bench.leases.advisory import Advisory
from tests.bench.leases.locker import DEADLINE, Locker, Ours, Table
from tests.bench.leases.places import BUCKET, SERVERS, Places

__all__ = ["Lockers"]

_CLASSES = {
    "redis": ("redis_lock", "RedisLock"),
    "redis_durable": ("redis_lock", "RedisLock"),
    "etcd": ("etcd_lock", "EtcdLock"),
    "zookeeper": ("zookeeper_lock", "ZooKeeperLock"),
    "hudi": ("hudi_lock", "HudiLock"),
}


class Lockers:
    """One locker of each kind that is asked for. ``number`` says which tables are its own."""

    def __init__(self, places: Places, peers: Iterable[str], number: int, timeout: float = DEADLINE) -> None:
        self._places, self._peers, self._number, self._timeout = places, list(peers), number, timeout
        self._closing = ExitStack()
        self._of: dict[str, Locker] = {}

    def __enter__(self) -> Self:
        with self._closing:
            self._postgres, self._sqlite = (self._table(url) for url in (self._places.postgres, self._places.sqlite))
            for peer in self._peers:
                locker = self._of[peer] = self._opened(peer)
                self._closing.callback(locker.close)
            self._closing = self._closing.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def __getitem__(self, peer: str) -> Locker:
        return self._of[peer]

    def _table(self, url: str) -> Table:
        store = self._closing.enter_context(ms.open(url, principal=f"process {self._number}"))
        return Table(store, f"t{self._number}")

    def _opened(self, peer: str) -> Locker:
        table, places, timeout = self._postgres, self._places, self._timeout
        if peer in SERVERS:
            return _class_of(peer)(places.ports[peer], table, timeout)
        if peer == "advisory":
            return Advisory(places.postgres, table, timeout)
        if peer == "hudi":
            return _class_of(peer)(BUCKET, places.s3_options, table, timeout)
        if peer in ("s3", "s3_fenced"):
            return self._on_s3(fenced=peer == "s3_fenced")
        table = self._sqlite if peer == "sqlite" else table
        return Ours(table.store.leases, table, timeout)

    def _on_s3(self, *, fenced: bool) -> Locker:
        table = self._postgres
        url = f"s3://{BUCKET}/{'fenced' if fenced else 'free'}"
        leases = ms.ObjectStoreLeases(url, store=table.store if fenced else None, **self._places.s3_options)
        return Ours(leases, table, self._timeout, fenced=fenced)


def _class_of(peer: str) -> Callable[..., Locker]:
    """Import what needs a package that not everybody has."""
    module, name = _CLASSES[peer]
    found: Callable[..., Locker] = getattr(import_module(f"tests.bench.leases.{module}"), name)
    return found
