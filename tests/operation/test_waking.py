"""A notice ends the wait of those that are next, or whose change was applied. Nothing rests on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn
from uuid import UUID

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres import waking
from metastore.backends.postgres.connection import NothingSent
from metastore.backends.postgres.listening import Listening
from metastore.backends.postgres.tickets import CHANNEL
from metastore.backends.postgres.waking import LISTEN, Waking
from metastore.backends.postgres.wire import Wire
from metastore.clock import SYSTEM
from metastore.operation.tickets import OwnTicket
from metastore.port.commit import Committed
from metastore.port.conditions import Guard
from metastore.store import Store
from tests.concurrency.raw import dsn
from tests.contract.ground import NEW_DOC, Ground, prepare, update
from tests.contract.intents import announce, applied, committed, conflict, document, eventually, helping
from tests.contract.test_tickets_contract import carried
from tests.servers.pgbouncer import PgBouncer

pytestmark = pytest.mark.postgres
NEVER = 600.0
"""A wait that only a notice ends in a test's time (seconds)."""


@pytest.fixture
def ground(postgres_url: str) -> Iterator[Ground]:
    with ms.open(postgres_url) as store:
        yield prepare(store)


def notices_of(store: Any) -> Waking:
    """Return what the waiters of a store wait with."""
    found: Waking = store._session.backend.notices
    return found


def listening(store: Store) -> Waking:
    """Return it, after it has begun to listen."""
    notices = notices_of(store)

    def hears() -> bool:
        notices.wait(1, 0.0, 0.0, SYSTEM)
        return notices._ear is not None

    eventually(hears)
    return notices


@contextmanager
def woken(notices: Waking, name: int | UUID) -> Iterator[Callable[[], bool]]:
    """Let a thread wait until a notice names a ticket or an operation; yield whether it waits still."""
    thread = threading.Thread(target=notices.wait, args=(name, NEVER, NEVER, SYSTEM), daemon=True)
    thread.start()
    eventually(lambda: str(name) in notices._waiters)
    yield thread.is_alive
    thread.join(30)
    assert not thread.is_alive()


@contextmanager
def heard(url: str) -> Iterator[Callable[[], list[str]]]:
    """Listen as a process does; yield what returns the payloads that came."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(LISTEN.encode())
        yield lambda: [one.payload for one in connection.notifies(timeout=0.2)]


def in_line(ground: Ground, **fields: Any) -> Any:
    """Commit the next document of ``one`` on a ticket, and leave the line."""
    return ground.send(update(ground.one, doc=NEW_DOC), leaves=(ground.one.id,), **fields)


def test_those_that_are_next_are_woken(ground: Ground, postgres_url: str) -> None:
    ids = [ground.one.id]
    with ms.open(postgres_url) as other, heard(postgres_url) as payloads:
        notices, backend = listening(other), ground.backend
        first, second, third = (backend.queue(ids, 1.0) for _ in range(3))
        with woken(notices, second):
            assert backend.leave(ids, first)
        intents = [announce(ground, ground.one, text) for text in "xy"]
        resolved = [applied(intent, document(text)) for intent, text in zip(intents, "xy", strict=True)]
        with woken(notices, third), woken(notices, intents[0]), woken(notices, intents[1]):
            committed(in_line(ground, ticket=second, carries=(carried(ground.one, 1, *resolved),)))
        fourth = backend.queue(ids, 1.0)
        with woken(notices, fourth):  # by a commit of several entities
            more = [update(ground.store.schemas.load(one.path), doc=NEW_DOC) for one in (ground.one, ground.two)]
            committed(ground.send(*more, ticket=third, leaves=tuple(ids)))
        # when nobody is in line, the owner of the oldest change applies what is left
        one = ground.store.schemas.load(ground.one.path)
        left, *others = [announce(ground, one, text) for text in "zpqr"]
        with woken(notices, left):
            assert backend.leave(ids, fourth)
        resolutions = [applied(i, document(t)) for i, t in zip((left, *others[:2]), "zpq", strict=True)]
        committed(backend.help(helping(one, *resolutions)))  # tells nobody
        told = [{*payload.split()} for payload in payloads()]
        names: list[list[Any]] = [[second], [third, *intents], [fourth], [left]]
        assert told == [{str(name) for name in each} for each in names]


def test_nothing_is_told_before_the_commit_or_of_one_that_lost(ground: Ground, postgres_url: str) -> None:
    """Another transaction holds the row, so that the commit waits in the middle of its message."""
    ids = [ground.one.id]
    first, second = ground.backend.queue(ids, 1.0), ground.backend.queue(ids, 1.0)
    holder = psycopg.connect(postgres_url.replace("+psycopg", ""))
    with heard(postgres_url) as payloads, holder:
        old = replace(update(ground.one, doc=NEW_DOC), version=7)
        assert not isinstance(ground.send(old, ticket=first, leaves=tuple(ids)), Committed)
        holder.execute("SELECT FROM entity WHERE id = %s FOR UPDATE", ids)
        commit = threading.Thread(target=in_line, args=(ground,), kwargs={"ticket": first})
        commit.start()
        assert payloads() == []
        holder.rollback()
        commit.join(30)
        assert payloads() == [str(second)]


def test_who_waits_for_nobody_pays_nothing(ground: Ground, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, executed, ids = list[tuple[str, ...]](), Wire._in_one, [ground.one.id]

    def counted(wire: Wire, texts: Any, *arguments: Any) -> Any:
        sent.append(tuple(texts))
        return executed(wire, texts, *arguments)

    monkeypatch.setattr(Wire, "_in_one", counted)
    with heard(postgres_url) as payloads:
        ground.store.schemas.alter(ground.two, ms.SetComment("a"))
        ground.store.schemas.alter("m.c.two", ms.SetComment("b"))
        ground.store.run(lambda tx: tx.schemas.alter("m.c.two", ms.SetComment("c")))
        intent = announce(ground, ground.one)
        committed(ground.backend.help(helping(ground.one, applied(intent, document("x")))))
        assert not any(waking.TELL in texts for texts in sent)
        # alone in line: one message, which tells nobody
        ticket, one = ground.backend.queue(ids, 1.0), ground.store.schemas.load(ground.one.path)
        del sent[:]
        committed(ground.send(update(one, doc=NEW_DOC), ticket=ticket, leaves=tuple(ids)))
        assert [len(texts) for texts in sent] == [2]
        assert payloads() == []
    assert notices_of(ground.store)._thread is None


def test_what_fails_behind_a_commit_is_no_failure_of_it(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "TELL", f"{waking.TELL} AND 1 / (count(*) - count(*)) > 0")
    ids, opened = [ground.one.id], ground.backend.pool.opened  # type: ignore[attr-defined]
    first, second = ground.backend.queue(ids, 1.0), ground.backend.queue(ids, 1.0)
    done = SYSTEM.operation_id()
    committed(in_line(ground, ticket=first, operation_id=done))
    assert ground.backend.line(ids, second).head is None
    # and a commit that fails leaves no transaction behind, and no connection that is closed for it
    again = update(ground.one, version=2, doc=NEW_DOC)
    conflict(ground.send(again, ticket=second, leaves=tuple(ids), operation_id=done), "operation")
    results = Wire._results
    with monkeypatch.context() as late:
        late.setattr(Wire, "_results", lambda wire, sent: _no_time() if sent == b"ROLLBACK" else results(wire, sent))
        conflict(ground.send(again, ticket=second, leaves=tuple(ids), operation_id=done), "operation")
    assert ground.backend.pool.opened is opened  # type: ignore[attr-defined]
    committed(ground.send(again, ticket=second, leaves=tuple(ids)))


def _no_time() -> NoReturn:
    raise NothingSent("the time was over before anything was sent")


def test_a_lost_notice_costs_a_wait(ground: Ground, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waking, "_note", lambda *_: None)
    monkeypatch.setattr(waking, "_AGAIN", NEVER)  # it takes notices for sure
    monkeypatch.setattr(waking, "_LINGERS", NEVER)  # the session that ends would wake it too
    with ms.open(postgres_url) as other:
        listening(other)._noted = SYSTEM.monotonic()
        first = ground.backend.queue([ground.one.id], 5.0)
        session = other._session
        mine = OwnTicket(session)
        waiting = threading.Thread(target=mine.take, args=([ground.one.id], SYSTEM.monotonic() + NEVER), daemon=True)
        waiting.start()
        eventually(lambda: mine.number is not None and str(mine.number) in notices_of(other)._waiters)
        assert ground.backend.leave([ground.one.id], first)
        waiting.join(30)
        assert not waiting.is_alive()
        mine.leave()


def waiters(url: str) -> int:
    """Return how many sessions listen for notices."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'metastore waiter'"
        return int(connection.execute(f"{count} AND datname = current_database()").fetchall()[0][0])


def test_a_process_listens_while_it_waits(ground: Ground, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notices = listening(ground.store)
    assert waiters(postgres_url) == 1
    monkeypatch.setattr(waking, "_LINGERS", 0.0)
    notices._note("0")
    notices._ear.wake()  # type: ignore[union-attr]
    eventually(lambda: waiters(postgres_url) == 0)
    monkeypatch.setattr(waking, "_LINGERS", NEVER)
    listening(ground.store)
    notices._note("5")
    waiting = threading.Thread(target=notices.wait, args=(5, NEVER, NEVER, SYSTEM), daemon=True)
    waiting.start()  # the notice came between the look and the wait
    waiting.join(30)
    assert not waiting.is_alive()
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection, woken(notices, 7):
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'metastore waiter'"
        )
    assert notices._ear is None
    assert notices._rests > SYSTEM.monotonic()
    notices._rests = 0.0
    listening(ground.store)
    ground.store.close()
    assert waiters(postgres_url) == 0


def test_a_forked_child_listens_by_itself(ground: Ground, postgres_url: str) -> None:
    notices = listening(ground.store)
    child = os.fork()
    if child == 0:
        os._exit(0 if (notices._ear, notices._thread, notices._waiters) == (None, None, {}) else 1)
    assert os.waitpid(child, 0)[1] == 0
    with woken(notices, 7), psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute(f"SELECT pg_notify({CHANNEL}, '7')")  # as anybody may
        connection.commit()
        assert waiters(postgres_url) == 1


def test_two_stores_in_one_database_hear_only_their_own(postgres_url: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        here = connection.execute(f"SELECT {CHANNEL}").fetchall()
        connection.execute("CREATE SCHEMA second; SET search_path = second; CREATE TABLE ticket ()")
        assert connection.execute(f"SELECT {CHANNEL}").fetchall() != here


def test_behind_a_pooler_waiters_look(pgbouncer: PgBouncer) -> None:
    direct = pgbouncer.server.create_database()
    ms.migrate(direct)
    with ms.open(pgbouncer.url(direct.rpartition("/")[2])) as store:
        ground, notices = prepare(store), notices_of(store)
        for _ in range(2):
            notices.wait(1, 0.0, NEVER, SYSTEM)
        eventually(lambda: notices._thread is None)
        assert notices._ear is None
        ids = [ground.one.id]
        first, second = ground.backend.queue(ids, 1.0), ground.backend.queue(ids, 1.0)
        with heard(direct) as payloads:
            committed(in_line(ground, ticket=first, guards=(Guard(0, 1),)))
            assert payloads() == []
        assert ground.backend.line(ids, second).head is None
    pgbouncer.server.drop_database(direct)


def test_wakers_do_not_wait_for_a_listener_that_does_not_look(postgres_url: str) -> None:
    ear = Listening(psycopg.connect(dsn(postgres_url), autocommit=True))
    try:
        for _ in range(1 << 17):  # more than a pipe holds
            ear.wake()
        assert ear.heard(30.0) == []
    finally:
        ear.close()
