"""What a drill does to the cluster: each kind enters once a leader is there again, and heals at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from tests.drills.cluster import Cluster

__all__ = ["BY_WAYS", "KINDS"]


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


@contextmanager
def quiet(cluster: Cluster) -> Iterator[None]:
    """Do nothing: no alert fires then."""
    cluster.leader()
    yield


@contextmanager
def cut_from_replicas(cluster: Cluster) -> Iterator[None]:
    """Cut the replicas off from the leader, which goes on to lead."""
    with cluster.leader().to_replicas.cut():
        yield


@contextmanager
def cut_from_clients(cluster: Cluster) -> Iterator[None]:
    """Cut the clients off from the leader: nobody in the cluster notices."""
    with cluster.leader().to_clients.cut():
        yield


@contextmanager
def etcd_stopped(cluster: Cluster) -> Iterator[None]:
    """Stop etcd until the leader has stepped down."""
    cluster.etcd.halt()
    try:
        cluster.wait_for_none()
    finally:
        cluster.etcd.start()
    cluster.leader()
    yield


KINDS: Final[Mapping[str, Callable[[Cluster], AbstractContextManager[None]]]] = {
    "node-killed": node_killed,
    "postgres-killed": postgres_killed,
    "switchover": switchover,
    "cut-from-etcd": cut_from_etcd,
    "cut-from-replicas": cut_from_replicas,
    "cut-from-clients": cut_from_clients,
    "etcd-stopped": etcd_stopped,
    "frozen": frozen,
    "quiet": quiet,
}

BY_WAYS: Final = ("cut-from-clients",)
"""In these drills clients reach the nodes by ways that can be cut, which take time."""
