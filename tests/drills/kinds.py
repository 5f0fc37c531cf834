"""What a drill does to the cluster: each kind enters once a leader is there again, and heals at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from tests.drills.cluster import Cluster

__all__ = ["KINDS"]


@contextmanager
def node_killed(cluster: Cluster) -> Iterator[None]:
    """Kill the leader: its Patroni and its PostgreSQL."""
    node = cluster.leader()
    node.kill()
    cluster.wait_for_another(node)
    yield
    node.start()


@contextmanager
def postgres_killed(cluster: Cluster) -> Iterator[None]:
    """Kill the leader's PostgreSQL; its Patroni starts it again, or lets another one lead."""
    cluster.leader().kill_server()
    cluster.leader()
    yield


@contextmanager
def switchover(cluster: Cluster) -> Iterator[None]:
    """Ask for another leader."""
    node = cluster.leader()
    cluster.switch_over()
    cluster.wait_for_another(node)
    yield


@contextmanager
def cut_from_etcd(cluster: Cluster) -> Iterator[None]:
    """Cut the leader off from etcd."""
    node = cluster.leader()
    with node.cut_from_etcd():
        cluster.wait_for_another(node)
        yield


@contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    """Stop the leader's Patroni: nobody tells its PostgreSQL that another one leads, and both answer."""
    node = cluster.leader()
    node.freeze()
    try:
        cluster.wait_for_another(node)
        yield
    finally:
        node.thaw()


KINDS: Final[Mapping[str, Callable[[Cluster], AbstractContextManager[None]]]] = {
    "node-killed": node_killed,
    "postgres-killed": postgres_killed,
    "switchover": switchover,
    "cut-from-etcd": cut_from_etcd,
    "frozen": frozen,
}
