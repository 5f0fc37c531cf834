"""A commit rests only on what was committed in this database (invariant 12)."""

# ruff: noqa: PT012  (what raises is the end of the block)

from __future__ import annotations

import copy
import io
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.leases.staging import StoreStaging
from metastore.port.backend import Backend
from metastore.port.commit import Commit, CommitOutcome, Unknown
from metastore.transaction.transaction import Transaction
from tests.contract.ground import Ground, prepare

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

OURS, THEIRS, LATER = (ms.SetProperty(key, "1") for key in ("ours", "theirs", "later"))

Use = Callable[[ms.Store, Any], Any]


def refused(ground: Ground, what: Callable[[Transaction], Any], instead: Callable[[], Any]) -> Any:
    """Return what ``what`` returned in a transaction that another client's ``instead`` made fail."""
    with pytest.raises(ms.VersionConflict), ground.store.transaction() as tx:
        found = what(tx)
        instead()
    return found


@pytest.fixture
def stale(ground: Ground) -> ms.Table:
    """Give a table at version 2 that was never committed; the committed version 2 is another client's."""
    store, table = ground.store, ground.table
    return refused(ground, lambda tx: tx.tables.alter(table, OURS), lambda: store.tables.alter(table, THEIRS))


ALTERS: dict[str, Callable[[ms.Store, ms.Table], ms.Table]] = {
    "alter": lambda s, t: s.tables.alter(t, LATER),
    "expected": lambda s, t: s.tables.alter(t, LATER, expected_version=2),
    "pickled": lambda s, t: s.tables.alter(pickle.loads(pickle.dumps(t)), LATER),
    "copied": lambda s, t: s.tables.alter(copy.deepcopy(t), LATER),
    "in a transaction": lambda s, t: s.run(lambda tx: tx.tables.alter(t, LATER)),
}


class TestRefused:
    @pytest.mark.parametrize("alter", ALTERS.values(), ids=ALTERS)
    def test_the_other_clients_change_stays(
        self, ground: Ground, stale: ms.Table, alter: Callable[[ms.Store, ms.Table], ms.Table]
    ) -> None:
        altered = alter(ground.store, stale)
        assert (altered.version, dict(altered.properties)) == (3, {"theirs": "1", "later": "1"})
        assert ground.store.tables.load(ground.table).properties == altered.properties
        assert ground.store.verify() == []

    def test_an_expected_version_is_judged_by_the_database(self, ground: Ground, stale: ms.Table) -> None:
        ground.store.tables.alter(ground.table, ms.SetComment("3"))
        before = ground.dump()
        with pytest.raises(ms.VersionConflict) as caught:
            ground.store.tables.alter(stale, LATER, expected_version=stale.version)
        assert (caught.value.expected, caught.value.found) == (2, 3)
        assert ground.dump() == before

    def test_a_change_is_not_left_out_because_the_refused_one_had_it(self, ground: Ground, stale: ms.Table) -> None:
        assert dict(ground.store.tables.alter(stale, OURS).properties) == {"theirs": "1", "ours": "1"}

    def test_a_path_that_was_never_committed_is_not_written_down(self, ground: Ground) -> None:
        """The refused transaction gave another name, with the same scope version as the committed one."""
        store, two = ground.store, ground.two
        found = refused(ground, lambda tx: tx.schemas.rename(two, "mine"), lambda: store.schemas.rename(two, "theirs"))
        assert (found.path, found.scope_version) == ("m.c.mine", 2)
        assert store.tables.create("a", parent=found).path == "m.c.theirs.a"
        assert store.tables.create_many(found, [{"name": "b"}]) == 1
        assert [t.path for t in store.tables.list(found)] == ["m.c.theirs.a", "m.c.theirs.b"]
        assert store.schemas.alter(found, LATER).path == "m.c.theirs"
        assert store.schemas.rename(found, "last").path == "m.c.last"
        assert store.verify() == []

    def test_what_is_below_such_a_path_is_read_again(self, ground: Ground) -> None:
        store, one = ground.store, ground.one

        def what(tx: Transaction) -> ms.Table:
            tx.schemas.rename(one, "mine")
            return tx.tables.load(ground.table)

        found = refused(ground, what, lambda: store.schemas.rename(one, "theirs"))
        assert found.path == "m.c.mine.t"
        assert store.tables.alter(found, LATER).path == "m.c.theirs.t"
        assert store.partitions.create(found, "q", values={}).version == 1
        assert [c.path_after for c in store.changes()][-2:] == ["m.c.theirs.t", "m.c.theirs.t.q"]

    def test_what_it_alone_created_is_not_there(self, ground: Ground) -> None:
        store = ground.store
        schema, table = refused(
            ground,
            lambda tx: (tx.schemas.create("m.c.new"), tx.tables.create("m.c.one.t2"), tx.tables.load("m.c.one.t"))[:2],
            lambda: store.tables.alter("m.c.one.t", THEIRS),
        )
        before = ground.dump()
        uses: list[Callable[[], object]] = [
            lambda: store.tables.alter(table, LATER),
            lambda: store.tables.alter(table, LATER, expected_version=1),
            lambda: store.tables.rename(table, "x"),
            lambda: store.tables.load(table),
            lambda: store.tables.create("x", parent=schema),
            lambda: store.partitions.create(table, "p", values={}),
            lambda: list(store.tables.list(schema)),
        ]
        for use in uses:
            with pytest.raises(ms.EntityNotFound):
                use()
        assert store.tables.drop(table) is False
        assert ground.dump() == before

    def test_an_exception_in_the_block_refuses_it_too(self, ground: Ground) -> None:
        with pytest.raises(KeyError), ground.store.transaction() as tx:
            found = tx.tables.alter(ground.table, OURS)
            raise KeyError
        ground.store.tables.alter(ground.table, THEIRS)
        assert dict(ground.store.tables.alter(found, LATER).properties) == {"theirs": "1", "later": "1"}

    def test_before_the_end_nothing_is_committed(self, ground: Ground) -> None:
        with pytest.raises(ms.VersionConflict), ground.store.transaction() as tx:
            found = tx.tables.alter(ground.table, OURS)
            ground.store.tables.alter(ground.table, THEIRS)
            assert dict(ground.store.tables.alter(found, LATER).properties) == {"theirs": "1", "later": "1"}

    def test_of_an_unknown_outcome(self, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
        def lost(self: Backend, commit: Commit) -> CommitOutcome:
            return Unknown("cut")

        def down(self: Backend, operation_id: object, life: float = 0.0) -> None:
            raise ms.BackendUnavailable("down")

        with monkeypatch.context() as patch, pytest.raises(ms.OutcomeUnknown):
            patch.setattr(type(ground.backend), "commit", lost)
            patch.setattr(type(ground.backend), "forbid", down)
            with ground.store.transaction(deadline=0.5) as tx:
                found = tx.tables.alter(ground.table, OURS)
        ground.store.tables.alter(ground.table, THEIRS)
        assert dict(ground.store.tables.alter(found, LATER).properties) == {"theirs": "1", "later": "1"}


def reads(ground: Ground, monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]) -> int:
    """Return how often ``use`` looks an entity up."""
    count = 0
    for name in ("by_id", "resolve"):
        asked = getattr(type(ground.backend), name)

        def counted(self: Backend, *args: Any, asked: Any = asked) -> Any:
            nonlocal count
            count += 1
            return asked(self, *args)

        monkeypatch.setattr(type(ground.backend), name, counted)
    use()
    monkeypatch.undo()
    return count


class TestTrusted:
    def test_what_a_committed_transaction_returned(self, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
        store = ground.store
        store.schemas.alter("m.c.two", OURS)  # the first change of properties reads what the catalog declares secret
        with store.transaction() as tx:
            table = tx.tables.alter(ground.table, OURS)
            made = tx.schemas.create("m.c.new")
        sent = pickle.dumps(made)
        assert reads(ground, monkeypatch, lambda: store.tables.alter(table, LATER)) == 0
        assert reads(ground, monkeypatch, lambda: store.tables.create("x", parent=made)) == 0
        assert reads(ground, monkeypatch, lambda: store.tables.create("y", parent=pickle.loads(sent))) == 0
        assert dict(store.tables.load(table).properties) == {"ours": "1", "later": "1"}

    def test_without_a_read(self, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
        """In hand, pickled, copied, from a listing, from history: what was committed saves the read."""
        store = ground.store

        def newest() -> list[Any]:
            (listed,) = store.tables.list("m.c.one")
            loaded = store.tables.load("m.c.one.t")
            return [loaded, listed, pickle.loads(pickle.dumps(loaded)), copy.copy(loaded), copy.deepcopy(loaded)]

        for n in range(5):
            entity = newest()[n]
            change = ms.SetComment(str(n))
            assert reads(ground, monkeypatch, partial(store.tables.alter, entity, change)) == 0

    def test_its_origin_is_no_part_of_an_entity(self, ground: Ground, stale: ms.Table) -> None:
        loaded = ground.store.tables.load(ground.table)
        again = pickle.loads(pickle.dumps(loaded))
        assert (again, repr(again), hash(again)) == (loaded, repr(loaded), hash(loaded))
        assert type(stale)(stale.record) == stale
        assert repr(type(stale)(stale.record)) == repr(stale)

    def test_where_it_comes_from_is_not_known(self, ground: Ground, stale: ms.Table) -> None:
        unknown = type(stale)(stale.record)
        assert dict(ground.store.tables.alter(unknown, LATER).properties) == {"theirs": "1", "later": "1"}


@pytest.fixture
def other(url: str, sqlite_template: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Give another database with the same tree: the same ids, the same versions."""
    there, cleaning = "memory://", ExitStack()
    if url.startswith("sqlite"):
        there = f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'other.db')}"
    elif url.startswith("postgres"):
        databases = request.getfixturevalue("postgres_databases")
        template = request.getfixturevalue("postgres_template").rpartition("/")[2]
        there = databases.create_database(template=template)
        cleaning.callback(databases.drop_database, there)
    with cleaning, ms.open(there, principal="tester") as store:
        yield prepare(store)


@pytest.fixture
def empty(url: str) -> str:
    """Give the URL of a database in which nothing is."""
    return url


def hot(store: ms.Store, table: ms.Entity) -> ms.Entity:
    """Return ``table``, whose next change is announced at once."""
    store._session.hot.note(table.id, ("table", table.names))
    return table


FOREIGN: dict[str, Use] = {
    "load": lambda s, g: s.tables.load(g.table),
    "alter": lambda s, g: s.tables.alter(g.table, LATER),
    "alter what is hot": lambda s, g: s.tables.alter(hot(s, g.table), LATER),
    "alter expected": lambda s, g: s.tables.alter(g.table, LATER, expected_version=1),
    "rename": lambda s, g: s.tables.rename(g.table, "x"),
    "drop": lambda s, g: s.tables.drop(g.table),
    "purge": lambda s, g: s.tables.purge(g.table),
    "history": lambda s, g: s.tables.history(g.table),
    "disable": lambda s, g: s.catalogs.disable(g.catalog),
    "create": lambda s, g: s.tables.create("x", parent=g.one),
    "create many": lambda s, g: s.tables.create_many(g.one, [{"name": "x"}]),
    "list": lambda s, g: list(s.tables.list(g.one)),
    "names": lambda s, g: list(s.tables.names(g.one)),
    "create a partition": lambda s, g: s.partitions.create(g.table, "x", values={}),
    "drop a partition": lambda s, g: s.partitions.drop(g.table, "p"),
    "list partitions": lambda s, g: list(s.partitions.list(g.table)),
    "freeze": lambda s, g: s.schemas.exclusive(g.one).__enter__(),
    "export": lambda s, g: s.export_to(io.BytesIO(), g.one),
    "in a transaction": lambda s, g: s.run(lambda tx: tx.tables.alter(g.table, LATER)),
    "diff": lambda s, g: list(s.diff(s.position(), under=g.table)),
    "revert": lambda s, g: s.revert(g.table, to=s.position()),
    "a user that acts": lambda s, g: s.as_user(g.store.users.create("m.ann")),
    "a user that is asked about": lambda s, g: s.allowed(g.store.users.create("m.ann"), "use_catalog", "m.c"),
    "sources": lambda s, g: s.sources.load_many(g.catalog, ["x"]),
    "stage": lambda s, g: StoreStaging(s._session).stage(None, g.table, "k", "v"),  # type: ignore[arg-type]
}


class TestAnotherDatabase:
    @pytest.mark.each_run_on("memory")
    @pytest.mark.parametrize("use", FOREIGN.values(), ids=FOREIGN)
    def test_is_refused_before_anything_is_written(self, ground: Ground, other: Ground, use: Use) -> None:
        assert (ground.table.id, ground.table.version) == (other.table.id, other.table.version)
        before = ground.dump()
        with pytest.raises(ms.InvalidArgument, match="another database"):
            use(ground.store, other)
        assert ground.dump() == before

    def test_pickled(self, ground: Ground, other: Ground) -> None:
        with pytest.raises(ms.InvalidArgument, match="another database"):
            ground.store.tables.alter(pickle.loads(pickle.dumps(other.table)), LATER)

    def test_of_a_transaction(self, ground: Ground, other: Ground) -> None:
        with other.store.transaction() as tx:
            found = tx.tables.alter(other.table, OURS)
            with pytest.raises(ms.InvalidArgument, match="another database"):
                ground.store.tables.alter(found, LATER)

    def test_two_stores_on_one_database(self, ground: Ground, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """On SQLite a file may be put back between two stores: what another one read is read again, in the file."""
        with ExitStack() as stack:  # each open of the memory model is a database of its own
            second = ground.store if url.startswith("memory") else stack.enter_context(ms.open(url))
            ground.store.tables.alter("m.c.one.t", OURS)  # the first one reads what the catalog declares secret
            entity = pickle.loads(pickle.dumps(second.tables.load("m.c.one.t")))
            again = int(url.startswith("sqlite"))
            assert reads(ground, monkeypatch, lambda: ground.store.tables.alter(entity, LATER)) == again

    def test_restored_through_a_store_that_is_open(self, empty: str, other: Ground, tmp_path: Path) -> None:
        """The restored database gets an epoch of its own: the store that restores it knows it, and so do later ones."""
        other.store.export_to(tmp_path / "export", ids=True, history=True)
        with ExitStack() as stack:
            restored = stack.enter_context(ms.open(empty))
            restored.import_from(tmp_path / "export")
            with pytest.raises(ms.InvalidArgument, match="another database"):
                restored.tables.alter(other.table, LATER)
            later = restored if empty.startswith("memory") else stack.enter_context(ms.open(empty))
            table = later.tables.alter(restored.tables.load("m.c.one.t"), LATER)
            assert restored.tables.alter(table, OURS).version == 3

    def test_restored_through_another_store(self, empty: str, other: Ground, tmp_path: Path) -> None:
        """A store that had the empty database open finds out which database it is now."""
        other.store.export_to(tmp_path / "export", ids=True, history=True)
        with ExitStack() as stack:
            first = stack.enter_context(ms.open(empty))
            second = first if empty.startswith("memory") else stack.enter_context(ms.open(empty))
            second.import_from(tmp_path / "export")
            assert first.tables.alter(second.tables.load("m.c.one.t"), LATER).version == 2


def test_an_entity_of_another_store_of_the_same_database_costs_no_question(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers hand entities to each other: the database is asked who it is only where that may have changed."""
    with ms.open(sqlite_url) as one, ms.open(sqlite_url) as other:
        one.metalakes.create("lake")
        catalog = one.catalogs.create("lake.c", type="relational")

        def asked(*_: object) -> None:
            raise AssertionError("the database was asked who it is")

        monkeypatch.setattr(type(other._session.backend), "identify", asked)
        assert other.catalogs.alter(catalog, ms.SetComment("mine")).comment == "mine"


def test_a_position_of_another_database_is_refused() -> None:
    """Equal numbers in two databases are different changes: the epoch tells them apart."""
    with ms.open("memory://") as one, ms.open("memory://") as other:
        for store in (one, other):
            store.metalakes.create("lake")
        (position,) = [change.position for change in one.changes()]
        without_mark = position[:-8]  # as programs before this one gave it: nothing but the epoch tells
        for foreign in (position, without_mark):
            with pytest.raises(ms.InvalidArgument, match="of another database"):
                list(other.changes(after=foreign))


def test_a_commit_whose_answer_was_lost_says_when_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup was put back in place: another entity has the id now, and it was made after that."""
    url, backup = f"sqlite:///{tmp_path}/a.db", tmp_path / "backup.db"
    with ms.open(url) as store, monkeypatch.context() as patch:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.backup(backup)
        backend = type(store._session.backend)
        commit = backend.commit

        def cut(self: Any, asked: Commit) -> CommitOutcome:
            commit(self, asked)
            return Unknown("cut")

        patch.setattr(backend, "commit", cut)
        lost = store.run(lambda tx: tx.schemas.create("lake.c.lost"))
    shutil.copy(backup, tmp_path / "a.db")
    with ms.open(url) as store:
        assert store.schemas.create("lake.c.made").id == lost.id
        with pytest.raises(ms.EntityNotFound):
            store.schemas.load(lost)
        assert not store.schemas.drop(lost)
