"""A program of one of two versions: ``python version_program.py URL SIDE FOLDER``, with its tree in PYTHONPATH.

In rounds, until there is a file ``stop`` in the folder, it writes, and reads what the other side wrote. It appends a
line to its own file for each round, and says at the end what it did. Any error ends it.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import metastore as ms

DEADLINE = 20.0
url, side, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
other = {"old": "new", "new": "old"}[side]
made, read, seen, slowest = list[str](), list[str](), Counter[str | None](), 0.0


def count(tx: Any) -> None:
    counter = tx.tables.load("m.c.s.counter")
    tx.tables.alter(counter, ms.SetProperty("n", str(int(counter.properties["n"]) + 1)))


def one_round(store: ms.Store, cached: ms.Store, consumer: Any, n: int) -> Iterator[None]:
    """Make a table, change it in every way, and read the other's newest one."""
    name = f"m.c.s.{side}_{n}"
    store.tables.create(name, columns=[ms.Column("id", "long"), ms.Column("tags", "list<string>")], comment=side)
    yield
    store.tables.alter(name, ms.AddColumn("more", "int"), ms.SetProperty("by", side))
    yield
    store.tables.rename(name, f"{side}_{n}_renamed")
    yield
    store.tags.attach(f"m.c.s.{side}_{n}_renamed", "m.seen", value=side)
    yield
    store.run(count)
    yield
    with store.leases.acquire("turn", timeout=DEADLINE) as lease:
        store.tables.alter("m.c.s.turns", ms.SetProperty(side, str(n)), lease=lease)
    yield
    store.schemas.create(f"m.c.{side}_{n}")
    store.schemas.drop(f"m.c.{side}_{n}")
    if n % 2:
        store.schemas.restore(f"m.c.{side}_{n}")
    made.append(f"{side}_{n}_renamed")
    yield
    theirs = [one for one in store.tables.names("m.c.s") if one.startswith(f"{other}_") and one.endswith("_renamed")]
    for reader in (store, cached) if theirs else ():
        table = reader.tables.load(f"m.c.s.{theirs[-1]}")
        assert (table.comment, table.properties["by"]) == (other, other), table
        assert [column.name for column in table.columns] == ["id", "tags", "more"], table
        read.append(table.path)
    yield
    changes = consumer.read(limit=200)
    seen.update(change.principal for change in changes)
    if changes:
        consumer.commit(changes[-1].position)
    yield


with (
    ms.open(url, principal=side, deadline=DEADLINE) as store,
    ms.open(url, principal=side, deadline=DEADLINE, cache=ms.Cache("lease")) as cached,
):
    consumer = store.consumers.get(side, start="beginning")
    rounds = 0
    while not (folder / "stop").exists():
        started = time.monotonic()
        for _ in one_round(store, cached, consumer, rounds):
            slowest = max(slowest, time.monotonic() - started)
            started = time.monotonic()
        rounds += 1
        with (folder / side).open("a") as log:
            log.write(f"{rounds}\n")
print(
    json.dumps(
        {
            "library": ms.__file__,
            "made": made,
            "rounds": rounds,
            "read": len(read),
            "seen": dict(seen),
            "slowest": slowest,
        }
    )
)
