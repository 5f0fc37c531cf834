"""What was answered survives a crash of PostgreSQL, also where the server commits asynchronously by default.

The server's WAL writer is stopped, so that nothing reaches the files but what a commit flushes itself. Then all of the
server is killed: a commit that was not flushed is gone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil
import psycopg
import pytest

import metastore as ms
from tests.contract.ground import NEW_DOC, Ground, commit_of, exclusive, insert, prepare, renamed, update
from tests.contract.intents import announce, applied, committed, freeze, helping, mark, new_id
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

pytestmark = pytest.mark.postgres

ASYNCHRONOUS = {"synchronous_commit": "off", "wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Give a server that commits asynchronously, and writes no WAL of its own accord."""
    with PostgresServer(settings=ASYNCHRONOUS, in_memory=True) as running:
        yield running


@pytest.fixture(scope="module")
def template(server: PostgresServer) -> str:
    """Give the name of a migrated database to copy."""
    ms.migrate(server.create_database("migrated"))
    return "migrated"


@pytest.fixture
def crashing_url(server: PostgresServer, template: str) -> str:
    """Give the URL of a fresh, migrated database."""
    return server.create_database(template=template)


def stop_wal_writer(server: PostgresServer) -> None:
    """Let nothing be flushed in the background any more."""
    found: list[psutil.Process] = []

    def begun() -> bool:  # a server that has just recovered starts it last
        children = psutil.Process(server.pid).children()
        found[:] = [child for child in children if "walwriter" in " ".join(child.cmdline())]
        return bool(found)

    wait_until(begun, 30.0)
    found[0].send_signal(signal.SIGSTOP)


def crash(server: PostgresServer) -> None:
    """Kill every process of the server, and let it recover."""
    server.kill()
    server.start()


class Case(NamedTuple):
    """``act`` ends with the write that is looked at; ``look`` says what is there, before and after the crash."""

    act: Callable[[Ground], Any]
    look: Callable[[Ground, Any], Any]


def _state(ground: Ground, operation_id: Any) -> Any:
    return ground.store.outcome(operation_id).state, [s.attempt for s in ground.backend.steps(operation_id)]


def _scope(ground: Ground, _: Any) -> Any:
    (known,) = ground.backend.by_id([ground.two.id])
    assert known is not None
    return known.record.chain[-1].scope_version, known.record.chain[-1].name, ground.backend.marked([ground.two.id])


def _unchanged(ground: Ground) -> Any:
    own = new_id()
    ground.store.schemas.alter("m.c.one", ms.SetComment(None), operation_id=own)
    return own


def _failed(ground: Ground) -> Any:
    own = new_id()
    with pytest.raises(ms.EntityAlreadyExists):
        ground.store.schemas.create("m.c.one", operation_id=own)
    return own


def _forbidden(ground: Ground, times: int) -> Any:
    own = new_id()
    for attempt in range(times):
        assert ground.backend.forbid(own) == attempt + 1
    return own


def _cancelled(ground: Ground) -> Any:
    own = announce(ground, ground.one)
    assert ground.backend.cancel(own)
    return own


def _helped(ground: Ground) -> Any:
    own = announce(ground, ground.one)
    committed(ground.backend.help(helping(ground.one, applied(own, NEW_DOC))))
    return own


def _kept(ground: Ground) -> Any:
    own = _forbidden(ground, 1)
    again = commit_of(insert(ground.catalog, "one"), operation_id=own, claim=1, skip_existing=True)
    committed(ground.backend.commit(again))
    return own


def _sent(make: Callable[[Ground], Any]) -> Callable[[Ground], Any]:
    def act(ground: Ground) -> Any:
        commit = commit_of(make(ground))
        committed(ground.backend.commit(commit))
        return commit.operation_id

    return act


def _cleared(ground: Ground) -> Any:
    own = mark(ground, ground.two, seconds=0.000001)
    assert ground.backend.clear(ground.two.id, own)


def _unmarked(ground: Ground) -> Any:
    assert ground.backend.unmark(ground.two.id, freeze(ground, ground.two))


CASES = {
    "unchanged": Case(_unchanged, _state),
    "failed": Case(_failed, _state),
    "a tombstone": Case(lambda g: _forbidden(g, 1), _state),
    "a claim": Case(lambda g: _forbidden(g, 2), _state),
    "a claim that wrote nothing": Case(_kept, _state),
    "an intent": Case(lambda g: announce(g, g.one), _state),
    "a cancellation": Case(_cancelled, _state),
    "a help": Case(_helped, _state),
    "a create": Case(_sent(lambda g: insert(g.one, "x")), _state),
    "an alter": Case(_sent(lambda g: update(g.one, doc=NEW_DOC)), _state),
    "a rename": Case(_sent(lambda g: renamed(g, "three")), _scope),
    "disabled": Case(_sent(lambda g: exclusive(g.two, in_use=False, doc=NEW_DOC)), _scope),
    "a mark": Case(lambda g: mark(g, g.two), lambda g, _: [m.mark for m in g.backend.marked([g.two.id])]),
    "a freeze": Case(lambda g: freeze(g, g.two), lambda g, _: _scope(g, _)[:2]),
    "a freeze that ended": Case(_unmarked, lambda g, _: _scope(g, _)[:2]),
    "a mark that was cleared": Case(_cleared, lambda g, _: _scope(g, _)[:2]),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_what_was_answered_is_there_after_a_crash(server: PostgresServer, crashing_url: str, name: str) -> None:
    case = CASES[name]
    with ms.open(crashing_url, principal="hand") as store:
        ground = prepare(store)
        stop_wal_writer(server)
        key = case.act(ground)
        before = case.look(ground, key)
        crash(server)
        assert case.look(ground, key) == before


def test_ids_are_not_drawn_twice(server: PostgresServer, crashing_url: str) -> None:
    """Who reserved them writes them after the crash, when others draw theirs."""
    with ms.open(crashing_url) as store:
        ground = prepare(store)
        stop_wal_writer(server)
        first = ground.backend.reserve_ids(100)
        crash(server)
        assert min(ground.backend.reserve_ids(1)) > max(first)


def test_a_renewed_lease(server: PostgresServer, crashing_url: str) -> None:
    with ms.open(crashing_url) as store:
        lease = store.leases.acquire("job", ttl=60)
        stop_wal_writer(server)
        lease.renew()
        (before,) = store._session.backend.leases.rows(["job"], "", 1)[1]
        crash(server)
        (after,) = store._session.backend.leases.rows(["job"], "", 1)[1]
        assert after == before


def test_such_a_crash_loses_asynchronous_commits(server: PostgresServer, crashing_url: str) -> None:
    """The control: what does not ask for a durable commit is gone, so that the tests above can fail."""
    with ms.open(crashing_url) as store:
        ground = prepare(store)
        stop_wal_writer(server)
        with psycopg.connect(crashing_url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("UPDATE guard SET marked_at = 1 WHERE id = %s", (ground.two.id,))
        crash(server)
        with psycopg.connect(crashing_url.replace("+psycopg", "")) as connection:
            (found,) = connection.execute("SELECT marked_at FROM guard WHERE id = %s", (ground.two.id,)).fetchall()
        assert found == (None,)
