"""Cases from the field about moves that cross, and about what the database gives up: deadlocks and their like."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect, dsn, waiting_for_locks
from tests.concurrency.workers import Job, Team, Turn, outcome
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

FOREST = [f"lake.cat.s.m{n}" for n in range(8)]


def move_about(turn: Turn, seed_number: int, rounds: int) -> Counter[str]:
    """Hang random schemas below random others."""
    schemas, dice, done = turn.store.schemas, random.Random(seed_number), Counter[str]()
    ids = {s.name: s for s in schemas.list("lake.cat.s")}
    turn.meet()
    for _ in range(rounds):
        one, two = (ids[dice.choice(sorted(ids))] for _ in range(2))

        def move(one: ms.Schema = one, two: ms.Schema = two) -> None:
            place = schemas.load(two).names if dice.random() < 0.85 else ("lake", "cat", "s")
            schemas.rename(one, (*place, one.name))

        done[outcome(move)] += 1
    return done


def test_case_38_concurrent_moves_never_form_a_cycle(url: str, team: Team) -> None:
    """Field case 38: Random moves of nested schemas by 6 processes deadlock, are retried, and never form a cycle."""
    seed(url, *FOREST)
    done: Counter[str] = sum(team.run(url, [Job(move_about, n, 40) for n in range(6)]), Counter())
    assert done.keys() <= {"ok", "InvalidArgument", "EntityNotFound"}, done
    assert done["ok"] > 40
    assert violations(url) == []  # among them: a row below itself, and every path at every move
    with ms.open(url) as store:
        moved = Counter(e.name for e in _nested(store, "lake.cat.s"))
        assert moved == {f"m{n}": 1 for n in range(8)}


def _nested(store: ms.Store, top: str) -> list[ms.Schema]:
    found, stack = list[ms.Schema](), list(store.schemas.list(top))
    while stack:
        found.append(stack.pop())
        stack += store.schemas.list(found[-1])
    return found


def cross(turn: Turn, first: bool, rounds: int) -> list[str]:
    schemas, found = turn.store.schemas, []
    for n in range(rounds):
        one, two = (f"lake.cat.s.a{n}", f"lake.cat.s.b{n}")[:: 1 if first else -1]
        turn.meet()
        found.append(outcome(schemas.rename, one, f"{two}.x"))
    return found


def test_case_38_crossing_moves(url: str, team: Team) -> None:
    """Field case 38: Of two crossing moves one is done; the other finds its place gone, or below itself."""
    seed(url, *(f"lake.cat.s.{side}{n}" for n in range(40) for side in "ab"))
    for results in zip(*team.run(url, [Job(cross, first, 40) for first in (True, False)]), strict=True):
        assert max(results) == "ok"
        assert min(results) in {"EntityNotFound", "InvalidArgument"}
    assert violations(url) == []


def test_move_below_itself_is_refused(url: str) -> None:
    """A schema cannot move below itself, at any depth."""
    seed(url, "lake.cat.s.a.b.c")
    with ms.open(url) as store:
        held = store.schemas.load("lake.cat.s.a")
        for target in (held, "lake.cat.s.a"):
            for to in ("lake.cat.s.a.x", "lake.cat.s.a.b.x", "lake.cat.s.a.b.c.x"):
                with pytest.raises(ms.InvalidArgument):
                    store.schemas.rename(target, to)
    assert violations(url) == []


def test_case_38_a_deadlock_is_retried(postgres_url: str) -> None:
    """Field case 38: The victim of a deadlock (40P01) tries again, and the caller sees nothing of it."""
    seed(postgres_url, "lake.cat.s.a", "lake.cat.s.b")
    with ms.open(postgres_url) as store, psycopg.connect(dsn(postgres_url)) as adversary, ThreadPoolExecutor(1) as pool:
        a, b = (store.schemas.load(f"lake.cat.s.{n}") for n in "ab")
        adversary.execute("SET deadlock_timeout = '60s'")  # so that the store's session is the one to find out
        adversary.execute("SELECT FROM guard WHERE id = %s FOR UPDATE", (max(a.id, b.id),))
        moving = pool.submit(lambda: store.schemas.rename(a, f"{b.path}.a"))
        assert wait_until(lambda: waiting_for_locks(postgres_url) == 1, 10)
        adversary.execute("SELECT FROM guard WHERE id = %s FOR UPDATE", (min(a.id, b.id),))
        adversary.rollback()
        assert moving.result(20).path == "lake.cat.s.b.a"
        # the one or the other: it does not wait for a lock as long as PostgreSQL waits before it looks for a deadlock
        assert store.counters["conflicts_serialization"] + store.counters["conflicts_busy"] >= 1
    assert violations(postgres_url) == []


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_case_38_serialization_failures_are_retried(postgres_url: str, code: str) -> None:
    """Field case 38: Three failures of either kind in a row, raised by the server, cost three attempts, no more."""
    seed(postgres_url, "lake.cat.s.t")
    with connect(postgres_url) as connection, ms.open(postgres_url) as store:
        connection.execute(
            f"""CREATE SEQUENCE failures;
            CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              IF nextval('failures') <= 3 THEN RAISE EXCEPTION 'misslungen' USING ERRCODE = '{code}'; END IF;
              RETURN NEW; END $$;
            CREATE TRIGGER fail BEFORE INSERT ON operation FOR EACH ROW EXECUTE FUNCTION fail()"""
        )
        assert store.tables.alter("lake.cat.s.t", ms.SetComment("x")).version == 2
        assert store.counters["conflicts_serialization"] == 3
        connection.execute("SELECT setval('failures', 1, false)")
        assert store.schemas.rename("lake.cat.s", "s2").version == 2  # by a pipeline or not
        assert store.counters["conflicts_serialization"] == 6
    assert violations(postgres_url) == []


def test_case_38_a_busy_file_is_waited_for(sqlite_url: str) -> None:
    """Field case 38: SQLite: a writer that holds the file is waited for within the deadline, and not longer."""
    seed(sqlite_url, "lake.cat.s.t")
    with ms.open(sqlite_url, deadline=1.0) as hasty, ms.open(sqlite_url) as patient, connect(sqlite_url) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(ms.DeadlineExceeded):
            hasty.tables.alter("lake.cat.s.t", ms.SetComment("hasty"))
        started = threading.Event()

        def alter() -> ms.Table:
            started.set()
            return patient.tables.alter("lake.cat.s.t", ms.SetComment("patient"))

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(alter)
            assert started.wait(10)
            holder.execute("ROLLBACK")
            assert waiting.result(10).comment == "patient"
    assert violations(sqlite_url) == []
