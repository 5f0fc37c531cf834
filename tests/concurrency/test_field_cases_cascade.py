"""Cases from the field about drops of whole subtrees while others work in them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import psycopg
import pytest

import metastore as ms
from metastore.kinds.registry import KINDS
from tests.concurrency import broken
from tests.concurrency.checks import leftovers, seed, violations
from tests.concurrency.raw import before_commit, connect, dsn, is_sqlite, rows, waiting_for_locks
from tests.concurrency.workers import Job, Team, Turn, outcome
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

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
            outcome(store.schemas.drop, "lake.cat.s", cascade=True)
        outcome(store.schemas.create, "lake.cat.s.deep.er", parents=True, if_exists="return")


def use_children_by_path(turn: Turn, seed_number: int) -> Counter[str]:
    """Create, alter, rename and drop tables below schemas that others drop; count what came of it."""
    tables, dice, done = turn.store.tables, random.Random(seed_number), Counter[str]()
    turn.meet()
    while turn.go_on():
        where = dice.choice(("lake.cat.s", "lake.cat.s.deep", "lake.cat.s.deep.er"))
        one, two = (f"{where}.t{dice.randrange(6)}" for _ in range(2))
        calls: Sequence[Callable[[], object]] = (
            partial(tables.create, one),
            partial(tables.create, one, if_exists="replace", comment=str(dice.random())),
            partial(tables.alter, one, ms.SetProperty("k", str(dice.random()))),
            partial(tables.rename, one, two),
            partial(tables.drop, one),
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
        done[outcome(store.partitions.create, table, name, values={"p": name})] += 1
        done[outcome(store.tables.alter, table, ms.SetComment(str(dice.random())))] += 1
        done[outcome(store.partitions.drop, table, name)] += 1
        done[outcome(store.tables.rename, table, f"held{dice.randrange(6)}")] += 1
    return done


EXPECTED = {"ok", "EntityNotFound", "EntityAlreadyExists"}


def test_case_3_cascade_drop_leaves_no_orphan(url: str, team: Team) -> None:
    """Field case 3: Cascade drops while children are made, changed, renamed: no live orphan; gc leaves nothing."""
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
        outcome(turn.store.schemas.drop, "lake.cat.s")
        turn.store.schemas.create("lake.cat.s", if_exists="return")


def create_and_drop(turn: Turn, number: int) -> None:
    turn.meet()
    while turn.go_on():
        outcome(turn.store.tables.create, f"lake.cat.s.t{number}")
        outcome(turn.store.tables.drop, f"lake.cat.s.t{number}")


def test_drop_without_cascade_never_takes_a_child_along(url: str, team: Team) -> None:
    """Field case 23, concurrent: A drop without cascade finds the schema empty at the instant of the drop, or fails."""
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
                outcome(store.tables.create, "t", parent=parent)
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
        creating = pool.submit(lambda: outcome(store.tables.create, "t", parent=parent))
        assert wait_until(lambda: waiting_for_locks(url) == 1, 10)
        dropping = pool.submit(lambda: outcome(other.schemas.drop, "lake.cat.s", cascade=cascade))
        assert wait_until(lambda: dropping.done() or waiting_for_locks(url) == 2, 10)
        holder.rollback()
        return creating.result(10), dropping.result(10)


def test_case_3_however_they_interleave(url: str) -> None:
    """Field case 3: A create whose guards were true when it looked waits for nobody, and lets no drop pass."""
    seed(url)
    assert orphans(url) == []


def test_case_3_fails_without_guards(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 3, negative control: looking at the parent without holding it makes an orphan."""
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
