"""Where it happens: a database for each contender, copies of one lake; and the lock services that there are."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import psycopg

import metastore as ms
from tests.bench.core.setting import COLUMNS, Setting, new_lake
from tests.bench.peers.contenders import SERVERS
from tests.bench.peers.locked import above
from tests.bench.peers.mix import Lake
from tests.bench.peers.window import WARM
from tests.servers.etcd_server import EtcdServer
from tests.servers.listening import Listening, Missing
from tests.servers.postgres import PostgresServer, database_of
from tests.servers.redis_server import RedisServer
from tests.servers.zookeeper_server import ZooKeeperServer

__all__ = ["Ground"]

_SERVERS: Mapping[str, tuple[str, Callable[[], Listening]]] = {
    "redis": ("redis", partial(RedisServer, durable=False)),
    "etcd": ("etcd3gw", EtcdServer),
    "zookeeper": ("kazoo", ZooKeeperServer),
}
"""The package of the client, and the server."""


@dataclass
class Ground:
    """The servers of one run, started for the contenders that are wanted."""

    setting: Setting
    server: PostgresServer
    lake: Lake
    wanted: Sequence[str]
    ports: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.setting.closing.callback(lambda: self.server.halt(signal.SIGQUIT))
        for name in SERVERS:
            if name in self.wanted:
                try:
                    self.ports[name] = self._started(name).port
                except Missing as reason:
                    self.missing[name] = str(reason)
        if "zookeeper" in self.ports:
            from tests.bench.peers.zookeeper_tree import plant

            plant(self.ports["zookeeper"], self._nodes())

    @property
    def contenders(self) -> list[str]:
        """Those that are wanted, without what is missing on this machine."""
        return [name for name in self.wanted if name not in self.missing]

    def fresh(self) -> str:
        """Return the URL of a new copy of the lake."""
        return self.server.create_database(template=self._template)

    def settle(self) -> None:
        """Write out what is in memory only, so that it disturbs no window."""
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    @cached_property
    def _template(self) -> str:
        names = self.lake.names()
        url = new_lake(self.server, *names, WARM.rpartition(".")[2])
        with ms.open(url, principal="bench") as store:
            for schema, tables in names.items():
                parent = f"{WARM.rpartition('.')[0]}.{schema}"
                store.tables.create_many(parent, [{"name": name, "columns": COLUMNS} for name in tables])
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        return database_of(url)

    def _started(self, name: str) -> Listening:
        package, server = _SERVERS[name]
        if importlib.util.find_spec(package) is None:
            raise Missing(f"the package {package} is missing (pip install -e '.[bench]')")
        return self.setting.closing.enter_context(server())

    def _nodes(self) -> list[str]:
        tables = [self.lake.path(rank) for rank in range(self.lake.tables)]
        nodes = {node: None for path in [f"{WARM}.t", *tables] for node in above(path)}
        return list(nodes)
