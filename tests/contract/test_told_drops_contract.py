"""What those who meet a drop in steps are told, and what one drop does to the others, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.managers.drops import row
from metastore.port.conditions import DROPPING, PURGING
from tests.contract.ground import behind

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

SCHEMA = "m.c.one"
SOON = 0.05
"""A ttl that passes at once (seconds)."""


class _Interrupt(BaseException):
    """What a handler does not raise by itself, such as a Ctrl-C, which ends asyncio's loop as well."""


@pytest.fixture
def names(store: Store) -> list[str]:
    """Make three tables; return their paths, oldest first."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    columns = [ms.Column("id", "int"), ms.Column("st", "struct<a: int>")]
    return [store.tables.create(f"{SCHEMA}.t{n}", parents=True, columns=columns).path for n in range(3)]


def _lapse(store: Store) -> None:
    """Wait until each drop may be taken over, by the database's clock."""
    backend = behind(store)
    while any(backend.now() <= pending.expires_at.timestamp() * 1e6 for pending in store.drops.pending()):
        pass


def _taken_over(store: Store) -> ms.PendingDrop:
    (pending,) = store.drops.pending()
    while not pending.held:
        with suppress(ms.DropPending):
            pending.take_over()
    return pending


def test_a_handler_that_fails_each_time_keeps_no_other_drop_from_its_end(store: Store, names: list[str]) -> None:
    for name in names:
        store.tables.begin_drop(name, ttl=SOON)

    def handler(pending: ms.PendingDrop) -> None:
        if pending.path != names[2]:
            raise OSError(f"no access to {pending.path}")

    _lapse(store)
    with pytest.raises(OSError, match=names[0]):  # the first one is raised, after the others had their turn
        store.drops.resume(handler)
    assert [pending.path for pending in store.drops.pending()] == names[:2]
    assert store.tables.create(names[2]).version == 1
    _lapse(store)
    assert store.drops.resume(lambda _: None) == 2


@pytest.mark.parametrize("away", [True, False])
def test_a_database_that_is_away_ends_the_resuming_at_once(
    store: Store, names: list[str], away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the other drops would wait for it. But a handler may raise the same error of a database of its own."""
    for name in names:
        store.tables.begin_drop(name, ttl=SOON)
    called: list[str] = []

    def fails() -> None:
        raise ms.BackendUnavailable("no answer")

    def handler(pending: ms.PendingDrop) -> None:
        called.append(pending.path)
        fails()

    _lapse(store)
    if away:
        monkeypatch.setattr(behind(store), "ping", fails)
    with pytest.raises(ms.BackendUnavailable):
        store.drops.resume(handler)
    assert called == (names[:1] if away else names)


def test_an_interrupt_ends_the_resuming_at_once(store: Store, names: list[str]) -> None:
    for name in names:
        store.tables.begin_drop(name, ttl=SOON)

    def handler(pending: ms.PendingDrop) -> None:
        if pending.path == names[1]:
            raise _Interrupt

    _lapse(store)
    with pytest.raises(_Interrupt):
        store.drops.resume(handler)
    left = {pending.path: pending.phase for pending in store.drops.pending()}
    assert left == {names[1]: "started", names[2]: "announced"}


def test_a_roll_back_that_comes_too_late_takes_nothing_over(store: Store, names: list[str]) -> None:
    mine = store.tables.begin_drop(names[0], ttl=SOON)
    mine.started()
    _lapse(store)
    (other,) = store.drops.pending()
    with pytest.raises(ms.DropPending, match="has begun"):
        other.roll_back()
    assert (other.held, [pending.token for pending in store.drops.pending()]) == (False, [1])
    assert mine.finish()  # the process that destroys the data is not fenced


def test_a_drop_that_was_taken_over_is_not_held(store: Store, names: list[str]) -> None:
    old = store.tables.begin_drop(names[0], ttl=SOON)
    new = _taken_over(store)
    assert old.held  # it does not know yet
    for step in (old.started, old.finish, old.roll_back):
        with pytest.raises(ms.DropPending, match="taken over"):
            step()
        assert not old.held
    assert new.held
    new.roll_back()
    with pytest.raises(ms.EntityNotFound):
        new.roll_back()
    assert not new.held


def test_a_refused_step_of_a_drop_that_is_held_leaves_it_held(store: Store, names: list[str]) -> None:
    pending = store.tables.begin_drop(names[0])
    pending.started()
    with pytest.raises(ms.DropPending, match="has begun"):
        pending.roll_back()
    assert pending.held
    assert pending.finish()


@pytest.mark.parametrize("call", ["drop", "purge"])
def test_a_parent_that_looks_empty_names_what_is_pending_in_it(store: Store, names: list[str], call: str) -> None:
    other = store.tables.create("m.c.two.t", parents=True)
    elsewhere = store.tables.begin_drop(other)
    for name in names:
        store.tables.drop(name)
    store.tables.create(f"{SCHEMA}.live")
    with pytest.raises(ms.NotEmpty) as plain:
        getattr(store.schemas, call)(SCHEMA)
    assert "being dropped" not in str(plain.value)
    store.tables.drop(f"{SCHEMA}.live")
    pending = store.tables.begin_drop(store.tables.create(f"{SCHEMA}.t9"))
    store.schemas.rename(SCHEMA, "uno")
    assert list(store.tables.list("m.c.uno")) == []
    with pytest.raises(ms.NotEmpty, match=r"m\.c\.uno\.t9, which is being dropped: see store\.drops\.pending\(\)"):
        getattr(store.schemas, call)("m.c.uno")
    for one in (pending, elsewhere):
        one.finish()
    assert getattr(store.schemas, call)("m.c.uno")


def test_a_pending_column_is_named_by_its_own_path(store: Store, names: list[str]) -> None:
    pending = store.tables.begin_drop(names[0], column="st")
    calls: dict[str, Callable[[], Any]] = {
        "a field of it": lambda: store.tables.alter(names[0], ms.SetColumnComment("st.a", "x")),
        "a new field": lambda: store.tables.alter(names[0], ms.AddColumn("st.b", "int")),
        "its name": lambda: store.tables.alter(names[0], ms.RenameColumn("id", "st")),
        "replace": lambda: store.tables.create(names[0], columns=[ms.Column("st", "int")], if_exists="replace"),
        "replace many": lambda: store.tables.create_many(
            SCHEMA, [{"name": "t0", "columns": [ms.Column("st", "int")]}], if_exists="replace"
        ),
    }
    for what, call in calls.items():
        with pytest.raises(ms.DropPending) as refused:
            call()
        assert (refused.value.path, refused.value.operation) == (f"{names[0]}.st", pending.operation), what
        assert f"is dropping {names[0]}.st in steps" in str(refused.value), what


def test_a_view_that_writes_nothing_says_so(store: Store, names: list[str]) -> None:
    with pytest.raises(ms.InvalidArgument, match="the past is read-only"):
        store.at(store.position()).tables.begin_drop(names[0])
    with store.transaction() as tx, pytest.raises(ms.InvalidArgument, match="part of a transaction"):
        tx.tables.begin_drop(names[0])


def test_the_changes_of_what_is_pending_are_read_by_its_entity(store: Store, names: list[str]) -> None:
    pending = store.tables.begin_drop(names[0])
    before = store.position()
    for call in (lambda: store.changes(under=names[0]), lambda: store.diff(before, under=names[0])):
        with pytest.raises(ms.DropPending) as refused:
            list(call())
        assert refused.value.operation == pending.operation
    assert [change.action for change in store.changes(under=pending.entity())] == ["create", "drop"]
    below = store.schemas.begin_drop(SCHEMA)
    with pytest.raises(ms.DropPending) as refused:
        list(store.changes(under=names[1]))
    assert (refused.value.operation, refused.value.path) == (below.operation, SCHEMA)
    with pytest.raises(ms.EntityNotFound):
        list(store.changes(under="m.c.none"))


def test_the_end_of_one_drop_does_not_read_all_the_others(
    store: Store, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, beside, other = (store.tables.load(name).id for name in names)
    drops = [store.tables.begin_drop(name) for name in names]
    part = store.tables.create(f"{SCHEMA}.whole", columns=[ms.Column("a", "int"), ms.Column("b", "int")])
    column, whole = store.tables.begin_drop(part, column="a"), store.tables.begin_drop(part)
    with monkeypatch.context() as patch:
        patch.setattr(row, "above_pending", lambda _: pytest.fail("it reads all that is pending"))
        assert drops[0].finish()
        assert whole.finish()
    left = [known and known.state for known in behind(store).by_id([ended, beside, other, part.id])]
    assert left == [None, DROPPING, DROPPING, PURGING]  # what has a pending part is left to gc
    assert column.finish()
    store.gc(retention=timedelta(0))
    assert behind(store).by_id([part.id]) == [None]
    assert drops[1].finish()
    assert store.schemas.begin_drop(SCHEMA).finish()
    assert behind(store).by_id([beside, other]) == [None, behind(store).by_id([other])[0]]
    assert drops[2].finish()
    assert store.verify() == []


BEGIN: dict[str, Callable[[Store, str], ms.PendingDrop]] = {
    "a table": lambda store, path: store.tables.begin_drop(path, ttl=SOON),
    "a column": lambda store, path: store.tables.begin_drop(path, column="st", ttl=SOON),
    "a partition": lambda store, path: store.partitions.begin_drop(path, "p", ttl=SOON),
}


@pytest.mark.parametrize("begin", BEGIN.values(), ids=BEGIN.keys())
def test_the_next_drop_of_the_same_target_is_another(
    store: Store, names: list[str], begin: Callable[[Store, str], ms.PendingDrop]
) -> None:
    """Its tokens begin again: a process that was taken over long ago has the token of the next drop's holder."""
    store.partitions.create(names[0], "p", values={"id": "1"})
    old = begin(store, names[0])
    (listed,) = store.drops.pending()
    _taken_over(store).roll_back()
    new = begin(store, names[0])
    assert new.token == old.token == listed.token
    _lapse(store)
    for stale in (old, listed):
        for step in (stale.started, stale.roll_back, stale.finish):
            with pytest.raises(ms.EntityNotFound, match="was finished or rolled back"):
                step()
        assert not stale.held
    with pytest.raises(ms.EntityNotFound):
        listed.take_over()
    assert [(one.phase, one.token, one.operation) for one in store.drops.pending()] == [("announced", 1, new.operation)]
    new.started()
    assert new.finish()
    assert not new.finish()
    assert store.verify() == []


def test_a_begin_that_is_repeated_holds_no_later_drop(store: Store, names: list[str]) -> None:
    key = ms.key("drop it")
    store.tables.begin_drop(names[0], operation_id=key).roll_back()
    later = store.tables.begin_drop(names[0])
    repeated = store.tables.begin_drop(names[0], operation_id=key)
    for step in (repeated.started, repeated.roll_back, repeated.finish):
        with pytest.raises(ms.EntityNotFound):
            step()
    assert later.phase == "announced"
    later.roll_back()
