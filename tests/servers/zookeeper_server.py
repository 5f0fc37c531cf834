"""Debian's ZooKeeper, alone, with its own settings: every write is on the disk before it is answered."""

from __future__ import annotations

import socket
from pathlib import Path

from metastore.errors import InvalidArgument
from metastore.spark.java import find_java
from tests.servers.listening import Listening, Missing

__all__ = ["ZooKeeperServer"]

JARS = Path("/usr/share/java")
CONFIGURATION = """\
tickTime=2000
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
forceSync=yes
4lw.commands.whitelist=ruok
"""


class ZooKeeperServer(Listening):
    """One ZooKeeper server on 127.0.0.1. Raises Missing where the machine has none, or no Java."""

    name = "zookeeper"

    def __init__(self) -> None:
        self.java = _java()
        super().__init__()
        self.data = self.own(self.folder / "data")

    def command(self) -> list[str | Path]:
        """Write the configuration for the present port, and say how to run it without its scripts."""
        configuration = self.folder / "zoo.cfg"
        configuration.write_text(CONFIGURATION.format(data=self.data, port=self.port))
        jars = f"{JARS / 'zookeeper.jar'}:{JARS / 'slf4j-nop.jar'}"
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [self.java, "-Xmx512m", "-cp", jars, main, self.give(configuration)]

    def ready(self, pid: int) -> bool:
        """Tell whether it answers: it listens before it serves."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                probe.sendall(b"ruok")
                return probe.recv(4) == b"imok"
        except OSError:
            return False


def _java() -> Path:
    if not (JARS / "zookeeper.jar").exists():
        raise Missing("ZooKeeper is missing (apt-get install zookeeper)")
    try:
        return Path(find_java(folders="/usr/lib/jvm")) / "bin" / "java"
    except InvalidArgument:
        raise Missing("Java is missing, which ZooKeeper runs on (apt-get install openjdk-17-jre-headless)") from None
