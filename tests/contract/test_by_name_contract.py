"""A rename and a drop by path: the commit finds the entity by its name, below parents that are remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import patch

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.by_name import EMPTY
from metastore.operation import decide
from tests.contract.ground import Ground
from tests.contract.intents import eventually
from tests.servers.proxy import PostgresProxy

RENAMED, DROPPED = PATHS = ("m.c.one.r", "m.c.one.d")
Act = Callable[[ms.Store, str], object]


def _swap(store: ms.Store, path: str) -> None:
    """Blue, green: the sibling takes the name."""
    store.tables.rename(path, f"{path}_blue")
    store.tables.rename(f"{path}_green", path)


def _again(store: ms.Store, path: str) -> None:
    store.tables.drop(path)
    store.tables.create(path)


def _restored(store: ms.Store, path: str) -> None:
    store.tables.drop(path)
    store.tables.restore(path)


def _another_kind(store: ms.Store, path: str) -> None:
    store.tables.drop(path)
    store.views.create(path)


def _once(act: Callable[[ms.Store], object]) -> Act:
    """Do something to an ancestor, for both paths."""
    return lambda store, path: act(store) if path == RENAMED else None


def _swap_schemas(store: ms.Store) -> None:
    store.schemas.rename("m.c.one", "blue")
    store.schemas.rename("m.c.two", "one")


def _swap_catalogs(store: ms.Store) -> None:
    store.catalogs.rename("m.c", "blue")
    store.catalogs.create("m.c", type="relational")
    store.schemas.create("m.c.one")
    store.tables.create(RENAMED)


def _there_and_back(store: ms.Store) -> None:
    store.schemas.rename("m.c.one", "m.c.two.one")
    store.schemas.rename("m.c.two.one", "m.c.one")


MEANWHILE: dict[str, Act] = {
    "nothing": lambda store, path: None,
    "altered": lambda store, path: store.tables.alter(path, ms.SetComment("new")),
    "swapped": _swap,
    "made again": _again,
    "restored": _restored,
    "another kind": _another_kind,
    "renamed": lambda store, path: store.tables.rename(path, f"{path}_other"),
    "the schema there and back": _once(_there_and_back),
    "the schemas swapped": _once(_swap_schemas),
    "the catalog another one": _once(_swap_catalogs),
    "the schema renamed": _once(lambda store: store.schemas.rename("m.c.one", "blue")),
    "the schema dropped": _once(lambda store: store.schemas.drop("m.c.one", cascade=True)),
    "the catalog disabled": _once(lambda store: store.catalogs.disable("m.c")),
}


@pytest.fixture
def other(ground: Ground) -> ms.Store:
    """Give a second server on the same database, which remembers nothing."""
    session = ground.store._session
    return ms.Store(ground.store._url, session.backend, session.policy, "other", session.clock)


@pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite
@pytest.mark.parametrize("name", MEANWHILE)
def test_what_others_did_meanwhile(name: str, ground: Ground, other: ms.Store) -> None:
    """A call changes what the path leads to at its commit, or raises what a call that reads raises."""
    store = ground.store
    for path in PATHS:
        for one in (path, f"{path}_green", path.replace("one", "two")):
            store.tables.create(one, comment=one)
    store.tables.load(DROPPED)
    for path in PATHS:
        MEANWHILE[name](other, path)
    renamed, dropped = (_there(other, path) for path in PATHS)
    if name == "the catalog disabled":
        with pytest.raises(ms.NotInUse):
            store.tables.rename(RENAMED, "new")
        with pytest.raises(ms.NotInUse):
            store.tables.drop(DROPPED)
    elif renamed is None:
        with pytest.raises(ms.EntityNotFound):
            store.tables.rename(RENAMED, "new")
        assert store.tables.drop(DROPPED) is False
    else:
        now = store.tables.rename(RENAMED, "m.c.one.new", principal="me")
        assert (now.id, now.version, now.comment) == (renamed.id, renamed.version + 1, renamed.comment)
        assert now == other.tables.load("m.c.one.new")
        assert now.record == other.tables.load("m.c.one.new").record
        assert [v.action for v in other.tables.history(now)][-1] == "rename"
        change = list(other.changes())[-1]
        assert (change.path_before, change.path_after, change.principal) == (RENAMED, "m.c.one.new", "me")
        assert store.tables.drop(DROPPED) is (dropped is not None)
    if dropped is not None and name != "the catalog disabled":
        assert other.tables.restore(DROPPED).id == dropped.id
    assert store.verify() == []


def _there(store: ms.Store, path: str) -> ms.Table | None:
    try:
        return store.tables.load(path)
    except ms.EntityNotFound:
        return None


def test_its_version_its_name_and_its_children(ground: Ground, other: ms.Store) -> None:
    store = ground.store
    table = store.tables.load("m.c.one.t")
    before = ground.dump()
    with pytest.raises(ms.VersionConflict):
        store.tables.rename("m.c.one.t", "u", expected_version=table.version + 1)
    with pytest.raises(ms.VersionConflict):
        store.tables.drop("m.c.one.t", expected_version=table.version + 1)
    with pytest.raises(ms.InvalidArgument):
        store.tables.drop("m.c.one.t", expected_version=0)
    with pytest.raises(ms.NotEmpty):
        store.schemas.drop("m.c.one")
    with pytest.raises(ms.EntityAlreadyExists):
        store.schemas.rename("m.c.one", "two")
    assert store.tables.rename("m.c.one.t", "t", expected_version=table.version) == table
    assert ground.dump() == before
    renamed = store.tables.rename("m.c.one.t", "u", expected_version=table.version, reason="why")
    assert (renamed.version, list(store.changes())[-1].reason) == (table.version + 1, "why")
    assert store.schemas.rename("m.c.one", "uno").version == ground.one.version + 1
    assert store.tables.load("m.c.uno.u").comment == table.comment
    assert store.schemas.drop("m.c.two")
    assert store.schemas.drop("m.c.uno", cascade=True)
    assert other.schemas.restore("m.c.uno").id == ground.one.id
    assert store.verify() == []


def test_names_that_are_folded(ground: Ground) -> None:
    """History keeps the name as it was written."""
    store = ground.store
    store.catalogs.create("m.f", type="relational", fold_case=True)
    store.tables.create("m.f.S.T", parents=True)
    store.tables.create("m.f.S.U")
    assert store.tables.rename("m.f.s.t", "New").path == "m.f.S.New"
    assert store.tables.drop("m.f.s.u")
    assert [c.path_before for c in store.changes()][-2:] == ["m.f.S.T", "m.f.S.U"]


def test_round_trips(postgres_address: tuple[str, int], postgres_url: str) -> None:
    """One where the parents are remembered; a wrong guess is one more than reading."""
    with (
        PostgresProxy(*postgres_address) as proxy,
        ms.open(proxy.url_for(postgres_url)) as store,
        ms.open(postgres_url) as other,
    ):
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")

        def trips(call: Callable[[], object]) -> int:
            before = proxy.round_trips
            call()
            return proxy.round_trips - before

        def counted(kind: str, at: str) -> Sequence[int]:
            manager = getattr(store, kind)
            manager.create(f"{at}.a")
            return (
                trips(lambda: manager.rename(f"{at}.a", "b")),
                trips(lambda: manager.drop(f"{at}.b")),
            )

        for n in range(6):  # psycopg prepares a statement that comes again, in a round trip of its own
            store.schemas.create(f"m.c.s{n}")
            counted("tables", f"m.c.s{n}")
            counted("schemas", "m.c")
        assert [counted("tables", "m.c.s0"), counted("schemas", "m.c")] == [(1, 1), (1, 1)]
        table = store.tables.create("m.c.s0.t")
        assert trips(partial(store.tables.drop, "m.c.s0.t", expected_version=table.version)) == 1
        assert trips(partial(store.schemas.drop, "m.c.s0", cascade=True)) == 1
        for n in range(4):  # the last time, the statements of a call that reads are prepared
            store.tables.create(f"m.c.s{n + 1}.t")
            other.schemas.rename(f"m.c.s{n + 1}", f"blue{n}")
            other.schemas.rename(f"m.c.blue{n}", f"s{n + 1}")
            wrong = trips(partial(store.tables.rename, f"m.c.s{n + 1}.t", "u"))
        assert wrong == 3
        store.tables.create("m.c.s5.large", properties={"large": "x" * (64 << 10)})
        assert store.tables.rename("m.c.s5.large", "as_large").properties["large"] == "x" * (64 << 10)
        # below a schema that was made after it, a second commit is needed: guards are locked in the order of their ids
        store.tables.create("m.c.s5.small")
        store.schemas.create("m.c.younger")
        store.tables.rename("m.c.s5.small", "m.c.younger.t")
        assert store.tables.exists("m.c.younger.t")
        backend = store._session.backend
        with patch.object(backend, "commit", wraps=backend.commit) as sent:
            store.tables.rename("m.c.younger.t", "u")
        assert sent.call_count == 2
        assert other.verify() == []


def test_a_free_planner_does_not_scan_for_children(postgres_url: str) -> None:
    """Behind a pooler no setting keeps the planner from it; and here nearly all entities have one parent."""
    with ms.open(postgres_url) as store, psycopg.connect(postgres_url.replace("+psycopg", "")) as free:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        large, small = (store.schemas.create(f"m.c.{name}") for name in ("large", "small"))
        store.tables.create_many(large, ({"name": f"t{n}"} for n in range(2_000)))
        free.execute("ANALYZE guard, operation")
        free.execute("SET random_page_cost = 10")  # so that 2,000 tables are enough to tempt it, as 100,000 do
        (created,) = store.schemas.history(small)
        plan = psycopg.ClientCursor(free).execute(f"EXPLAIN {EMPTY}", {"operation_id": created.operation_id})
        assert "Seq Scan on guard" not in str(plan.fetchall())


@pytest.mark.parametrize("call", ["rename", "drop"])
def test_what_has_the_name_changes_during_the_wait(
    call: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement waits for a commit after which another entity has the name: that one is meant."""
    monkeypatch.setattr(decide, "_PATIENCE", 30_000)
    with (
        ms.open(postgres_url) as store,
        ThreadPoolExecutor(1) as thread,
        psycopg.connect(postgres_url.replace("+psycopg", "")) as blocker,
        psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as looking,
    ):
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        blue, green = (store.tables.create(f"m.c.s.{name}", parents=True) for name in ("t", "green"))
        text = "UPDATE guard SET name = %s, key = %s, scope_version = scope_version + 1 WHERE id = %s"
        blocker.execute(text, ("blue", "blue", blue.id))
        blocker.execute(text, ("t", "t", green.id))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        acts = {"rename": lambda: store.tables.rename("m.c.s.t", "new"), "drop": lambda: store.tables.drop("m.c.s.t")}

        def act() -> object:
            """Do it, beside the transaction that is open."""
            done = thread.submit(acts[call])
            eventually(lambda: looking.execute(waits).fetchall() == [(1,)])
            blocker.commit()
            return done.result()

        act()
        assert store.tables.load("m.c.s.blue").id == blue.id
        assert [v.action for v in store.tables.history(green)][-1] == call
        third = store.tables.create("m.c.s.t", comment="as it was")
        text = "UPDATE entity SET version = version + 1, doc = replace(doc, 'as it was', 'altered') WHERE id = %s"
        blocker.execute(text, (third.id,))  # an alter in flight: it is there before the rename, and goes with it
        if call == "rename":
            store.tables.drop("m.c.s.new")
        act()
        now = store.tables.load("m.c.s.new") if call == "rename" else store.tables.restore("m.c.s.t")
        assert (now.id, now.comment, now.version) == (third.id, "altered", {"rename": 3, "drop": 4}[call])
