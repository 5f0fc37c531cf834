"""``make grow``: fill a skewed store at two sizes, call every public method of every manager, and judge what it costs.

``ARGS="--entities 1000000"`` sets the larger size; the smaller one is a tenth. ``--backend`` is postgres or sqlite.
It exits with 1 if a bar is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

import metastore as ms
from tests.bad_input import surface
from tests.grow.counting import Cost, Counter, PostgresCounter, SqliteCounter, measured
from tests.grow.lines import ANSWERS, MORE, call_of
from tests.grow.report import DEADLINE, TRUSTED, Line, judged, table
from tests.grow.skew import Skew, fill
from tests.servers.postgres import PostgresServer

__all__ = ["RICH", "calls", "costs", "main", "mend"]

Costs = dict[tuple[str, str], Cost]
RICH = ("many roles", "owns much")
"""The users whose roles, or what they own, are as many more as the store is larger."""
_USERS = {TRUSTED: None, "owner": "olga", "narrow": "nina", **dict(zip(RICH, ("rita", "otto"), strict=True))}
_SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "shared_buffers": "512MB", "max_wal_size": "8GB"}


def costs(url: str, entities: int, counter: Counter, by: str | None = None) -> Costs:
    """Fill a database, make each call, and return what it cost. The memory of what reads everything is not watched."""
    fill(url, Skew(entities))
    if isinstance(counter, PostgresCounter):
        counter.analyze()
    found: Costs = {}
    with ms.open(url, principal="grow", deadline=DEADLINE) as store:
        for call, caller, work in calls(store, by):
            print(f"{entities:,}: {len(found) + 1} {call} by {caller}", end=" ", file=sys.stderr, flush=True)
            found[call, caller] = measured(counter, work, watched=ANSWERS[call] != "all")
            print(f"{found[call, caller].seconds:.2f} s", file=sys.stderr, flush=True)
            mend(store)
    return found


def calls(store: ms.Store, only: str | None = None) -> Iterator[tuple[str, str, Any]]:
    """Yield each call with who makes it: the trusted store, an owner of all, and users with few and many rights."""
    for by, user in _USERS.items():
        if only not in (None, by):
            continue
        view = store if user is None else store.as_user(("m", user))
        for name, (_, work) in MORE.items():
            for _ in range(2):  # the second time the connection is warm
                yield name, by, lambda work=work, view=view: work(view)
        for method in surface.EVERY:
            if ANSWERS[str(method)] == "none":
                continue
            with contextlib.suppress(ms.MetastoreError, AttributeError):
                yield str(method), by, call_of(method, view)


def mend(store: ms.Store) -> None:
    """Make again what a call has removed, renamed or disabled."""
    if not store.catalogs.load("m.c").in_use:
        store.catalogs.enable("m.c")
    if not store.tables.exists(surface.TABLE):
        surface.grow(store)


@contextlib.contextmanager
def _database(backend: str) -> Iterator[tuple[str, Counter]]:
    """Give the URL of an empty database, and what counts in it."""
    if backend == "sqlite":
        counter = SqliteCounter()
        with tempfile.TemporaryDirectory() as folder, counter.installed():
            ms.migrate(url := f"sqlite:///{Path(folder) / 'grow.db'}")
            yield url, counter
        return
    with PostgresServer(settings=_SETTINGS) as server:
        ms.migrate(url := server.create_database())
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            yield url, PostgresCounter(connection)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and say which bars are broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--backend", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--by", choices=tuple(_USERS), help="only the calls of one of these; else of all")
    asked = parser.parse_args(arguments)
    found = list[Costs]()
    for entities in (asked.entities // 10, asked.entities):
        with _database(asked.backend) as (url, counter):
            found.append(costs(url, entities, counter, asked.by))
    small, large = found
    lines = [Line(*key, ANSWERS[key[0]], small[key], large[key]) for key in large if key in small]
    print(*table(lines, asked.entities // 10, asked.entities), sep="\n")
    broken = list(judged(lines, 10, RICH))
    print(*broken, sep="\n", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
