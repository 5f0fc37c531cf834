"""Debian's etcd, a cluster of one, with its own settings: every write is on the disk before it is answered."""

from __future__ import annotations

from pathlib import Path

from tests.servers.listening import Listening, program
from tests.servers.process import free_port

__all__ = ["EtcdServer"]


class EtcdServer(Listening):
    """One etcd server on 127.0.0.1. Raises Missing where the machine has none."""

    name = "etcd"

    def __init__(self) -> None:
        self.path = program("etcd", "etcd-server")
        super().__init__()
        self.data = self.own(self.folder / "data")
        self.peers = free_port()

    def command(self) -> list[str | Path]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in (self.port, self.peers))
        options = {
            "name": "alone",
            "data-dir": str(self.data),
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"alone={peers}",
            "logger": "zap",
            "log-level": "error",
        }
        return [self.path, *(f"--{name}={value}" for name, value in options.items())]
