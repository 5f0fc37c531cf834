"""What every backend promises of drops in steps (field cases 62, 63, 64)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

import metastore as ms
from metastore import Store
from metastore.kinds.drop import drop_name
from metastore.managers.drops.row import read_drop
from metastore.managers.drops.steps import take_over
from metastore.port.backend import MOST_AHEAD, Backend
from metastore.port.commit import Commit, CommitOutcome, Committed, Unknown
from metastore.port.conditions import DROPPING, LIVE, PURGING
from tests.contract.ground import Ground, behind, interrupted

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

T = "m.c.one.t"
SOON = 0.05
"""A ttl that passes at once (seconds)."""


@pytest.fixture
def table(store: Store) -> ms.Table:
    """Give a table with columns and partitions."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    columns = [ms.Column("a", "int"), ms.Column("b", "string"), ms.Column("z", "int")]
    table = store.tables.create(T, parents=True, columns=columns)
    for name in ("p1", "p2", "p3"):
        store.partitions.create(table, name, values={"a": name})
    return table


def _refused(call: Callable[[], Any], pending: ms.PendingDrop) -> None:
    with pytest.raises(ms.DropPending) as info:
        call()
    assert info.value.operation == pending.operation


def _columns(store: Store) -> list[str]:
    return [column.name for column in store.tables.load(T).columns]


def _state(backend: Backend, entity_id: int) -> int | None:
    (known,) = backend.by_id([entity_id])
    return None if known is None else known.state


REFUSED: dict[str, Callable[[Store, ms.Table], Any]] = {
    "load": lambda s, t: s.tables.load(T),
    "load in hand": lambda s, t: s.tables.load(t),
    "alter": lambda s, t: s.tables.alter(T, ms.SetComment("x")),
    "alter in hand": lambda s, t: s.tables.alter(t, ms.SetComment("x")),
    "drop": lambda s, t: s.tables.drop(T),
    "drop in hand": lambda s, t: s.tables.drop(t),
    "rename": lambda s, t: s.tables.rename(T, "u"),
    "purge": lambda s, t: s.tables.purge(T),
    "purge in hand": lambda s, t: s.tables.purge(t),
    "restore": lambda s, t: s.tables.restore(T),
    "restore by id": lambda s, t: s.tables.restore(T, id=t.id),
    "begin": lambda s, t: s.tables.begin_drop(T),
    "begin a column": lambda s, t: s.tables.begin_drop(T, column="a"),
    "create": lambda s, t: s.tables.create(T),
    "create or return": lambda s, t: s.tables.create(T, if_exists="return"),
    "create or replace": lambda s, t: s.tables.create(T, if_exists="replace"),
    "create below a parent in hand": lambda s, t: s.tables.create("t", parent=s.schemas.load("m.c.one")),
    "create many": lambda s, t: s.tables.create_many("m.c.one", [{"name": "t"}]),
    "create another of the family": lambda s, t: s.views.create(T),
    "rename to its name": lambda s, t: s.tables.rename(s.tables.create("m.c.one.u"), "t"),
    "partitions": lambda s, t: list(s.partitions.list(T)),
    "a partition": lambda s, t: s.partitions.load(T, "p1"),
    "create a partition": lambda s, t: s.partitions.create(t, "new", values={"a": "1"}),
    "statistics": lambda s, t: s.statistics.set(T, {"custom-rows": 1}),
    "tags": lambda s, t: s.tags.on(T),
    "owner": lambda s, t: s.owners.of(T),
    "in a transaction": lambda s, t: s.run(lambda tx: tx.tables.load(T)),
    "create in a transaction": lambda s, t: s.run(lambda tx: tx.tables.create(T)),
    "its changes": lambda s, t: list(s.changes(under=T)),
    "in the past": lambda s, t: s.at(s.position()).tables.load(T),
    "revert": lambda s, t: s.revert(T, to=_before(s, t)),
    "revert what is above": lambda s, t: s.revert("m.c.one", to=_before(s, t)),
}


def _before(store: Store, table: ms.Table) -> str:
    return next(c.position for c in store.changes() if c.entity_id == table.id)


@pytest.mark.parametrize("call", REFUSED)
def test_refused(store: Store, table: ms.Table, call: str) -> None:
    pending = store.tables.begin_drop(T)
    _refused(lambda: REFUSED[call](store, table), pending)
    assert store.verify() == []


class TestAnEntity:
    def test_announced(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(table)
        assert (pending.kind, pending.path, pending.entity_id, pending.phase) == ("table", T, table.id, "announced")
        assert (pending.token, pending.column, pending.partition, pending.held) == (1, None, None, True)
        assert pending.entity().path == T
        assert list(store.tables.list("m.c.one")) == list(store.tables.names("m.c.one")) == []
        assert list(store.find("m", name="t")) == list(store.tables.dropped("m.c.one")) == []
        assert store.tables.load_many([T]) == [None]
        assert not store.tables.exists(T)
        assert [v.action for v in store.tables.history(table)] == ["create", "drop"]
        assert store.outcome(pending.operation).state == "committed"
        assert _state(behind(store), table.id) == DROPPING

    def test_rolled_back(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T)
        pending.roll_back()
        back = store.tables.load(T)
        assert (back.id, back.version, back.columns) == (table.id, 3, table.columns)
        assert [p.name for p in store.partitions.list(T)] == ["p1", "p2", "p3"]
        for step in (pending.started, pending.finish, pending.roll_back):
            with pytest.raises(ms.EntityNotFound):
                step()
        assert list(store.drops.pending()) == []
        assert store.verify() == []

    def test_finished(self, store: Store, table: ms.Table) -> None:
        before = store.position()
        pending = store.tables.begin_drop(T)
        pending.started()
        _refused(pending.roll_back, pending)
        assert pending.finish() is True
        assert pending.finish() is False
        for call in (lambda: store.tables.load(T), lambda: store.tables.restore(T), pending.roll_back, pending.started):
            with pytest.raises(ms.EntityNotFound):
                call()
        with pytest.raises(ms.EntityNotFound):
            store.tables.restore(T, id=table.id)
        with pytest.raises(ms.InvalidArgument):
            store.revert("m.c.one", to=before)
        assert _state(behind(store), table.id) in (None, PURGING)
        assert store.tables.create(T).id != table.id
        assert store.verify() == []

    def test_events(self, store: Store, table: ms.Table) -> None:
        store.tables.begin_drop(T).roll_back()
        store.tables.begin_drop(T).finish()
        events = [(c.action, c.path_before, c.path_after) for c in store.changes(kinds=["table"])]
        gone, back = ("drop", T, None), ("restore", None, T)
        assert events == [("create", None, T), gone, back, gone, ("purge", T, None)]
        mine = [c.action for c in store.changes(kinds=["drop"])]
        assert mine == ["create", "drop", "create", "drop"]

    def test_the_parent_is_not_empty(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T)
        with pytest.raises(ms.NotEmpty):
            store.schemas.drop("m.c.one")
        with pytest.raises(ms.NotEmpty), store.transaction() as tx:
            tx.schemas.drop("m.c.one")
        with pytest.raises(ms.NotEmpty):
            store.schemas.purge("m.c.one")
        pending.finish()
        assert store.schemas.drop("m.c.one")

    def test_ancestors_move(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T)
        store.schemas.create("m.c.two")
        store.schemas.rename("m.c.one", "m.c.two.inner")
        _refused(lambda: store.tables.load("m.c.two.inner.t"), pending)
        pending.roll_back()
        assert store.tables.load("m.c.two.inner.t").id == table.id
        assert store.verify() == []

    def test_a_cascade_leaves_it(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T)
        assert store.schemas.drop("m.c.one", cascade=True)
        with pytest.raises(ms.EntityNotFound, match="restore"):
            pending.roll_back()
        assert store.gc(retention=timedelta(0)).entities == 0
        with pytest.raises(ms.DropPending):
            store.schemas.purge(next(store.schemas.dropped("m.c")))
        assert pending.finish()
        assert store.verify() == []
        assert store.gc(retention=timedelta(0)).entities >= 1
        assert store.verify() == []

    def test_restored_above(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T)
        store.schemas.drop("m.c.one", cascade=True)
        store.schemas.restore("m.c.one")
        _refused(lambda: store.tables.load(T), pending)
        pending.roll_back()
        assert store.tables.load(T).id == table.id

    def test_in_a_transaction(self, store: Store, table: ms.Table) -> None:
        with store.transaction() as tx, pytest.raises(ms.InvalidArgument):
            tx.tables.begin_drop(T)

    def test_repeated(self, store: Store, table: ms.Table) -> None:
        operation = ms.new_operation_id()
        first = store.tables.begin_drop(T, operation_id=operation)
        again = store.tables.begin_drop(T, operation_id=operation)
        assert first.operation == again.operation == operation
        assert again.finish()

    def test_wrong_arguments(self, store: Store, table: ms.Table) -> None:
        for ttl in (0, -1, "x", None):
            with pytest.raises(ms.InvalidArgument):
                store.tables.begin_drop(T, ttl=ttl)  # type: ignore[arg-type]
        with pytest.raises(ms.EntityNotFound):
            store.tables.begin_drop("m.c.one.none")
        with pytest.raises(ms.InvalidArgument):
            store.schemas.begin_drop("m.c.one", column="a")


class TestWithAllBelow:
    def test_a_catalog(self, store: Store, table: ms.Table) -> None:
        pending = store.catalogs.begin_drop("m.c")
        calls: list[Callable[[], Any]] = [
            lambda: store.tables.load(T),
            lambda: store.tables.load(table),
            lambda: list(store.tables.list("m.c.one")),
            lambda: store.tables.create("m.c.one.new"),
            lambda: store.schemas.create("m.c.new"),
            lambda: store.tables.alter(table, ms.SetComment("x")),
            lambda: store.partitions.create(table, "new", values={"a": "1"}),
            lambda: list(store.find("m.c")),
        ]
        for call in calls:
            _refused(call, pending)
        pending.roll_back()
        assert store.tables.load(T).id == table.id
        other = store.catalogs.begin_drop("m.c")
        assert other.finish()
        with pytest.raises(ms.EntityNotFound):
            store.tables.load(T)
        store.catalogs.create("m.c", type="relational")
        assert store.verify() == []

    def test_a_drop_below_a_drop(self, store: Store, table: ms.Table) -> None:
        below = store.tables.begin_drop(T)
        above = store.catalogs.begin_drop("m.c")
        _refused(below.roll_back, above)
        assert above.finish()
        store.gc(retention=timedelta(0))
        assert _state(behind(store), table.id) == DROPPING
        with pytest.raises(ms.EntityNotFound):
            below.roll_back()
        assert below.finish()
        store.gc(retention=timedelta(0))
        assert _state(behind(store), table.id) is None
        assert store.verify() == []


class TestAColumn:
    def test_out_of_sight(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T, column="b")
        assert (pending.column, pending.path) == ("b", f"{T}.b")
        assert _columns(store) == ["a", "z"]
        changes = [
            ms.AddColumn("b", "int"),
            ms.RenameColumn("a", "b"),
            ms.RenameColumn("b", "c"),
            ms.DropColumn("b"),
            ms.RetypeColumn("b", "int"),
            ms.MoveColumn("a", "b"),
            ms.MoveColumn("b", "a"),
            ms.AddColumn("c", "int", after="b"),
            ms.SetColumnComment("b", "x"),
        ]
        for change in changes:
            _refused(lambda change=change: store.tables.alter(T, change), pending)  # type: ignore[misc]
        _refused(lambda: store.tables.begin_drop(T, column="b"), pending)
        replaced = {"columns": [ms.Column("b", "int")], "if_exists": "replace"}
        _refused(lambda: store.tables.create(T, **replaced), pending)  # type: ignore[arg-type]
        store.tables.alter(table, ms.SetColumnComment("a", "merged"))
        assert store.verify() == []

    def test_rolled_back(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T, column="b")
        store.tables.alter(T, ms.AddColumn("c", "int"))
        store.tables.create(T, columns=[ms.Column("a", "int"), ms.Column("c", "int")], if_exists="replace")
        pending.roll_back()
        assert _columns(store) == ["a", "b", "c"]
        assert store.tables.load(T).columns[1].id == table.columns[1].id
        assert "dropping" not in store.tables.load(T).doc
        with pytest.raises(ms.EntityNotFound):
            pending.finish()

    def test_finished(self, store: Store, table: ms.Table) -> None:
        before = store.position()
        pending = store.tables.begin_drop(T, column="b")
        pending.started()
        _refused(pending.roll_back, pending)
        assert pending.finish()
        assert not pending.finish()
        with pytest.raises(ms.InvalidArgument):
            store.revert(T, to=before)
        added = store.tables.alter(T, ms.AddColumn("b", "int"))
        assert added.columns[-1].id not in {column.id for column in table.columns}
        assert store.verify() == []

    def test_what_refers_to_it_is_in_the_way(self, store: Store, table: ms.Table) -> None:
        store.tables.alter(T, ms.AddIndex("i", ("b",)))
        with pytest.raises(ms.InvalidArgument, match="index"):
            store.tables.begin_drop(T, column="b")
        with pytest.raises(ms.EntityNotFound):
            store.tables.begin_drop(T, column="none")
        store.tables.alter(T, ms.AddColumn("n", "struct<x: int>"))
        with pytest.raises(ms.InvalidArgument, match="nested"):
            store.tables.begin_drop(T, column="n.x")

    def test_its_tags_stay_until_the_end(self, store: Store, table: ms.Table) -> None:
        store.tags.create("m.pii")
        store.tags.attach(table, "m.pii", column="b")
        pending = store.tables.begin_drop(T, column="b")
        _refused(lambda: store.tags.on(T, column="b"), pending)
        store.gc(retention=timedelta(0))
        pending.roll_back()
        assert [tag.name for tag in store.tags.on(T, column="b")] == ["pii"]
        store.tables.begin_drop(T, column="b").finish()
        assert list(store.tags.targets("m.pii")) == []

    def test_two_columns(self, store: Store, table: ms.Table) -> None:
        first, second = (store.tables.begin_drop(T, column=name) for name in ("a", "b"))
        assert _columns(store) == ["z"]
        second.finish()
        first.roll_back()
        assert _columns(store) == ["a", "z"]

    def test_of_a_table_that_is_dropped(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T, column="b", ttl=SOON)
        store.tables.drop(T)
        store.gc(retention=timedelta(0))
        with pytest.raises(ms.EntityNotFound):
            pending.roll_back()
        assert pending.finish()
        store.tables.restore(T)
        assert store.drops.resume(lambda pending: pytest.fail("its data is destroyed")) == 1
        assert _columns(store) == ["a", "z"]
        assert list(store.drops.pending()) == []
        assert store.verify() == []

    def test_destroyed_and_collected(self, store: Store, table: ms.Table) -> None:
        pending = store.tables.begin_drop(T, column="b", ttl=SOON)
        store.tables.drop(T)
        pending.finish()
        store.gc(retention=timedelta(0))
        assert _state(behind(store), table.id) is None
        store.gc(retention=timedelta(0))
        assert list(store.drops.pending()) == []
        assert store.verify() == []

    @pytest.mark.parametrize("stopped", [False, True], ids=["", "rows are left"])
    def test_destroyed_and_purged(
        self, store: Store, table: ms.Table, stopped: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where the purge was stopped before it deleted the rows: the table cannot come back."""
        pending = store.tables.begin_drop(T, column="b", ttl=SOON)
        store.tables.drop(T)
        pending.finish()
        pending.started()
        assert [one.phase for one in store.drops.pending()] == ["destroyed"], "it is not destroyed again"
        if stopped:
            monkeypatch.setattr("metastore.managers.manager.delete_trees", lambda *_: 0)
        store.tables.purge(table)
        assert (_state(behind(store), table.id) is None) is not stopped
        assert store.drops.resume(lambda pending: pytest.fail("its data is destroyed")) == 1
        assert list(store.drops.pending()) == []
        assert store.verify() == []


class TestAPartition:
    def test_out_of_sight(self, store: Store, table: ms.Table) -> None:
        pending = store.partitions.begin_drop(T, "p2")
        assert list(store.partitions.names(T)) == ["p1", "p3"]
        assert [p.name for p in store.partitions.page(T, size=2).items] == ["p1", "p3"]
        assert store.partitions.page(T, size=2).next_token is None
        calls: list[Callable[[], Any]] = [
            lambda: store.partitions.load(T, "p2"),
            lambda: store.partitions.create(T, "p2", values={"a": "1"}),
            lambda: store.partitions.drop(T, "p2"),
            lambda: store.partitions.begin_drop(T, "p2"),
            lambda: store.partitions.put_many(T, [], drop=["p2"]),
        ]
        for call in calls:
            _refused(call, pending)
        pending.roll_back()
        assert store.partitions.load(T, "p2").values == {"a": "p2"}
        assert store.verify() == []

    def test_finished(self, store: Store, table: ms.Table) -> None:
        before = store.position()
        pending = store.partitions.begin_drop(T, "p2")
        pending.started()
        assert pending.finish()
        assert not pending.finish()
        assert list(store.partitions.names(T)) == ["p1", "p3"]
        with pytest.raises(ms.InvalidArgument):
            store.revert(T, to=before)
        store.partitions.create(T, "p2", values={"a": "new"})
        assert store.verify() == []


@pytest.mark.parametrize("end", ["roll_back", "finish"])
@pytest.mark.parametrize("meanwhile", ["rename", "drop"])
def test_the_table_of_a_partition_is_elsewhere_when_the_drop_ends(
    store: Store, table: ms.Table, end: str, meanwhile: str
) -> None:
    pending = store.partitions.begin_drop(T, "p2")
    act = {"rename": lambda: store.tables.rename(T, "renamed"), "drop": lambda: store.tables.drop(T)}[meanwhile]
    with interrupted(store, act), suppress(ms.EntityNotFound):
        getattr(pending, end)()
    assert store.verify() == []
    ended = [c for c in store.changes(kinds=["partition"]) if c.action == "purge" or c.version == 3]
    assert len(ended) == (meanwhile == "rename")
    assert all("m.c.one.renamed.p2" in (change.path_before, change.path_after) for change in ended)


class TestTakeOver:
    def test_not_before_the_ttl(self, store: Store, table: ms.Table) -> None:
        mine = store.tables.begin_drop(T)
        (other,) = store.drops.pending()
        assert (other.held, other.holder, other.phase) == (False, "tester", "announced")
        for step in (other.started, other.finish, other.roll_back, other.take_over):
            _refused(step, mine)
        assert store.drops.resume(lambda pending: pytest.fail("it is in hand")) == 0
        mine.roll_back()

    def test_at_once_if_the_clock_was_set_back(self, store: Store, table: ms.Table) -> None:
        store.tables.begin_drop(T)
        name = drop_name(table.id)
        row = read_drop(behind(store), name)
        assert row is not None
        view: Any = SimpleNamespace(backend=behind(store))
        now = row.record.modified_at - MOST_AHEAD
        with pytest.raises(ms.DropPending, match="holds the drop of"):
            take_over(view, row, now)
        assert take_over(view, row, now - 1).writes

    def test_the_old_holder_is_fenced(self, store: Store, table: ms.Table) -> None:
        old = store.tables.begin_drop(T, ttl=SOON)
        new = _taken_over(store)
        assert new.token == 2
        for step in (old.started, old.finish, old.roll_back):
            _refused(step, new)
        new.roll_back()
        assert store.tables.load(T).id == table.id

    def test_taken_over_before_the_lost_answer_is_looked_up(self, store: Store, table: ms.Table) -> None:
        old = store.tables.begin_drop(T, ttl=SOON)
        session, backend = store._session, store._session.backend
        new: list[ms.PendingDrop] = []

        class Losing:
            def commit(self, value: Commit) -> CommitOutcome:
                session.backend = backend
                assert isinstance(backend.commit(value), Committed)
                new.append(_taken_over(store))
                return Unknown("the wire was cut")

            def in_one_go(self, work: Callable[[], Any], **_: Any) -> Any:
                return work()  # in this task: the only thread of an async store is free for the other process

            def __getattr__(self, name: str) -> Any:
                return getattr(backend, name)

        session.backend = cast(Backend, Losing())
        with pytest.raises(ms.DropPending, match="taken over"):
            old.started()
        _refused(old.finish, new[0])
        assert (old.token, old.held) == (1, False)
        assert new[0].finish()

    def test_it_waits_out_the_old_ttl(self, store: Store, table: ms.Table) -> None:
        old = store.tables.begin_drop(T, ttl=0.4)
        old.started()
        clock = behind_clock(store)
        (new,) = store.drops.pending()
        while not new.held:
            began = clock.monotonic()  # of the attempt that takes it over
            with suppress(ms.DropPending):
                new.take_over()
        assert new.finish()
        assert clock.monotonic() - began >= 0.3

    def test_what_had_not_started_need_not_wait(self, store: Store, table: ms.Table) -> None:
        def waited() -> float:
            store.tables.begin_drop(T, ttl=0.4)
            new = _taken_over(store)
            began = behind_clock(store).monotonic()
            new.roll_back()
            return behind_clock(store).monotonic() - began

        assert any(waited() < 0.4 for _ in range(10))  # on a busy machine, a single one may be late

    @pytest.mark.parametrize("started", [False, True])
    def test_resume(self, store: Store, table: ms.Table, started: bool) -> None:
        left = store.tables.begin_drop(T, ttl=SOON)
        if started:
            left.started()
        seen: list[tuple[str, int, str, Any]] = []
        finished = 0
        while not finished:
            finished = store.drops.resume(lambda p: seen.append((p.phase, p.token, p.path, p.entity_id)))
        assert (finished, seen) == (1, [("started", 2, T, table.id)])
        assert list(store.drops.pending()) == []
        assert store.verify() == []

    @pytest.mark.parametrize("fails", ["m.c.one.u", T])
    def test_a_handler_that_fails(self, store: Store, table: ms.Table, fails: str) -> None:
        """It may fail for ever: the others are finished all the same, those before it and those after it."""
        other = store.tables.create("m.c.one.u")
        for name in (T, other):
            store.tables.begin_drop(name, ttl=SOON)

        def handler(pending: ms.PendingDrop) -> None:
            if pending.path == fails:
                raise OSError("the storage is away")

        _wait_until_lapsed(store)
        with pytest.raises(OSError, match="away"):
            store.drops.resume(handler)
        assert [pending.path for pending in store.drops.pending()] == [fails]

    def test_the_handler_of_the_kind(self, store: Store, table: ms.Table) -> None:
        from metastore.kinds import handlers

        seen: list[str] = []
        store.tables.begin_drop(T, ttl=SOON)
        _wait_until_lapsed(store)
        assert store.drops.resume() == 0
        try:
            ms.on_drop("table", lambda pending: seen.append(pending.path))
            assert store.drops.resume() == 1
        finally:
            handlers._HANDLERS.clear()
        assert seen == [T]
        # one that cannot be called with the drop alone would fail when the drop cannot be rolled back any more
        for wrong in (
            ("none", print),
            ("table", "print"),
            ("table", lambda: None),
            ("table", lambda drop, folder: None),
        ):
            with pytest.raises(ms.InvalidArgument):
                ms.on_drop(*wrong)
        for handler in ("print", lambda: None, lambda drop, folder: None):
            with pytest.raises(ms.InvalidArgument):
                store.drops.resume(handler)  # type: ignore[arg-type]

    def test_a_registered_handler_is_not_async(self) -> None:
        """Nothing would await it: the drop would be finished, and its data would be there."""

        async def destroy(pending: object) -> None:
            pass

        class Destroyer:
            async def __call__(self, pending: object) -> None:
                pass

        for handler in (destroy, Destroyer()):
            with pytest.raises(ms.InvalidArgument, match="nothing would await it"):
                ms.on_drop("table", handler)


class TestUsers:
    def test_needs_what_a_drop_needs(self, store: Store, table: ms.Table) -> None:
        store.users.create("m.ann")
        store.users.create("m.bob")
        store.roles.create("m.reader")
        store.roles.grant("m.reader", "use_catalog", "m.c", kind="catalog")
        store.roles.grant("m.reader", "use_schema", "m.c.one", kind="schema")
        store.roles.grant("m.reader", "select_table", T, kind="table")
        for name in ("m.ann", "m.bob"):
            store.roles.assign("m.reader", store.users.load(name))
        store.owners.set(table, store.users.load("m.ann"))
        ann, bob = store.as_user("ann"), store.as_user("bob")
        with pytest.raises(ms.PermissionDenied):
            bob.tables.begin_drop(T)
        pending = ann.tables.begin_drop(T, ttl=SOON)
        _refused(lambda: bob.tables.load(T), pending)
        (seen,) = bob.drops.pending()
        _wait_until_lapsed(store)
        with pytest.raises(ms.PermissionDenied):
            seen.roll_back()
        pending.roll_back()
        assert bob.tables.load(T).id == table.id
        store.users.create("m.eve")
        hidden = store.tables.begin_drop(T)
        eve = store.as_user("eve")
        assert list(eve.drops.pending()) == []
        with pytest.raises(ms.EntityNotFound):
            eve.tables.load(T)
        hidden.roll_back()
        assert store.verify() == []

    def test_the_name_of_a_hidden_target_is_taken(self, store: Store, table: ms.Table) -> None:
        """At once, and not after attempts until the deadline; the error says nothing of the drop."""
        maker = store.roles.create("m.maker")
        for privilege, kind, path in (("use_catalog", "catalog", "m.c"), ("use_schema", "schema", "m.c.one")):
            store.roles.grant(maker, privilege, path, kind=kind)
        store.roles.grant(maker, "create_table", "m.c.one", kind="schema")
        store.roles.assign(maker, store.users.create("m.eve"))
        eve = store.as_user("eve").bind(deadline=1.0)
        own = eve.tables.create("m.c.one.own")
        pending = store.tables.begin_drop(table)
        for call in (
            lambda: eve.tables.create(T),
            lambda: eve.tables.rename(own, "t"),
            lambda: eve.run(lambda tx: tx.tables.create(T)),
            lambda: eve.tables.create_many("m.c.one", [{"name": "t"}]),
        ):
            with pytest.raises(ms.EntityAlreadyExists, match="t already exists"):
                call()
        pending.roll_back()
        assert store.tables.load(T).id == table.id

    def test_resumes_what_it_may_drop(self, store: Store, table: ms.Table) -> None:
        """The handler is never called for what the user may not drop: the right is checked before data is destroyed."""
        ann, bob = store.users.create("m.ann"), store.users.create("m.bob")
        role = store.roles.create("m.reader")
        for word in ("use_catalog", "use_schema", "select_table"):
            store.roles.grant(role, word, "m.c", kind="catalog")
        for user in (ann, bob):
            store.roles.assign(role, user)
        mine = store.as_user("ann").partitions
        store.owners.set(table, ann)
        theirs = store.tables.create("m.c.one.theirs")
        store.owners.set(theirs, bob)
        store.tables.begin_drop(theirs, ttl=SOON).started()
        mine.begin_drop(table, "p1", ttl=SOON)
        store.users.create("m.eve")
        _wait_until_lapsed(store)
        destroyed = list[str]()

        def destroy(pending: ms.PendingDrop) -> None:
            destroyed.append(pending.path)

        assert store.as_user("eve").drops.resume(destroy) == 0
        assert {one.path for one in store.as_user("bob").drops.pending()} == {f"{T}.p1", "m.c.one.theirs"}
        for name, path in (("ann", f"{T}.p1"), ("bob", "m.c.one.theirs")):
            while not store.as_user(name).drops.resume(destroy):
                pass  # what had started waits for its ttl once more
            assert destroyed.pop() == path
            assert destroyed == []
        assert list(store.drops.pending()) == []
        assert store.verify() == []


def test_more_than_a_page_is_pending(store: Store, table: ms.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metastore.managers.drops.row._PAGE", 2)
    paths = [f"m.c.one.u{n}" for n in range(5)]
    for path in paths:
        store.tables.begin_drop(store.tables.create(path))
    assert sorted(one.path for one in store.drops.pending()) == paths


def _taken_over(store: Store) -> ms.PendingDrop:
    (pending,) = store.drops.pending()
    while not pending.held:
        with suppress(ms.DropPending):
            pending.take_over()
    return pending


def _wait_until_lapsed(store: Store) -> None:
    backend = behind(store)
    while any(backend.now() < pending.expires_at.timestamp() * 1e6 for pending in store.drops.pending()):
        pass


def behind_clock(store: Store) -> Any:
    """Return the clock of the store's calls."""
    return store._session.clock


def test_live_again_and_dropped(ground: Ground) -> None:
    """A plain drop after a roll-back is a plain drop."""
    store = ground.store
    store.tables.begin_drop(ground.table).roll_back()
    assert _state(behind(store), ground.table.id) == LIVE
    assert store.tables.drop(ground.table)
    assert store.tables.restore(ground.table.path).id == ground.table.id


def test_who_has_a_drop_is_told_at_once(store: Store, table: ms.Table) -> None:
    """What a step returns says the same as the database: who made it."""
    announced = store.tables.begin_drop(table, ttl=60, principal="ann")
    assert [announced.holder] == [one.holder for one in store.drops.pending()] == ["ann"]
    own = store.bind(principal="bob").tables.begin_drop(store.tables.create("m.c.one.mine"), ttl=60)
    own.started()
    assert [own.holder] == [one.holder for one in store.drops.pending() if one.path == own.path] == ["bob"]
