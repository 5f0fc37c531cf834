"""What is measured: a cell is one kind of lock under one kind of load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LOADS", "PEERS", "PROCESSES", "WORKS", "Cell", "Load", "Spread", "Work"]

Work = Literal["pair", "commit"]
"""Acquire and release; acquire, commit once, release."""
Spread = Literal["one", "many"]
"""One name for all processes; one for each."""

PEERS = {
    "postgres": "ours, in PostgreSQL; the commit is fenced",
    "sqlite": "ours, in SQLite; the commit is fenced, and goes to the same file",
    "s3": "ours, on an S3 server; nobody checks its token",
    "s3_fenced": "ours, on an S3 server; its token is mirrored into PostgreSQL, and the commit is fenced",
    "advisory": "PostgreSQL's session-level advisory lock, by hand on psycopg; in memory, without time or token",
    "redis": "Redis: SET NX PX and a script that compares and deletes (redis-py's Lock); nothing goes to the disk",
    "redis_durable": "the same with appendfsync always",
    "etcd": "etcd's lock service: a transaction under the session's lease, waiting in the server (etcd3gw, JSON)",
    "zookeeper": "kazoo's lock recipe: a sequential ephemeral node, and a watch on the one before",
    "hudi": "the algorithm of Hudi's storage-based lock provider (RFC-91) on the same S3 server, with our client",
}
"""Ours and the others, each in a few words."""

WORKS: tuple[Work, ...] = ("pair", "commit")
SPREADS: tuple[Spread, ...] = ("one", "many")
PROCESSES = (1, 8, 32)


@dataclass(frozen=True)
class Load:
    """What is done, and by how many on how many names."""

    work: Work
    processes: int
    spread: Spread

    def __str__(self) -> str:
        return f"{self.work}_{self.processes}" + ("" if self.processes == 1 else f"_{self.spread}")


LOADS = [
    Load(work, processes, spread)
    for work in WORKS
    for processes in PROCESSES
    for spread in SPREADS
    if spread == "one" or processes > 1  # who is alone has one name
]


@dataclass(frozen=True)
class Cell:
    """One kind of lock under one load."""

    load: Load
    peer: str

    def __str__(self) -> str:
        return f"{self.load}_{self.peer}"
