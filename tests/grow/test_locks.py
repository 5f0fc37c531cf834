"""What small writers meet beside a big call: how many rows each of its statements locks, by the plans that ran.

A writer waits for a transaction that locks its rows. So a big call holds small writers up for as long as one statement
over one chunk takes, or the few statements of a move or a restore; and what all writers share, the guards above, it
only shares. How long is counted, not timed: the statements from the first lock to the commit, and the rows they read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import dropwhile

import pytest

import metastore as ms
from tests.grow.counting import SqliteCounter
from tests.grow.plans import SETTINGS, Log, Ran
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.long

_TABLES = 2500
_CHUNK = 1000
"""How many rows a bulk call writes in one statement, and gc deletes."""
_ABOVE = 10
"""How many more guards a statement may share: those above what it writes."""
_STATEMENTS = 4
"""How many statements a transaction may send from its first lock on: a move and a restore look with a new snapshot."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings=SETTINGS, in_memory=True) as one:
        yield one


def _locked(ran: Ran, *, shared: bool) -> float:
    """Return how many rows that were there a statement locks: by changing them, or with ``shared`` by SELECT … FOR."""
    rows = 0.0
    for node in ran.nodes():
        if (node["Node Type"] == "LockRows") if shared else (node.get("Operation") in ("Update", "Delete")):
            below = node["Plans"][0]
            rows += below["Actual Rows"] * below["Actual Loops"]
    return rows


def _updated_guards(ran: Ran) -> float:
    """Return how many guards a statement changes: all writers below these wait for it."""
    return sum(
        node["Plans"][0]["Actual Rows"] * node["Plans"][0]["Actual Loops"]
        for node in ran.nodes()
        if (node.get("Operation"), node.get("Relation Name")) == ("Update", "guard")
    )


def _held(found: list[Ran]) -> Iterator[list[Ran]]:
    """Yield of each transaction that locks something its statements from the first lock on."""
    by_transaction: dict[str, list[Ran]] = {}
    for ran in found:
        by_transaction.setdefault(ran.transaction, []).append(ran)
    for some in by_transaction.values():
        held = list(dropwhile(lambda ran: not _locked(ran, shared=False) + _locked(ran, shared=True), some))
        if held:
            yield held


def _read(ran: Ran) -> float:
    """Return how many rows of tables a statement reads."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in ran.nodes()
        if "Relation Name" in node
    )


@pytest.mark.postgres
def test_a_big_call_locks_no_more_than_a_chunk_in_one_statement(server: PostgresServer) -> None:
    ms.migrate(url := server.create_database())
    rows = [{"name": f"t{n:05}"} for n in range(_TABLES)]
    targets = [{"target": f"m.c.s.t{n:05}", "kind": "table"} for n in range(_TABLES)]
    with ms.open(url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.schemas.create("m.c.d")
        store.tags.create("m.tag")
        since = list[str]()

        def change(tx: ms.Transaction) -> None:
            since[:] = [store.position()]
            for n in range(300):
                tx.tables.alter(f"m.c.s.t{n:05}", ms.SetComment("it"))

        big: dict[str, Callable[[], object]] = {
            "create many": lambda: store.tables.create_many("m.c.s", rows),
            "create them again": lambda: store.tables.create_many("m.c.s", rows, if_exists="return"),
            "attach many": lambda: store.tags.attach_many("m.tag", targets),
            "rename": lambda: store.schemas.rename("m.c.s", "other"),
            "rename back": lambda: store.schemas.rename("m.c.other", "m.c.s"),
            "move": lambda: store.schemas.rename("m.c.s", "m.c.d.s"),
            "move back": lambda: store.schemas.rename("m.c.d.s", "m.c.s"),
            "change many": lambda: store.run(change),
            "revert": lambda: store.revert("m.c.s", to=since[0], kind="schema"),
            "take a drop back": lambda: store.schemas.begin_drop("m.c.s").roll_back(),
            "find": lambda: list(store.find(name="t*")),
            "drop all": lambda: store.schemas.drop("m.c.s", cascade=True),
            "restore": lambda: store.schemas.restore("m.c.s"),
            "drop the tag": lambda: store.tags.drop("m.tag"),
            "drop again": lambda: store.schemas.drop("m.c.s", cascade=True),
            "verify": store.verify,
            "gc": lambda: store.gc(retention=timedelta(0), keep_versions=1),
        }
        log = Log(server.log)
        for name, call in big.items():
            log.new()
            call()
            found = log.new()
            assert found, name
            assert max(_locked(ran, shared=False) for ran in found) <= 3 * _CHUNK, name
            assert max(_locked(ran, shared=True) for ran in found) <= 2 * _CHUNK + _ABOVE, name
            assert max(_updated_guards(ran) for ran in found) <= 1, name
            for held in _held(found):
                assert len(held) <= _STATEMENTS, name
                assert sum(map(_read, held)) <= 6 * _CHUNK, name


class _Held(SqliteCounter):
    """Notes how many steps a transaction that writes takes at most: SQLite has one writer."""

    most = 0
    _since: int | None = None

    def _began(self, text: str) -> None:
        super()._began(text)
        if text.startswith("BEGIN IMMEDIATE"):
            self._since = self.steps
        elif self._since is not None and text.startswith(("COMMIT", "ROLLBACK")):
            self.most, self._since = max(self.most, self.steps - self._since), None


def test_on_sqlite_a_big_call_writes_a_chunk_in_one_transaction(sqlite_url: str) -> None:
    rows = [{"name": f"t{n:05}"} for n in range(_TABLES)]
    with (held := _Held()).installed(), ms.open(sqlite_url) as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        store.tags.create("m.tag")
        store.tables.create_many("m.c.s", rows)
        store.tags.attach_many("m.tag", [{"target": f"m.c.s.t{n:05}", "kind": "table"} for n in range(_TABLES)])
        store.tags.drop("m.tag")
        store.schemas.drop("m.c.s", cascade=True)
        store.gc(retention=timedelta(0), keep_versions=1)
    assert 100_000 < held.most <= 800 * _CHUNK
