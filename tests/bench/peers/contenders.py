"""Every contender by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module

from tests.bench.peers.contender import Contender
from tests.bench.peers.in_database import Advisory, ForUpdate, Serializable
from tests.bench.peers.locked import Locked, Tree
from tests.bench.peers.ours import InHand, Ours
from tests.bench.peers.process_tree import Forest, ProcessTree

__all__ = ["CONTENDERS", "LOCK_PEERS", "ON_SERVERS", "SERVERS", "opened"]

CONTENDERS: Mapping[str, str] = {
    "ours": "ours, by path",
    "ours_in_hand": "ours, with the entities that were returned before in hand (reported apart: an id is meant)",
    "for_update": "PostgreSQL's row locks: FOR SHARE on the ancestors, FOR UPDATE on the node",
    "advisory": "PostgreSQL's advisory locks of the transaction, shared on the ancestors, exclusive on the node",
    "redis": "read-write locks in Redis by two scripts; nothing goes to its disk",
    "etcd": "read-write locks in etcd, a transaction each (etcd3gw, JSON)",
    "zookeeper": "ZooKeeper's recipe for shared locks, a path in one transaction",
    "serializable": "SERIALIZABLE, tried again at once",
    "treelock": "a tree of read-write locks in each of two server processes, whose threads the clients are",
}
LOCK_PEERS = ("for_update", "advisory", "redis", "etcd", "zookeeper")
"""Locks in the database or in a service: what ours is held against."""
SERVERS = ("redis", "etcd", "zookeeper")
ON_SERVERS = "treelock"
"""Its clients are the threads of two processes."""

_TREES: dict[str, Callable[..., Tree]] = {}
for _name, _class in (("redis", "RedisTree"), ("etcd", "EtcdTree"), ("zookeeper", "ZooKeeperTree")):
    with suppress(ImportError):  # the ground says which client is missing
        _TREES[_name] = getattr(import_module(f"tests.bench.peers.{_name}_tree"), _class)
_IN_DATABASE: Mapping[str, Callable[[str, str], Contender]] = {
    "ours": Ours,
    "ours_in_hand": InHand,
    "for_update": ForUpdate,
    "advisory": Advisory,
    "serializable": Serializable,
}


def opened(name: str, url: str, principal: str, port: int | None, forest: Forest) -> Contender:
    """Return one client of a contender. ``port``: of its lock service; ``forest``: the locks of this process."""
    if name in _IN_DATABASE:
        return _IN_DATABASE[name](url, principal)
    if name == ON_SERVERS:
        return Locked(url, principal, ProcessTree(forest))
    if name == "pyiceberg":  # on tables of its own: see catalogs
        return import_module("tests.bench.peers.iceberg").PyIceberg(url, principal)
    return Locked(url, principal, _TREES[name](port))
