"""One hot table: of ten operations five alter by path, two by an entity in hand, two count in a transaction, one loads.

As in ``metastore loadtest --scenario hot-table``. The peer is hand-written row locks: a count is an alter there, which
reads the counter under the lock.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import metastore as ms
from tests.bench.combining.window import Arrangement, Cell
from tests.bench.contention.crew import Meet
from tests.bench.peers.contender import WAITS, count_waits
from tests.bench.peers.in_database import ForUpdate
from tests.bench.peers.mix import Lake
from tests.bench.peers.session import place
from tests.bench.peers.unguarded import did

__all__ = ["COUNTER", "HOT_TABLE", "PEER", "Counted", "hot_windows"]

HOT_TABLE = (
    Arrangement("hot_table_1", 1, 1),
    Arrangement("hot_table_16", 16, 1),
    Arrangement("hot_table_1x16", 1, 16),
    Arrangement("hot_table_2x16", 2, 16),
)
PEER = "for_update"
COUNTER = "counter"


@dataclass
class Counted:
    """What one client did in a window."""

    done: int = 0
    counts: int = 0
    """Transactions that were committed: the counter says so too."""
    attempts: list[int] = field(default_factory=list)
    """How often the function of each transaction ran."""
    seconds: list[float] = field(default_factory=list)
    """Of each operation."""
    trips: int = 0
    """How often it waited for an answer of the database, for others of its process too."""


class _Client(Protocol):
    def alter(self, *, in_hand: bool, key: str, value: str) -> None: ...
    def count(self) -> int: ...
    def load(self) -> None: ...
    def close(self) -> None: ...


class _Ours:
    """A client of the process's store."""

    def __init__(self, store: ms.Store, path: str) -> None:
        self._store, self._path = store, path
        self._hand = store.tables.load(path)

    def alter(self, *, in_hand: bool, key: str, value: str) -> None:
        target: Any = self._hand if in_hand else self._path
        self._hand = self._store.tables.alter(target, ms.SetProperty(key, value))

    def count(self) -> int:
        runs = 0

        def fn(tx: Any) -> None:
            nonlocal runs
            runs += 1
            table = tx.tables.load(self._path)
            tx.tables.alter(table, ms.SetProperty(COUNTER, str(int(table.properties.get(COUNTER, "0")) + 1)))

        self._store.run(fn)
        return runs

    def load(self) -> None:
        self._hand = self._store.tables.load(self._path)

    def close(self) -> None:
        """Do nothing: the process closes the store."""


class _Peer:
    """A client with a connection of its own."""

    def __init__(self, url: str, path: str) -> None:
        self._client, self._path = ForUpdate(url, "peer"), path

    def alter(self, *, in_hand: bool, key: str, value: str) -> None:
        self._client.alter(self._path, key, value)

    def count(self) -> int:
        session, parameters = self._client._session, self._client._fresh(self._path)
        row = session.message(place(self._path), "BEGIN", "lock_and_load")
        assert row is not None
        doc = json.loads(row[2])
        value = str(int(doc["properties"].get(COUNTER, "0")) + 1)
        doc["properties"][COUNTER] = value
        changes = json.dumps([{"change": "SetProperty", "key": COUNTER, "value": value}])
        written = {"id": row[0], "doc": json.dumps(doc, ensure_ascii=False), "changes": changes}
        did(session.message({**parameters, **written}, "write", "COMMIT"))
        return 1

    def load(self) -> None:
        self._client.load(self._path)

    def close(self) -> None:
        self._client.close()


def hot_windows(meet: Meet, cells: Sequence[Cell], lake: Lake, process: int) -> list[list[Counted]]:
    """Measure the cells one after the other; return what each client of this process did."""
    count_waits()
    found = []
    for cell in cells:
        mine = range(process, cell.arrangement.clients, cell.arrangement.processes)
        store = None if cell.contender == PEER else ms.open(cell.url)
        ready = threading.Barrier(len(mine) + 1)
        with ThreadPoolExecutor(len(mine)) as pool:
            running = [pool.submit(_client, cell, lake.path(0), number, store, ready) for number in mine]
            ready.wait()
            meet()
            ready.wait()
            found.append([each.result() for each in running])
        if store is not None:
            store.close()
        meet()
    return found


def _client(cell: Cell, path: str, number: int, store: ms.Store | None, ready: threading.Barrier) -> Counted:
    try:
        client: _Client = _Peer(cell.url, path) if store is None else _Ours(store, path)
        client.alter(in_hand=False, key=f"warm{number}", value="1")
        ready.wait()
    except BaseException:
        ready.abort()
        raise
    try:
        ready.wait()
        return _through(client, cell.length, number, random.Random(1000 * cell.turn + number))
    finally:
        client.close()


def _through(client: _Client, length: float, number: int, dice: random.Random) -> Counted:
    found, me, ends = Counted(), threading.get_ident(), time.monotonic() + length
    before_all = WAITS[me]
    while (begun := time.monotonic()) < ends:
        drawn = dice.randrange(10)
        if drawn < 7:
            client.alter(in_hand=drawn >= 5, key=f"client-{number}", value=str(found.done))
        elif drawn < 9:
            found.attempts.append(client.count())
            found.counts += 1
        else:
            client.load()
        over = time.monotonic()
        found.done += over <= ends
        found.seconds.append(over - begun)
    found.trips = WAITS[me] - before_all
    return found
