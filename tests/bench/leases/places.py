"""Where the locks are kept: the servers of one run, and what of them is missing on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import metastore as ms
from tests.bench.core.setting import COLUMNS, Setting, fill_lake, new_lake
from tests.bench.leases.locker import SCHEMA
from tests.servers.etcd_server import EtcdServer
from tests.servers.listening import Listening, Missing
from tests.servers.redis_server import RedisServer
from tests.servers.s3 import KEY, SECRET, S3Server
from tests.servers.zookeeper_server import ZooKeeperServer

__all__ = ["BUCKET", "SERVERS", "Ground", "Places", "ground", "lock_servers"]

BUCKET = "locks"
SERVERS: Mapping[str, tuple[str, Callable[[], Listening]]] = {
    "redis": ("redis", partial(RedisServer, durable=False)),
    "redis_durable": ("redis", partial(RedisServer, durable=True)),
    "etcd": ("etcd3gw", EtcdServer),
    "zookeeper": ("kazoo", ZooKeeperServer),
}
"""The package of the client and the server, by what is measured on it."""
ON_S3 = ("s3", "s3_fenced", "hudi")


@dataclass(frozen=True)
class Places:
    """What a process must know to reach them all."""

    postgres: str
    sqlite: str
    ports: Mapping[str, int]
    s3: str | None
    """The endpoint."""

    @property
    def s3_options(self) -> dict[str, Any]:
        """What obstore takes to get there, for ours and the other alike."""
        return {
            "endpoint": self.s3,
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "client_options": {"allow_http": True},
        }


@dataclass(frozen=True)
class Ground:
    """The places, what is missing and why, and the S3 server, which counts requests."""

    places: Places
    missing: Mapping[str, str] = field(default_factory=dict)
    s3: S3Server | None = None


def ground(setting: Setting, peers: Sequence[str], tables: int) -> Ground:
    """Start what ``peers`` need; make ``tables`` tables, one for each process, in both databases."""
    ports, missing = lock_servers(setting.closing, peers)
    s3 = None
    wanted = [peer for peer in ON_S3 if peer in peers]
    if wanted:
        try:
            s3 = _s3(setting)
        except Missing as reason:
            missing |= dict.fromkeys(wanted, str(reason))
    postgres = new_lake(setting.durable, SCHEMA.rpartition(".")[2])
    sqlite = _sqlite(setting)
    for url in (postgres, sqlite):
        with ms.open(url, principal="bench") as store:
            store.tables.create_many(SCHEMA, [{"name": f"t{n}", "columns": COLUMNS} for n in range(tables)])
    return Ground(Places(postgres, sqlite, ports, None if s3 is None else s3.url), missing, s3)


def lock_servers(closing: ExitStack, peers: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Start the lock servers; return their ports, and why others are left out."""
    ports: dict[str, int] = {}
    missing: dict[str, str] = {}
    for peer in [peer for peer in SERVERS if peer in peers]:
        client, server = SERVERS[peer]
        try:
            _need(client, "bench")
            ports[peer] = closing.enter_context(server()).port
        except Missing as reason:
            missing[peer] = str(reason)
    return ports, missing


def _need(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise Missing(f"the package {package} is missing (pip install -e '.[{extra}]')")


def _s3(setting: Setting) -> S3Server:
    for package, extra in (("obstore", "object-store"), ("moto", "test"), ("pyarrow", "arrow")):
        _need(package, extra)
    server = setting.closing.enter_context(S3Server())
    server.filesystem().create_dir(BUCKET)
    return server


def _sqlite(setting: Setting) -> str:
    folder = setting.closing.enter_context(TemporaryDirectory(prefix="leases-"))
    url = f"sqlite:///{Path(folder) / 'metastore.db'}"
    with ms.open(url, principal="bench") as store:
        fill_lake(store, SCHEMA.rpartition(".")[2])
    return url
