"""Cases from the field about whole subtrees: cascade drops, disabling, gc, moves, deadlocks."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

import metastore as ms
from metastore.kinds import KINDS
from tests.concurrency import broken
from tests.concurrency.checks import leftovers, seed, violations
from tests.concurrency.raw import before_commit, connect, dsn, is_sqlite, rows
from tests.concurrency.workers import Job, Team, Turn, outcome
from tests.servers.process import wait_until

NOW = timedelta(0)


def drop_subtrees(turn: Turn, rounds: int) -> None:
    """Drop a schema or the whole catalog with all that is in it, and make it again."""
    store = turn.store
    turn.meet()
    for n in range(rounds):
        if n % 5 == 4:
            store.catalogs.drop("lake.cat", cascade=True)
            store.catalogs.create("lake.cat", type="relational", if_exists="return")
        else:
            outcome(lambda: store.schemas.drop("lake.cat.s", cascade=True))
        outcome(lambda: store.schemas.create("lake.cat.s.deep.er", parents=True, if_exists="return"))


def use_children_by_path(turn: Turn, seed_number: int) -> Counter[str]:
    """Create, alter, rename and drop tables below schemas that others drop; count what came of it."""
    tables, dice, done = turn.store.tables, random.Random(seed_number), Counter[str]()
    turn.meet()
    while turn.go_on():
        where = dice.choice(("lake.cat.s", "lake.cat.s.deep", "lake.cat.s.deep.er"))
        one, two = (f"{where}.t{dice.randrange(6)}" for _ in range(2))
        calls: Sequence[Callable[[], object]] = (
            lambda: tables.create(one),
            lambda: tables.create(one, if_exists="replace", comment=str(dice.random())),
            lambda: tables.alter(one, ms.SetProperty("k", str(dice.random()))),
            lambda: tables.rename(one, two),
            lambda: tables.drop(one),
        )
        done[outcome(dice.choice(calls))] += 1
    return done


def use_children_held(turn: Turn, seed_number: int) -> Counter[str]:
    """The same with entities in hand, which save the read, and with owned rows."""
    store, dice, done = turn.store, random.Random(seed_number), Counter[str]()
    turn.meet()
    while turn.go_on():
        try:
            parent = store.schemas.load("lake.cat.s")
            table = store.tables.create(f"held{dice.randrange(6)}", parent=parent, if_exists="return")
        except ms.MetastoreError as error:
            done[type(error).__name__] += 1
            continue
        name = f"p{dice.randrange(3)}"
        done[outcome(lambda: store.partitions.create(table, name, values={"p": name}))] += 1
        done[outcome(lambda: store.tables.alter(table, ms.SetComment(str(dice.random()))))] += 1
        done[outcome(lambda: store.partitions.drop(table, name))] += 1
        done[outcome(lambda: store.tables.rename(table, f"held{dice.randrange(6)}"))] += 1
    return done


EXPECTED = {"ok", "EntityNotFound", "EntityAlreadyExists"}


def test_case_3_cascade_drop_leaves_no_orphan(url: str, team: Team) -> None:
    """3. Cascade drop of a schema or catalog while children are made, changed, renamed: no live orphan; gc leaves nothing."""
    seed(url)
    rounds = 10 if is_sqlite(url) else 40
    jobs = [Job(drop_subtrees, rounds), Job(drop_subtrees, rounds)]
    jobs += [Job(use_children_by_path, n, background=True) for n in range(4)]
    jobs += [Job(use_children_held, n, background=True) for n in range(2)]
    done: Counter[str] = sum(team.run(url, jobs)[2:], Counter())
    assert done.keys() <= EXPECTED
    assert done["ok"] > 50
    assert violations(url) == []
    with ms.open(url) as store:
        store.catalogs.drop("lake.cat", cascade=True)
        store.gc(retention=NOW, keep_versions=1)
        store.gc(retention=NOW, keep_versions=1)  # what the first one wrote
        assert [e.kind for e in store.metalakes.list()] == ["metalake"]
    assert leftovers(url) == []
    assert violations(url, collected=True) == []


def drop_empty(turn: Turn, rounds: int) -> None:
    turn.meet()
    for _ in range(rounds):
        outcome(lambda: turn.store.schemas.drop("lake.cat.s"))
        turn.store.schemas.create("lake.cat.s", if_exists="return")


def create_and_drop(turn: Turn, number: int) -> None:
    turn.meet()
    while turn.go_on():
        outcome(lambda: turn.store.tables.create(f"lake.cat.s.t{number}"))
        outcome(lambda: turn.store.tables.drop(f"lake.cat.s.t{number}"))


def test_drop_without_cascade_never_takes_a_child_along(url: str, team: Team) -> None:
    """23, concurrent. A drop without cascade finds the schema empty at the instant of the drop, or fails."""
    seed(url)
    team.run(url, [Job(drop_empty, 100), *(Job(create_and_drop, n, background=True) for n in range(3))])
    hidden = """SELECT c.id FROM guard c JOIN guard p ON p.id = c.parent_id WHERE c.state = 0 AND p.state <> 0"""
    assert rows(url, hidden) == []
    assert violations(url) == []


def orphans(url: str) -> list[str]:
    """Create a child and drop its schema so that the drop falls between the guard's check and the commit."""
    with ms.open(url) as store, ms.open(url) as other:
        parent = store.schemas.load("lake.cat.s")
        if is_sqlite(url):
            with before_commit(store, lambda: other.schemas.drop("lake.cat.s", cascade=True)):
                outcome(lambda: store.tables.create("t", parent=parent))
        else:
            _create_across_drop(url, store, other, parent)
    return violations(url)


def _create_across_drop(
    url: str, store: ms.Store, other: ms.Store, parent: ms.Schema, *, cascade: bool = True
) -> tuple[str, str]:
    """Hold up the create, inside its statement, at a name that another transaction has and gives back.

    Returns what came of the create and of the drop.
    """
    with psycopg.connect(dsn(url)) as holder, ThreadPoolExecutor(2) as pool:
        holder.execute(
            """INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
            VALUES (-9, %s, 'table', %s, 't', 't', false, 0, true, 1)""",
            (parent.id, KINDS["table"].family),
        )
        creating = pool.submit(lambda: outcome(lambda: store.tables.create("t", parent=parent)))
        assert wait_until(lambda: _waiting(url) == 1, 10)
        dropping = pool.submit(lambda: outcome(lambda: other.schemas.drop("lake.cat.s", cascade=cascade)))
        assert wait_until(lambda: dropping.done() or _waiting(url) == 2, 10)
        holder.rollback()
        return creating.result(10), dropping.result(10)


def _waiting(url: str) -> int:
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return int(rows(url, sql)[0][0])


def test_case_3_however_they_interleave(url: str) -> None:
    """3. A create whose guards were true when it looked waits for nobody, and lets no drop pass."""
    seed(url)
    assert orphans(url) == []


def test_case_3_fails_without_guards(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """3, negative control: looking at the parent without holding it makes an orphan."""
    seed(url)
    broken.ignore_guards(monkeypatch)
    (wrong,) = [v for v in orphans(url) if "no live parent" in v]
    assert "lake.cat.s.t" in wrong


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_drop_that_waited_for_a_create_sees_it(postgres_url: str, level: str) -> None:
    """A drop without cascade waits for a create in flight, and then looks with a new snapshot.

    Whatever isolation the database gives by default: the guards rest on READ COMMITTED. It may refuse others at open.
    """
    seed(postgres_url)
    with connect(postgres_url) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    try:
        ms.open(postgres_url).close()
    except ms.MetastoreError:
        return
    with ms.open(postgres_url) as store, ms.open(postgres_url) as other:
        parent = store.schemas.load("lake.cat.s")
        assert _create_across_drop(postgres_url, store, other, parent, cascade=False) == ("ok", "NotEmpty")
    assert violations(postgres_url) == []


def disable_and_enable(turn: Turn, rounds: int) -> None:
    catalogs, metalakes = turn.store.catalogs, turn.store.metalakes
    turn.meet()
    for n in range(rounds):
        if n % 2:
            metalakes.disable("lake")
            metalakes.enable("lake")
        else:
            catalogs.disable("lake.cat")
            for _ in range(10):
                assert not catalogs.load("lake.cat").in_use
            catalogs.enable("lake.cat")


def write_below(turn: Turn, number: int) -> Counter[str]:
    """Write with what was read while all was enabled."""
    store, done = turn.store, Counter[str]()
    parent = store.schemas.load("lake.cat.s")
    table = store.tables.create(f"t{number}", parent=parent)
    turn.meet()
    while turn.go_on():
        done[outcome(lambda: store.tables.alter(table, ms.SetComment(str(sum(done.values())))))] += 1
        done[outcome(lambda: store.tables.create(f"u{number}", parent=parent, if_exists="return"))] += 1
        done[outcome(lambda: store.tables.drop(f"lake.cat.s.u{number}"))] += 1
    return done


def test_case_16_a_disabled_catalog_admits_no_write(url: str, team: Team) -> None:
    """16. A disabled metalake or catalog admits no write, also not one that read it as enabled before.

    The replay of the feed finds a write between disable and enable.
    """
    seed(url)
    results = team.run(url, [Job(disable_and_enable, 40), *(Job(write_below, n, background=True) for n in range(5))])
    done: Counter[str] = sum(results[1:], Counter())
    assert done.keys() <= {"ok", "NotInUse"}
    assert violations(url) == []


def test_case_16_however_they_interleave(url: str) -> None:
    """16. Read as enabled, disabled before the commit: NotInUse, nothing written."""
    seed(url, "lake.cat.s.t")
    with ms.open(url) as store, ms.open(url) as other:
        held = store.tables.load("lake.cat.s.t")
        with before_commit(store, lambda: other.catalogs.disable("lake.cat")), pytest.raises(ms.NotInUse):
            store.tables.alter(held, ms.SetComment("late"))
        assert other.tables.load("lake.cat.s.t").version == 1
    assert violations(url) == []


def collect(turn: Turn, rounds: int) -> Counter[str]:
    found = Counter[str]()
    for _ in range(rounds):
        turn.meet()
        collected = turn.store.gc(retention=NOW, keep_versions=2)
        found.update(vars(collected))
    return found


def fill_and_drop(turn: Turn, number: int, rounds: int) -> int:
    """Make subtrees and drop them; return how many entities there is then nothing left of."""
    schemas = turn.store.schemas
    for n in range(rounds):
        top = f"lake.cat.s{number}.r{n}"
        schemas.create(f"{top}.a.b", parents=True)
        turn.store.tables.create_many(f"{top}.a", [{"name": f"t{i}"} for i in range(30)])
        turn.store.tables.create_many(f"{top}.a.b", [{"name": f"t{i}"} for i in range(30)])
        for i in range(3):
            table = turn.store.tables.load(f"{top}.a.t{i}")
            turn.store.partitions.create(table, "p", values={"p": "1"})
        turn.store.tables.drop(f"{top}.a.t0")
        turn.meet()
        schemas.drop(top, cascade=True)
    return rounds * 63


def test_case_19_gc_on_every_node_at_once(url: str, team: Team) -> None:
    """19. gc on every node at once: no error, nothing removed twice or too early, and the counts add up."""
    seed(url, "lake.cat.s.tlive")
    rounds = 4
    jobs = [Job(fill_and_drop, n, rounds) for n in range(3)] + [Job(collect, rounds) for _ in range(4)]
    results = team.run(url, jobs)
    made, removed = sum(results[:3]), sum(r["entities"] for r in results[3:])
    with ms.open(url) as store:
        last = store.gc(retention=NOW, keep_versions=2)
        assert removed + last.entities == made
        store.gc(retention=NOW, keep_versions=2)
        assert [s.name for s in store.schemas.list("lake.cat")] == ["s", "s0", "s1", "s2"]
        assert store.tables.load("lake.cat.s.tlive").version == 1
    assert leftovers(url) == []
    assert violations(url, collected=True) == []


def test_case_19_purging_leaves_what_was_restored_elsewhere(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """19. A dropped table is restored elsewhere, by its id, while the schema that it was in is being purged."""
    seed(url, "lake.cat.other")
    with ms.open(url) as store, ms.open(url) as other:
        table = store.tables.create("lake.cat.s.t", comment="precious")
        store.tables.drop(table)
        backend, came = store._session.backend, list[str]()
        delete = backend.delete_entities

        def restore_first(ids: Sequence[int]) -> int:
            if not came:
                came.append(outcome(lambda: other.tables.restore("lake.cat.s.t", id=table.id, to="lake.cat.other.t")))
            return delete(ids)

        monkeypatch.setattr(backend, "delete_entities", restore_first)
        assert store.schemas.purge("lake.cat.s")
        assert other.tables.exists("lake.cat.other.t") == (came == ["ok"])
    assert violations(url, collected=True) == []


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
    """38. Random moves of nested schemas by 6 processes deadlock, are tried again, and never form a cycle."""
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
        found.append(outcome(lambda: schemas.rename(one, f"{two}.x")))
    return found


def test_case_38_crossing_moves(url: str, team: Team) -> None:
    """38. Of two crossing moves one is done; the other finds its place gone, or below itself."""
    seed(url, *(f"lake.cat.s.{side}{n}" for n in range(40) for side in "ab"))
    for results in zip(*team.run(url, [Job(cross, first, 40) for first in (True, False)]), strict=True):
        assert sorted(results)[1] == "ok"
        assert sorted(results)[0] in {"EntityNotFound", "InvalidArgument"}
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
    """38. The victim of a deadlock (40P01) tries again, and the caller sees nothing of it."""
    seed(postgres_url, "lake.cat.s.a", "lake.cat.s.b")
    with ms.open(postgres_url) as store, psycopg.connect(dsn(postgres_url)) as adversary, ThreadPoolExecutor(1) as pool:
        a, b = (store.schemas.load(f"lake.cat.s.{n}") for n in "ab")
        adversary.execute("SET deadlock_timeout = '60s'")  # so that the store's session is the one to find out
        adversary.execute("SELECT FROM guard WHERE id = %s FOR UPDATE", (max(a.id, b.id),))
        moving = pool.submit(lambda: store.schemas.rename(a, f"{b.path}.a"))
        assert wait_until(lambda: _waiting(postgres_url) == 1, 10)
        adversary.execute("SELECT FROM guard WHERE id = %s FOR UPDATE", (min(a.id, b.id),))
        adversary.rollback()
        assert moving.result(20).path == "lake.cat.s.b.a"
        assert store.counters["conflicts_serialization"] == 1
    assert violations(postgres_url) == []


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_case_38_serialization_failures_are_retried(postgres_url: str, code: str) -> None:
    """38. Three failures of either kind in a row, raised by the server, cost three attempts and nothing else."""
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
    """38. SQLite: a writer that holds the file is waited for within the deadline, and not longer."""
    seed(sqlite_url, "lake.cat.s.t")
    with ms.open(sqlite_url, deadline=0.3) as hasty, ms.open(sqlite_url) as patient, connect(sqlite_url) as holder:
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
