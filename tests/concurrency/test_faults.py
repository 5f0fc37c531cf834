"""Answers that are lost, and a server that goes away and comes back: applied exactly once, and the store goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import rows
from tests.concurrency.workers import Job, Team, Turn, outcome
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.proxy import PostgresProxy


@pytest.fixture
def proxied(postgres_url: str, postgres_address: tuple[str, int]) -> Iterator[tuple[PostgresProxy, ms.Store, str]]:
    """Give a proxy, a store that goes through it, and the direct URL."""
    seed(postgres_url, "lake.cat.s.t")
    with PostgresProxy(*postgres_address) as proxy, ms.open(proxy.url_for(postgres_url)) as store:
        yield proxy, store, postgres_url


def _is_commit(message: bytes) -> bool:
    """Whether a message carries the text of a commit; only the first ones on a connection do."""
    return message[:1] in (b"P", b"Q") and b"INSERT INTO operation" in message


def _binds_a_property(message: bytes) -> bool:
    """Whether a message brings the document of an alter to a statement, prepared or not."""
    return message[:1] == b"B" and b'"lost":' in message


LOST: dict[str, Callable[[ms.Store], object]] = {
    "create": lambda store: store.tables.create("lake.cat.s.lost"),
    "alter": lambda store: store.tables.alter("lake.cat.s.t", ms.SetProperty("lost", "x")),
    "rename": lambda store: store.tables.rename("lake.cat.s.t", "lost"),
    "create_many": lambda store: store.tables.create_many("lake.cat.s", [{"name": f"lost{n}"} for n in range(3)]),
    "partition": lambda store: store.partitions.create("lake.cat.s.t", "lost", values={"p": "1"}),
    "transaction": lambda store: store.run(
        lambda tx: (tx.tables.alter("lake.cat.s.t", ms.SetComment("lost")), tx.tables.create("lake.cat.s.lost"))
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("after", [True, False], ids=["answer lost", "request lost"])
@pytest.mark.parametrize("what", LOST)
def test_lost_acknowledgement(proxied: tuple[PostgresProxy, ms.Store, str], what: str, after: bool) -> None:
    """Field case 34: The connection breaks with the answer, or before the request: the result is applied once."""
    proxy, store, url = proxied
    before = rows(url, "SELECT count(*) FROM operation WHERE seq IS NOT NULL")[0][0]
    cut = (proxy.cut_after_send if after else proxy.cut_before_send)(_is_commit)
    result = LOST[what](store)
    assert cut.fired.is_set()
    written = rows(url, "SELECT count(*) FROM operation WHERE seq IS NOT NULL")[0][0] - before
    assert written == {"create_many": 3, "transaction": 2}.get(what, 1)
    if isinstance(result, ms.Entity):
        assert store.tables.load(result.path) == result
    elif what == "create_many":
        assert result == 3
    assert store.counters["unknown"] == 1
    assert violations(url) == []


def test_answers_lost_again_and_again(proxied: tuple[PostgresProxy, ms.Store, str]) -> None:
    """Field case 34: Every third commit loses its answer or its request: each of 60 alters counts once."""
    proxy, store, url = proxied
    for n in range(60):
        if n % 3 == 0:
            (proxy.cut_after_send if n % 2 else proxy.cut_before_send)(_binds_a_property)
        assert store.tables.alter("lake.cat.s.t", ms.SetProperty("lost", str(n))).version == n + 2
    assert violations(url) == []


@pytest.mark.only_whole
def test_server_restarts_between_calls() -> None:
    """Reads and writes go on over a restart of the server, whatever connections the pool had."""
    with PostgresServer() as server:
        url = server.create_database()
        ms.migrate(url)
        seed(url, "lake.cat.s.t")
        with ms.open(url) as store, ThreadPoolExecutor(5) as pool:
            calls: tuple[Callable[[], object], ...] = (
                lambda: store.tables.load("lake.cat.s.t"),
                lambda: list(store.tables.names("lake.cat.s")),
                lambda: store.tables.load_many(["lake.cat.s.t", "lake.cat.s.u"]),
                lambda: list(store.changes()),
                lambda: store.tables.alter("lake.cat.s.t", ms.SetProperty("k", str(random.random()))),
                lambda: outcome(store.schemas.drop, "lake.cat.s"),
                store.ping,
            )
            for first in range(len(calls)):
                list(pool.map(lambda n: store.ping(), range(20)))  # several connections, all idle now
                server.restart()
                for call in (*calls[first:], *calls[:first]):
                    call()
        assert violations(url) == []


def test_server_is_killed_under_writers(team: Team, tmp_path: Path) -> None:
    """The server crashes and recovers while four processes write: every acknowledged commit is there, once."""
    with PostgresServer() as server:
        url = server.create_database()
        ms.migrate(url)
        seed(url)
        flag = tmp_path / "written"
        jobs = [Job(write_through, n, str(flag)) for n in range(4)]
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(lambda: team.run(url, jobs))
            assert wait_until(flag.exists, 90)
            server.kill()
            server.start()
            acknowledged = [a for found in running.result() for a in found]
        assert set(acknowledged) <= set(rows(url, "SELECT entity_id, version FROM operation"))
        assert violations(url) == []


def write_through(turn: Turn, number: int, flag: str) -> list[tuple[int, int]]:
    """Write on, whatever happens to the server; return what was acknowledged."""
    store, done = turn.store, list[tuple[int, int]]()
    turn.meet()
    for n in range(120):
        if n == 40:
            Path(flag).touch()
        try:
            table = store.tables.create(f"lake.cat.s.t{number}_{n}")
            done.append((table.id, 1))
            done.append((table.id, store.tables.alter(table, ms.SetComment("x")).version))
        except ms.BackendUnavailable:
            continue  # while the server is away
    return done
