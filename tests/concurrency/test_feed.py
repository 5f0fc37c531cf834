"""The change feed under writers that stall and roll back: it misses and reorders nothing, and replays to the tables."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.backend import PostgresBackend
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect, dsn, is_sqlite, rows
from tests.concurrency.replay import broken_events, tree_of
from tests.concurrency.workers import Job, Team, Turn, outcome

pytestmark = pytest.mark.one_in(3)

PROCESSES, THREADS = 4, 4


def write_with_threads(turn: Turn, number: int) -> int:
    """Four writers with stores of their own; return how many changes the feed must have of them."""
    with ThreadPoolExecutor(THREADS) as pool:
        turn.meet()
        return sum(pool.map(lambda n: _write(turn.url, number * THREADS + n), range(THREADS)))


def _write(url: str, number: int) -> int:
    dice = random.Random(number)
    with ms.open(url, principal=f"writer-{number}") as store:
        for n in range(4 if is_sqlite(url) else 12):
            schema = f"lake.cat.s{dice.randrange(3)}"
            table = f"{schema}.t{dice.randrange(8)}"
            outcome(store.schemas.create, schema, if_exists="return")
            outcome(store.tables.create, table)
            outcome(store.tables.alter, table, ms.SetComment(f"{number} {n}"))
            outcome(store.partitions.create, table, f"p{number}", values={"p": "1"})
            outcome(store.tables.rename, table, f"t{dice.randrange(8)}")
            if n % 4 == 3:
                outcome(store.schemas.drop, schema, cascade=True)
        return store.counters["commits"]


def stall_and_roll_back(turn: Turn, number: int) -> int:
    """Transactions that draw a position, wait for a random time, and roll back half of the time."""
    dice, committed = random.Random(number), 0
    if is_sqlite(turn.url):
        return 0  # who stalls there, stalls all
    with psycopg.connect(dsn(turn.url)) as connection:
        turn.meet()
        while turn.go_on():
            _draw(connection, number, dice.randrange(1 << 62))
            connection.execute("SELECT pg_sleep(%s)", (dice.random() * 0.02,))
            if dice.random() < 0.5:
                connection.rollback()
            else:
                connection.commit()
                committed += 1
    return committed


def _draw(connection: psycopg.Connection, number: int, dice: int) -> int:
    """Write a change of a made-up metalake, inside a transaction that is still open; return its position."""
    ((seq,),) = connection.execute(
        """WITH own AS MATERIALIZED (SELECT pg_current_xact_id())
        INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, time, path_after,
          changes)
        SELECT 99, gen_random_uuid(), 0, nextval('change_seq'), -%s, 1, 'metalake', 'create', 0, %s, '[]' FROM own
        RETURNING seq""",
        (dice, f"stalled-{number}-{dice}"),
    ).fetchall()
    return int(seq)


def follow(turn: Turn, writers: int) -> list[ms.Change]:
    """Read the feed, from one position to the next, in pages of random sizes, while others write."""
    dice, seen = random.Random(7), list[ms.Change]()
    turn.meet()
    going = True
    while going:
        going = turn.go_on()
        limit = dice.choice((1, 7, 100, None)) if going else None
        seen += turn.store.changes(after=seen[-1].position if seen else None, limit=limit)
    return seen


def _positions(url: str) -> list[int]:
    return [seq for (seq,) in rows(url, "SELECT seq FROM operation WHERE seq IS NOT NULL ORDER BY seq")]


def _seq(change: ms.Change) -> int:
    return int(change.position.rpartition("-")[2][:16], 16)


def test_feed_under_16_writers(url: str, team: Team) -> None:
    """Field case 14: a reader that goes on from its last position sees every change once, in the order of commits."""
    seed(url)
    jobs = [Job(write_with_threads, n) for n in range(PROCESSES)]
    jobs += [Job(stall_and_roll_back, n, background=True) for n in range(2)]
    jobs += [Job(follow, PROCESSES, background=True) for _ in range(2)]
    *written, first, second = team.run(url, jobs)
    with ms.open(url) as store:
        for followed in (first, second):
            last = followed[-1]
            assert [_seq(c) for c in followed] == [s for s in _positions(url) if s <= _seq(last)]
            seen = [*followed, *store.changes(after=last.position)]  # what came while it was told to stop
            assert [_seq(c) for c in seen] == _positions(url)
            ours = [c for c in seen if not (c.path_after or "").startswith("stalled")]
            assert len(seen) - len(ours) == sum(written[PROCESSES:])
            replay, wrong = broken_events(ours)
            assert wrong == []
            assert replay.tree() == tree_of(store)
            assert len(ours) == 3 + sum(written[:PROCESSES])


def _naive(url: str, after: int) -> list[int]:
    """What a reader sees that goes by the highest position so far."""
    return [seq for (seq,) in rows(url, f"SELECT seq FROM operation WHERE seq > {after} ORDER BY seq")]


class _Follower:
    """Our reader, and where it is."""

    def __init__(self, store: ms.Store) -> None:
        self._store = store
        self._after = list(store.changes())[-1].position

    def read(self) -> list[int]:
        seen = list(self._store.changes(after=self._after))
        self._after = seen[-1].position if seen else self._after
        return [_seq(c) for c in seen]


@pytest.mark.parametrize("commits", [True, False])
def test_late_commit_is_not_missed(postgres_url: str, commits: bool) -> None:
    """Field case 14: T1 draws a position, T2 a later one and commits; a naive reader misses T1's, and ours waits.

    Also when T1 rolls back: what it drew is a gap that is known to be final, and nobody waits for it for ever.
    """
    seed(postgres_url)
    with ms.open(postgres_url) as store, psycopg.connect(dsn(postgres_url)) as late:
        last = _positions(postgres_url)[-1]
        ours = _Follower(store)
        one = _draw(late, 1, 1)
        store.tables.create("lake.cat.s.t")
        two = one + 1
        naive = _naive(postgres_url, last)
        assert naive == [two]  # it has gone past
        assert ours.read() == []  # not decided
        if commits:
            late.commit()
        else:
            late.rollback()
        assert _naive(postgres_url, naive[-1]) == []  # the negative control: T1 is lost to it
        assert ours.read() == ([one, two] if commits else [two])
        assert ours.read() == []


def test_a_gap_below_is_decided_before_what_is_above(postgres_url: str) -> None:
    """Two open transactions, of which the later one ends first: nothing is delivered that may still be preceded."""
    seed(postgres_url)
    with (
        ms.open(postgres_url) as store,
        psycopg.connect(dsn(postgres_url)) as first,
        psycopg.connect(dsn(postgres_url)) as second,
    ):
        ours = _Follower(store)
        one = _draw(first, 1, 1)
        between = _draw(second, 2, 2)
        store.tables.create("lake.cat.s.t1")
        assert ours.read() == []
        second.commit()
        assert ours.read() == []
        three = _draw(second, 2, 3)
        first.commit()
        store.tables.create("lake.cat.s.t2")
        assert ours.read() == [one, between, between + 1]
        second.rollback()
        assert ours.read() == [three + 1]


def test_what_was_decided_ends_with_a_fail_over_that_lost_commits(postgres_url: str) -> None:
    """The server that goes on gives the lost positions to other changes: one that commits late is not skipped."""
    seed(postgres_url)
    admin, _, name = dsn(postgres_url).rpartition("/")
    with psycopg.connect(f"{admin}/postgres", autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}_behind TEMPLATE {name}".encode())
        with ms.open(postgres_url) as store:
            after = _positions(postgres_url)[-1]
            feed = cast(PostgresBackend, store._session.backend).feed
            with psycopg.connect(dsn(postgres_url)) as late:
                for n in range(3):
                    _draw(late, 1, n)
                late.rollback()
            store.tables.create("lake.cat.s.lost")
            assert [step.seq for step in feed(after, 10).rows] == [after + 4], "the three are known to be gaps"
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            server.execute(f"ALTER DATABASE {name}_behind RENAME TO {name}".encode())
            with psycopg.connect(dsn(postgres_url)) as late, psycopg.connect(dsn(postgres_url)) as soon:
                one, two = _draw(late, 1, 1), _draw(soon, 2, 2)
                soon.commit()
                assert [step.seq for step in feed(after, 10).rows] == []
                late.commit()
                assert [step.seq for step in feed(after, 10).rows] == [one, two]


def test_many_threads_follow_one_store(postgres_url: str) -> None:
    """Readers in threads of one store, while gaps come and go, each see everything once."""
    seed(postgres_url)
    over = threading.Event()

    def read(_: int) -> list[int]:
        after, seen = None, list[int]()
        while True:
            ending = over.is_set()
            found = list(store.changes(after=after))
            seen += map(_seq, found)
            after = found[-1].position if found else after
            if ending and not found:
                return seen

    with ms.open(postgres_url) as store, psycopg.connect(dsn(postgres_url)) as stalls, ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read, n) for n in range(6)]
        try:
            for n in range(60):
                _draw(stalls, 1, n)
                store.tables.create(f"lake.cat.s.t{n}")
                (stalls.commit if n % 2 else stalls.rollback)()
        finally:
            over.set()
        for reader in readers:
            assert reader.result(30) == _positions(postgres_url)


def test_every_event_has_its_commit(url: str) -> None:
    """Field case 32: If the event cannot be written, the entity is not written either."""
    seed(url, "lake.cat.s.t")
    with ms.open(url) as store, _events_refused(url):
        for call in (
            lambda: store.tables.create("lake.cat.s.t2"),
            lambda: store.tables.alter("lake.cat.s.t", ms.SetComment("x")),
            lambda: store.tables.rename("lake.cat.s.t", "t3"),
            lambda: store.tables.drop("lake.cat.s.t"),
        ):
            with pytest.raises(Exception, match="refused"):
                call()
        assert list(store.tables.names("lake.cat.s")) == ["t"]
        assert store.tables.load("lake.cat.s.t").version == 1
    assert violations(url) == []


def _refusal(url: str) -> str:
    if is_sqlite(url):
        return "CREATE TRIGGER refuse BEFORE INSERT ON operation BEGIN SELECT RAISE(ABORT, 'refused'); END"
    return """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '23514'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON operation FOR EACH ROW EXECUTE FUNCTION refuse()"""


@contextmanager
def _events_refused(url: str) -> Iterator[None]:
    with connect(url) as connection:
        connection.execute(_refusal(url))
        yield
        connection.execute(f"DROP TRIGGER refuse{'' if is_sqlite(url) else ' ON operation'}")
