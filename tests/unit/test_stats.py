"""The statements behind ``store.stats()``, on tables filled by hand, and what becomes of their answers."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.settings import SESSION
from metastore.backends.sql import stats as stats_sql
from metastore.backends.sql.stats import postgres_stats, sqlite_stats
from metastore.port.stats import DatabaseStats, HotRow, LineRow, MarkRow
from metastore.stats import HotEntity, LineInfo, MarkInfo, Stats, collect
from tests.servers.postgres import external_url

HOUR = 3_600_000_000
Ask = Callable[[int, int], DatabaseStats]


def micros(seconds_ago: float = 0) -> int:
    return int((time.time() - seconds_ago) * 1_000_000)


class Filled:
    """A database, and rows put into it without the library."""

    def __init__(self, connection: Any, parameter: str) -> None:
        self.connection = connection
        self._parameter = parameter
        self._operations = 0

    def insert(self, table: str, **row: Any) -> None:
        values = ", ".join([self._parameter] * len(row))
        self.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})", list(row.values()))

    def guard(self, entity_id: int, parent_id: int, kind: str, name: str, **more: Any) -> None:
        place = {"id": entity_id, "parent_id": parent_id, "kind": kind, "family": kind, "name": name, "key": name}
        self.insert("guard", **place, fold=False, state=0, in_use=True, scope_version=1, **more)

    def step(self, seq: int | None, entity_id: int | None, seconds_ago: float = 0, **more: Any) -> None:
        self._operations += 1
        row = {
            "operation_id": str(UUID(int=self._operations)),
            "ordinal": 0,
            "seq": seq,
            "entity_id": entity_id,
            "writer": 99,
        }
        self.insert("operation", **{**row, "action": "alter", "time": micros(seconds_ago), **more})

    def fetch(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.connection.execute(text, parameters).fetchall()
        return rows


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Filled]:
    with psycopg.connect(plain(postgres_url), autocommit=True) as connection:
        connection.execute(SESSION)
        yield Filled(connection, "%s")


def plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Filled]:
    ms.migrate(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        yield Filled(connection, "?")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def filled(request: pytest.FixtureRequest) -> Filled:
    found: Filled = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def ask(filled: Filled) -> Ask:
    if filled.connection.__class__ is sqlite3.Connection:
        return lambda since, limit: sqlite_stats(filled.fetch, micros(), since, limit)
    return partial(postgres_stats, filled.fetch)


# --- both databases


def test_an_empty_database(ask: Ask) -> None:
    found = ask(HOUR, 20)
    assert (found.pending, found.oldest_pending, found.marks, found.hot) == (0, None, (), ())
    assert (found.undecided, found.undecided_since) == (0, None)
    assert found.format >= 1
    assert abs(found.now - micros()) < 60_000_000


def test_intents(filled: Filled, ask: Ask) -> None:
    filled.step(None, 5, 30, action="pending")
    filled.step(None, 5, 10, action="pending")
    filled.step(None, 6, 20, action="pending")
    filled.step(None, None, 99, action="forbidden")
    filled.step(None, 5, 99, action="expired")
    filled.step(1, 5, 99)
    found = ask(HOUR, 20)
    assert found.pending == 3
    assert found.oldest_pending is not None
    assert (found.now - found.oldest_pending) / 1e6 == pytest.approx(30, abs=20)


def test_marks(filled: Filled, ask: Ask) -> None:
    operations = [str(UUID(int=n)) for n in range(3)]
    filled.guard(1, 0, "metalake", "lake")
    filled.guard(2, 1, "catalog", "a.b", mark=operations[0], marked_at=micros(5), marked_until=micros(-30))
    filled.guard(3, 2, "schema", "s", mark=operations[1], marked_at=micros(60), marked_until=micros(20))
    filled.guard(4, 3, "schema", "quiet", quiet_until=micros(-30))
    filled.guard(9, 77, "table", "orphan", mark=operations[2], marked_at=micros(1), marked_until=micros(-60))
    found = ask(HOUR, 20).marks
    assert [(m.entity_id, m.names, m.operation_id) for m in found] == [
        (3, ("lake", "a.b", "s"), operations[1]),
        (2, ("lake", "a.b"), operations[0]),
        (9, ("orphan",), operations[2]),
    ]
    assert all(m.marked_at < m.marked_until for m in found)
    assert len(ask(HOUR, 1).marks) == 1


def test_lines_of_tickets(filled: Filled, ask: Ask) -> None:
    filled.guard(1, 0, "metalake", "lake")
    filled.guard(2, 1, "catalog", "a.b")
    for entity_id, number, ago in ((1, 7, 2), (2, 7, 9), (2, 8, 3), (2, 0, 99), (5, 9, 1)):
        times = {"time": micros(ago), "patience": 0, "since": micros(ago)}
        filled.insert("ticket", entity_id=entity_id, number=number, **times)
    found = ask(HOUR, 20).lines
    assert [(one.names, one.kind, one.waiting) for one in found] == [
        (("lake", "a.b"), "catalog", 2),
        (("lake",), "metalake", 1),
        (None, None, 1),
    ]
    assert len(ask(HOUR, 1).lines) == 1


def test_hot_entities(filled: Filled, ask: Ask) -> None:
    filled.guard(1, 0, "metalake", "lake")
    filled.guard(2, 1, "catalog", "Ω")
    writes = [(2, None), (2, None), (50, 2), (1, None), (77, None), (77, None)]
    for seq, (entity_id, owner_id) in enumerate(writes, 1):
        filled.step(seq, entity_id, 5, owner_id=owner_id)
    for seq in range(7, 20):
        filled.step(seq, 1, 7200)
    filled.step(None, 1, 1, action="pending")
    found = ask(HOUR, 20).hot
    assert found == (
        HotRow(2, ("lake", "Ω"), "catalog", 3),
        HotRow(77, None, None, 2),
        HotRow(1, ("lake",), "metalake", 1),
    )
    assert ask(HOUR, 2).hot == found[:2]
    assert ask(3 * HOUR, 20).hot[0].writes == 14


def test_only_the_newest_steps_are_looked_at(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound itself is in both statements."""
    for statement in (stats_sql._POSTGRES, stats_sql._SQLITE):
        assert "WHERE seq IS NOT NULL ORDER BY seq DESC LIMIT 100000" in statement
        monkeypatch.setattr(stats_sql, "_POSTGRES", stats_sql._POSTGRES.replace("100000", "3"))
        monkeypatch.setattr(stats_sql, "_SQLITE", stats_sql._SQLITE.replace("100000", "3"))
    for seq in range(1, 11):
        filled.step(seq, 2)
    sqlite = filled.connection.__class__ is sqlite3.Connection
    found = sqlite_stats(filled.fetch, micros(), HOUR, 9) if sqlite else postgres_stats(filled.fetch, HOUR, 9)
    assert [h.writes for h in found.hot] == [3]


def test_the_statement_goes_through_indexes(filled: Filled) -> None:
    for seq in range(1, 200):
        filled.guard(seq, 0, "metalake", f"m{seq}")
        filled.step(seq, seq)
    filled.guard(500, 0, "metalake", "marked", mark=str(UUID(int=1)), marked_at=1, marked_until=2)
    filled.step(None, 1, action="pending")
    parameters = {"since": HOUR, "page_size": 20}
    if filled.connection.__class__ is sqlite3.Connection:
        rows = filled.fetch(f"EXPLAIN QUERY PLAN {stats_sql._SQLITE}", {**parameters, "now": micros()})
        plan = "\n".join(row[3] for row in rows)
        whole = [line for line in plan.splitlines() if line.startswith("SCAN") and "INDEX" not in line]
        assert not {line.split()[1] for line in whole} & {"operation", "guard", "g"}, plan
    else:
        plan = "\n".join(row[0] for row in filled.fetch(f"EXPLAIN {stats_sql._POSTGRES}", parameters))
        assert "Seq Scan on operation" not in plan
        assert "Seq Scan on guard" not in plan
    for index in ("operation_pending", "guard_marked"):
        assert index in plan, plan


# --- PostgreSQL


def settled(postgres: Filled) -> DatabaseStats:
    """Return the answer once nobody else writes: the server's own upkeep may, for a moment."""
    deadline = time.monotonic() + 20
    while (found := postgres_stats(postgres.fetch, HOUR, 9)).oldest_transaction is not None or found.undecided is None:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


@pytest.fixture
def other(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    if external_url():
        pytest.skip("needs a server where nobody else writes")
    with psycopg.connect(plain(postgres_url)) as connection:
        yield connection
        connection.rollback()


def test_a_gap_that_may_be_filled(postgres: Filled, other: psycopg.Connection[Any]) -> None:
    for seq in (1, 2, 5):  # 3 and 4 were rolled back long ago
        postgres.step(seq, 1, 600)
    assert settled(postgres).undecided == 0
    other.execute("SELECT pg_current_xact_id()")
    found = postgres_stats(postgres.fetch, HOUR, 9)
    assert (found.undecided, found.undecided_since) == (0, None), "no gap since that began"
    assert found.oldest_transaction is not None
    assert 0 <= found.now - found.oldest_transaction < 60_000_000
    postgres.step(6, 1)
    postgres.step(8, 1)
    postgres.step(9, 1)
    found = postgres_stats(postgres.fetch, HOUR, 9)
    assert found.undecided == 2
    assert found.undecided_since is not None
    with psycopg.connect(other.info.dsn) as later:  # one that began later does not end the older one's time
        later.execute("SELECT pg_current_xact_id()")
        younger = postgres_stats(postgres.fetch, HOUR, 9)
        assert (younger.undecided, younger.oldest_transaction) == (2, found.oldest_transaction)
        later.rollback()
    other.rollback()
    found = settled(postgres)
    assert (found.undecided, found.undecided_since, found.oldest_transaction) == (0, None, None)


def test_a_transaction_that_only_reads_delays_nothing(postgres: Filled, other: psycopg.Connection[Any]) -> None:
    other.execute("SELECT count(*) FROM operation")
    postgres.step(1, 1)
    postgres.step(3, 1)
    assert settled(postgres).undecided == 0


@pytest.fixture
def role(postgres: Filled, other: psycopg.Connection[Any]) -> Iterator[str]:
    """Make a role that may only read our tables."""
    postgres.connection.execute("CREATE ROLE reader; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    yield "reader"
    other.rollback()
    postgres.connection.execute("RESET ROLE; DROP OWNED BY reader; DROP ROLE reader")


def test_a_role_that_does_not_see_others(postgres: Filled, other: psycopg.Connection[Any], role: str) -> None:
    postgres.connection.execute(f"SET ROLE {role}")
    found = settled(postgres)
    assert found.undecided == 0
    assert found.multixact_members is not None, "by pg_control_checkpoint"
    other.execute("SELECT pg_current_xact_id()")
    found = postgres_stats(postgres.fetch, HOUR, 9)
    assert (found.undecided, found.undecided_since, found.oldest_transaction) == (None, None, None)
    postgres.connection.execute(
        "RESET ROLE; REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC; SET ROLE reader"
    )
    found = postgres_stats(postgres.fetch, HOUR, 9)
    assert found.multixact_members is None
    assert found.multixact_age is not None


def test_multixacts(postgres: Filled, other: psycopg.Connection[Any], postgres_url: str) -> None:
    """Two who share a lock make a MultiXact of two members; files are whole segments, the checkpoint counts."""
    before = postgres_stats(postgres.fetch, HOUR, 9).multixact_age
    locked = "SELECT 1 FROM guard WHERE id = 0 FOR KEY SHARE"
    with psycopg.connect(plain(postgres_url)) as third:
        for _ in range(10):
            for connection in (other, third):
                connection.execute(locked)
            for connection in (other, third):
                connection.rollback()
    postgres.connection.execute("CHECKPOINT")
    found = postgres_stats(postgres.fetch, HOUR, 9)
    assert before is not None
    assert found.multixact_age is not None
    assert found.multixact_age >= before + 10
    assert found.multixact_members is not None
    assert found.multixact_members % 52_352 == 0
    assert found.multixact_members > 0
    counted = stats_sql._members(postgres.fetch, stats_sql._MEMBERS_BY_CHECKPOINT)
    assert counted is not None
    assert 20 <= counted <= found.multixact_members


# --- what is shown of it


class Backend:
    def __init__(self, found: DatabaseStats) -> None:
        self.found = found
        self.asked: list[tuple[int, int]] = []

    def stats(self, since: int, limit: int) -> DatabaseStats:
        self.asked.append((since, limit))
        return self.found


def test_collect() -> None:
    now = 1_000_000_000_000
    marks = (
        MarkRow(3, ("lake", "a.b"), "x", now - 5_000_000, now - 1),
        MarkRow(4, None, "y", now + 9, now + 2_500_000),
    )
    hot = (HotRow(3, ("lake", "a.b"), "catalog", 12), HotRow(9, None, None, 1))
    backend = Backend(DatabaseStats(now, 2, 7, now - 1_500_000, marks, hot, 4, now - 250_000, now - 3_000_000, 10, 20))
    backend.found = backend.found._replace(lines=(LineRow(3, ("lake", "a.b"), "catalog", 2, now - 500_000),))
    found = collect(backend)
    assert backend.asked == [(HOUR, 20)]
    assert found == Stats(
        pending=7,
        oldest_pending_seconds=1.5,
        marks=(
            MarkInfo(3, "lake.`a.b`", "x", 5.0, -1e-6, True),
            MarkInfo(4, None, "y", 0.0, 2.5, False),
        ),
        hot=(HotEntity(3, "lake.`a.b`", "catalog", 12), HotEntity(9, None, None, 1)),
        feed_lag_seconds=0.25,
        undecided_positions=4,
        oldest_transaction_seconds=3.0,
        multixact_members=10,
        multixact_age=20,
        format=2,
        lines=(LineInfo(3, "lake.`a.b`", "catalog", 2, 0.5),),
    )
    assert json.loads(json.dumps(found.as_json())) == found.as_json()
    assert found.as_json()["marks"][1]["expires_seconds"] == 2.5


def test_collect_where_nothing_is() -> None:
    found = collect(Backend(DatabaseStats(5, 2, 0, None, (), ())))
    assert (found.oldest_pending_seconds, found.feed_lag_seconds, found.undecided_positions) == (None, 0.0, 0)
    found = collect(Backend(DatabaseStats(5, 2, 0, None, (), (), undecided=None)))
    assert (found.feed_lag_seconds, found.undecided_positions) == (None, None)
