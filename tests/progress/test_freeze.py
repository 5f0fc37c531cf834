"""Freeze: a schema for oneself, without a lock; who dies, or comes again and again, keeps nobody from working."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

import metastore as ms
from metastore.port.commit import CommitOutcome
from metastore.port.intents import Mark
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect, is_sqlite
from tests.concurrency.workers import Job, Team, Turn
from tests.progress.parked import Parked

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

SCHEMA, PATH = "lake.cat.s", "lake.cat.s.t"
Call = Callable[[], object]


def everything_below(store: ms.Store, table: ms.Table) -> dict[str, Call]:
    """What writes below the schema, or the schema itself."""
    schemas, tables = store.schemas, store.tables
    return {
        "create": lambda: tables.create(f"{SCHEMA}.other"),
        "create_many": lambda: tables.create_many(SCHEMA, [{"name": "a"}, {"name": "b"}]),
        "alter": lambda: tables.alter(PATH, ms.SetComment("other")),
        "alter in hand": lambda: tables.alter(table, ms.SetComment("other")),
        "rename": lambda: tables.rename(PATH, "other"),
        "move away": lambda: tables.rename(PATH, "lake.cat.o.t"),
        "move here": lambda: tables.rename("lake.cat.o.t2", f"{SCHEMA}.t2"),
        "drop": lambda: tables.drop(PATH),
        "partition": lambda: store.partitions.create(PATH, "p", values={"a": "1"}),
        "deeper": lambda: schemas.create(f"{SCHEMA}.deep.deeper", parents=True),
        "alter the schema": lambda: schemas.alter(SCHEMA, ms.SetComment("other")),
        "rename the schema": lambda: schemas.rename(SCHEMA, "other"),
        "drop the schema": lambda: schemas.drop(SCHEMA, cascade=True),
        "freeze": lambda: schemas.exclusive(SCHEMA, timeout=0.3).__enter__(),
        "transaction": lambda: store.run(lambda tx: tx.tables.create(f"{SCHEMA}.other"), deadline=0.3),
    }


def refused(call: Call) -> ms.ScopeFrozen:
    """Return the error of a call, in time. On a busy machine its deadline may pass before it meets the freeze."""
    for _ in range(20):
        began = time.monotonic()
        try:
            call()
        except ms.ScopeFrozen as error:
            assert time.monotonic() - began < 10
            return error
        except (ms.DeadlineExceeded, ms.OutcomeUnknown):
            continue
        break
    raise AssertionError("nobody said that the scope is frozen")


@pytest.mark.each_run_on("postgres")
def test_nobody_else_writes(url: str) -> None:
    """Each is told which operation is in the way; all may read; the holder's block is one commit."""
    seed(url, PATH, "lake.cat.o.t2")
    with ms.open(url) as store, ms.open(url) as other, ms.open(url) as patient:
        hurried = patient.bind(deadline=0.3)
        table = other.tables.load(PATH)
        feed = len(list(store.changes()))
        with store.schemas.exclusive(SCHEMA) as tx:
            tx.tables.alter(PATH, ms.SetComment("mine"))
            tx.tables.create(f"{SCHEMA}.new")
            for name, call in everything_below(hurried, table).items():
                assert refused(call).operation == tx._id, name
            assert other.tables.load(PATH) == table
            assert list(other.tables.names(SCHEMA)) == ["t"]
            assert other.tables.create("lake.cat.o.t3").version == 1  # beside it
            assert other.catalogs.alter("lake.cat", ms.SetComment("above")).version == 2
            assert len(list(store.changes())) == feed + 2
        assert list(other.tables.names(SCHEMA)) == ["new", "t"]
        assert other.tables.load(PATH).comment == "mine"
        assert [c.operation_id for c in store.changes()][-2:] == [tx._id] * 2
        for name in ("alter", "create", "alter the schema"):
            everything_below(other, table)[name]()
    assert violations(url) == []


def writer(turn: Turn, number: int) -> int:
    """Write below the schema, and the schema itself, for as long as others are at it, and once at least."""
    done = 0
    while turn.go_on() or not done:
        turn.store.tables.create(f"{SCHEMA}.t{number}_{done}")
        turn.store.tables.alter(f"{SCHEMA}.t{number}_{done}", ms.SetComment("x"))
        turn.store.schemas.alter(SCHEMA, ms.SetProperty(f"p{number}", str(done)))
        done += 1
    return done


def looker(turn: Turn, rounds: int, freezes: bool) -> int:
    """Look at the schema twice in a block; return how often somebody had written it in between.

    Without a freeze it looks until it has seen that: on a busy machine the others may not run for a while.
    """
    changed, looked, store = 0, 0, turn.store
    while looked < rounds or not (freezes or changed or looked > 500):
        looked += 1
        block = store.schemas.exclusive(SCHEMA) if freezes else store.transaction()
        try:
            with block as tx:
                tx.schemas.alter(SCHEMA, ms.SetComment(str(time.monotonic())))
                seen = [(t.id, t.version) for t in store.tables.list(SCHEMA)], store.schemas.load(SCHEMA).version
                time.sleep(0.03)
                again = [(t.id, t.version) for t in store.tables.list(SCHEMA)], store.schemas.load(SCHEMA).version
                changed += seen != again
        except ms.VersionConflict:
            assert not freezes
    return changed


def test_nothing_changes_meanwhile(team: Team, url: str) -> None:
    """Four processes write below it all the time; a plain transaction (the negative control) sees them do so."""
    seed(url)
    frozen = team.run(url, [*[Job(writer, n, background=True) for n in range(4)], Job(looker, 8, True)])
    plain = team.run(url, [*[Job(writer, n + 4, background=True) for n in range(4)], Job(looker, 8, False)])
    assert frozen[-1] == 0
    assert plain[-1] > 0
    assert all(done > 0 for done in (*frozen[:-1], *plain[:-1]))
    assert violations(url) == []


def hold(store: ms.Store, ttl: float) -> None:
    """Freeze, and write something at the end; it parks where it would commit."""
    with store.schemas.exclusive(SCHEMA, ttl=ttl) as tx:
        tx.tables.create(f"{SCHEMA}.late")


@pytest.mark.each_run_on("postgres")
def test_a_holder_is_killed(url: str) -> None:
    """Others wait for its ttl, and not longer."""
    seed(url, PATH)
    with Parked(url, "commit", hold, 3.0) as parked, ms.open(url) as store:
        began = time.monotonic()
        parked.kill()
        (mark,) = store.stats().marks
        said = refused(lambda: store.tables.create(f"{SCHEMA}.new", deadline=0.5))
        assert said.operation == UUID(mark.operation_id)
        store.tables.create(f"{SCHEMA}.new")
        assert time.monotonic() - began < 3.0 + 10
        assert store.stats().marks == ()
        with store.schemas.exclusive(SCHEMA) as tx:
            tx.tables.drop(f"{SCHEMA}.new")
        assert not store.tables.exists(f"{SCHEMA}.late")
    assert violations(url) == []


def test_one_that_is_not_got_ends_in_time(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is not of this library locks the schema when it is marked: the mark is left to its ttl."""
    seed(postgres_url, PATH)
    with ms.open(postgres_url, deadline=60.0) as store, connect(postgres_url) as other:
        backend, schema = store._session.backend, store.schemas.load(SCHEMA)
        put, marks = backend.mark, list[Mark]()

        def mark(one: Mark) -> CommitOutcome:
            marks.append(one)
            if len(marks) > 1:
                other.execute("BEGIN")
                other.execute("SELECT FROM guard WHERE id = %s FOR UPDATE", (schema.id,))
            return put(one)

        monkeypatch.setattr(backend, "mark", mark)
        began = time.monotonic()
        with pytest.raises((ms.DeadlineExceeded, ms.ScopeFrozen)):
            store.schemas.exclusive(SCHEMA, timeout=1.0).__enter__()
        assert len(marks) == 2
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("met", [True, False], ids=["mark cleared", "nobody came"])
def test_a_holder_past_its_ttl(url: str, met: bool) -> None:
    """A mark never lapses by itself; once somebody has taken it away, nothing of the block is written."""
    seed(url, PATH)
    with Parked(url, "commit", hold, 0.2) as parked, ms.open(url) as store:
        time.sleep(0.3)
        if met:
            store.tables.alter(PATH, ms.SetComment("other"))
        how, answer = parked.go_on()
        if met:
            assert (how, type(answer)) == ("raised", ms.VersionConflict)
        else:
            assert how == "returned"
        assert store.tables.exists(f"{SCHEMA}.late") != met
        assert store.stats().marks == ()
    assert violations(url) == []


ABOVE: dict[str, Callable[[ms.Store], object]] = {
    "rename": lambda store: store.catalogs.rename("lake.cat", "renamed"),
    "drop": lambda store: store.catalogs.drop("lake.cat", cascade=True),
    "disable": lambda store: store.catalogs.disable("lake.cat"),
    "rename at the top": lambda store: store.metalakes.rename("lake", "pond"),
}


@pytest.mark.parametrize("what", ABOVE)
def test_an_operation_on_an_ancestor(url: str, what: str) -> None:
    """It is not kept out; the holder's commit fails, and names it."""
    seed(url, PATH)
    names = ("lake", "pond") if "top" in what else ("lake.cat", "lake.renamed")  # before or after
    with ms.open(url) as store, ms.open(url) as other:
        freeze = store.schemas.exclusive(SCHEMA)
        tx = freeze.__enter__()
        tx.tables.alter(PATH, ms.SetComment("mine"))
        ABOVE[what](other)
        with pytest.raises(ms.VersionConflict) as caught:
            freeze.__exit__(None, None, None)
        assert caught.value.path in names
        assert caught.value.path in str(caught.value)
        assert store.stats().marks == ()
        assert [c.action for c in store.changes()].count("alter") == 0
    assert violations(url) == []


def creator(turn: Turn, number: int, flag: str) -> int:
    """Create until the flag is there; return how many, of all that the deadline let through. Say when the first is."""
    schema, done, tried = turn.store.schemas.load(SCHEMA), 0, 0
    turn.meet()
    while not Path(flag).exists():
        tried += 1
        try:
            turn.store.tables.create(f"t{number}_{tried}", parent=schema, deadline=2.0)
            done += 1
            Path(f"{flag}.{number}").touch()
        except (ms.ScopeFrozen, ms.DeadlineExceeded, ms.OutcomeUnknown):
            pass
    return done


def freezer(turn: Turn, seconds: float, flag: str, most: float) -> int:
    """Freeze for 20 ms at a time, again and again: until each of the eight has created one, or ``most`` is over."""
    times = 0
    turn.meet()
    try:
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds or (now < most and len(_begun(flag)) < 8):
            with turn.store.schemas.exclusive(SCHEMA) as tx:
                tx.schemas.alter(SCHEMA, ms.SetProperty("n", str(times)))
                time.sleep(0.02)
            times += 1
    finally:
        Path(flag).touch()
    return times


def _begun(flag: str) -> list[Path]:
    return list(Path(flag).parent.glob(f"{Path(flag).name}.*"))


def freeze_and_create(team: Team, url: str, flag: str, first: int = 0, most: float = 60.0) -> tuple[list[int], int]:
    """Let eight create while three freeze; return how many each created, and how often was frozen."""
    creators = [Job(creator, first + n, flag) for n in range(8)]
    done = team.run(url, [*creators, *[Job(freezer, 3.0, flag, most) for _ in range(3)]])
    return done[:8], sum(done[8:])


@pytest.mark.only_whole
@pytest.mark.each_run_on("postgres")
def test_freezing_again_and_again_starves_nobody(team: Team, url: str, tmp_path: Path) -> None:
    """6a. After each freeze it is the others' turn: eight creators go on beside it."""
    seed(url)
    created, frozen = freeze_and_create(team, url, str(tmp_path / "over"))
    assert frozen >= 3
    assert all(n > 0 for n in created), (created, frozen)
    assert sum(created) > 2 * frozen, (created, frozen)
    assert violations(url) == []
    if not is_sqlite(url):
        check_without_the_others_turn(team, url, str(tmp_path / "over again"), sum(created) / frozen)


def check_without_the_others_turn(team: Team, url: str, flag: str, before: float) -> None:
    """The negative control: a trigger takes the others' turn away. ``before``: how many were created per freeze."""
    with connect(url) as connection:
        connection.execute(
            """CREATE FUNCTION at_once() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN NEW.quiet_until := NULL; RETURN NEW; END';
            CREATE TRIGGER at_once BEFORE UPDATE ON guard FOR EACH ROW EXECUTE FUNCTION at_once()"""
        )
        connection.execute("UPDATE guard SET quiet_until = NULL")
    created, frozen = freeze_and_create(team, url, flag, first=8, most=0.0)
    assert sum(created) / frozen < before / 3, (created, frozen, before)
