"""Debian's Redis, alone, without snapshots.

``durable``: every write is on the disk before it is answered (``appendfsync always``), as with PostgreSQL, etcd and
ZooKeeper. Without, nothing is ever written (``appendonly no``): the quickest that a lock in Redis can be. Who holds it
is forgotten with the server's end then, and two may believe to.
"""

from __future__ import annotations

from pathlib import Path

from tests.servers.listening import Listening, program

__all__ = ["RedisServer"]


class RedisServer(Listening):
    """One Redis server on 127.0.0.1. Raises Missing where the machine has none."""

    name = "redis"

    def __init__(self, *, durable: bool) -> None:
        self.path = program("redis-server", "redis-server")
        super().__init__()
        self.data = self.own(self.folder / "data")
        self.durable = durable

    def command(self) -> list[str | Path]:
        options = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.data), "daemonize": "no", "save": ""}
        options |= {"appendonly": "yes", "appendfsync": "always"} if self.durable else {"appendonly": "no"}
        return [self.path, *(word for name, value in options.items() for word in (f"--{name}", value))]
