"""Histories that the defects of the reviews leave behind: the checker finds each, without knowing the defect."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore.backends.sqlite.backend import SqliteBackend
from metastore.checker.event import Event
from metastore.checker.gather import _events
from metastore.checker.operation import ClientOperation
from metastore.checker.recorder import Recorder
from metastore.checker.tree import Tree
from metastore.loadtest.calls import Calls, Within
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.conditions import Children, Newest
from tests.checker.histories import created, dropped, found, lost, operation, saw, wrote
from tests.checker.judged import judged

BEFORE = (created(1, 7, "a", "setup"), created(2, 8, "b", "setup"))
SECOND = 10**9


def _tree_of(store: ms.Store) -> list[str]:
    """Return the rules that the feed of a store breaks."""
    tree, rules = Tree(), list[str]()
    with store._session.backend.snapshot() as snapshot:
        for event in _events(snapshot):
            _, findings = tree.apply(Event._make([event.get(name) for name in Event._fields]))
            rules += [finding.rule for finding in findings]
    return rules


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with ms.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.metalakes.create("lake")
        yield store


def _refused(store: ms.Store, key: str) -> ms.Metalake:
    """Return what a transaction returned that was refused, where another committed the same version."""
    tx = store.transaction()
    with pytest.raises(ms.VersionConflict), tx:  # noqa: PT012  (the error comes at the end of the block)
        mine = tx.metalakes.alter(tx.metalakes.load("lake"), ms.SetProperty("mine", key))
        store.metalakes.alter("lake", ms.SetProperty(key, "theirs"))
    return mine


def test_1_an_entity_of_a_refused_transaction(store: ms.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.metalakes.alter(_refused(store, "first"), ms.SetComment("kept"))
    assert _tree_of(store) == []
    mine = _refused(store, "second")
    monkeypatch.setattr("metastore.operation.request.committed", lambda *_: True)  # the original trusted every entity
    store.metalakes.alter(mine, ms.SetComment("lost"))
    assert "second" not in store.metalakes.load("lake").properties, "the original is not planted"
    assert _tree_of(store) == ["replay"]


def test_3_a_crash_that_forgot_an_acknowledged_commit() -> None:
    kept = operation("c/1", 0, 1, events=[wrote(3, 7, 2, "c/1")])
    forgotten = operation("c/2", 2, 3)
    assert [f.rule for f in found([kept, forgotten], before=BEFORE, since=2)] == ["once"]
    assert [f.rule for f in found([kept], before=BEFORE, since=2)] == []


@pytest.mark.parametrize(("called", "returned", "rules"), [(11, 19, ["cycle"]), (9, 19, []), (11, 21, [])])
def test_4_a_commit_inside_of_a_freeze(called: int, returned: int, rules: list[str]) -> None:
    """Only a call that lies between the begin and the end of the block as a whole contradicts it."""
    freeze = operation("f/1", 0, 30, action="freeze", outcome="nothing", held=(10, 20))._replace(path="a")
    replaced = operation("c/1", called, returned, events=[wrote(3, 7, 2, "c/1")])
    beside = operation("d/1", 12, 13, events=[wrote(4, 8, 2, "d/1")])
    assert [f.rule for f in found([freeze, replaced, beside], before=BEFORE, since=2)] == rules


def test_4_a_commit_below_a_freeze() -> None:
    child = created(3, 9, "c", "setup", parent_id=7, family="catalog")
    freeze = operation("f/1", 0, 30, action="freeze", outcome="nothing", held=(10, 20))._replace(path="a")
    inside = operation("c/1", 11, 12, events=[wrote(4, 9, 2, "c/1")])
    assert [f.rule for f in found([freeze, inside], before=(*BEFORE, child), since=3)] == ["cycle"]
    lost_freeze = freeze._replace(outcome="conflicted")  # its time was over: nobody was promised anything
    assert found([lost_freeze, inside], before=(*BEFORE, child), since=3) == []


def _event(seq: int, action: str, entity_id: int, version: int, asked: str | None = None) -> Event:
    before, after = (None if action in ("create", "restore") else "a"), (None if action == "drop" else "a")
    return Event(seq, f"o{seq}", f"c/{seq}", "metalake", action, entity_id, None, version, before, after, asked)


@pytest.mark.parametrize(
    ("restored", "asked", "rules"), [(7, "restore", ["replay"]), (8, "restore", []), (7, "restore_id", [])]
)
def test_5_a_restore_of_one_that_is_not_the_newest(restored: int, asked: str, rules: list[str]) -> None:
    tree = Tree()
    for event in (
        _event(1, "create", 7, 1),
        _event(2, "drop", 7, 2),
        _event(3, "create", 8, 1),
        _event(4, "drop", 8, 2),
    ):
        assert tree.apply(event)[1] == []
    found = tree.apply(_event(5, "restore", restored, 3, asked))[1]
    assert [finding.rule for finding in found] == rules


def test_5_what_was_restored_and_dropped_again_is_the_newest() -> None:
    tree, events = Tree(), list[Event]()
    for seq, action, entity_id, version in [
        *((1, "create", 7, 1), (2, "drop", 7, 2), (3, "create", 8, 1), (4, "drop", 8, 2)),
        *((5, "restore", 8, 3), (6, "drop", 8, 4), (7, "purge", 8, 5), (8, "restore", 7, 3)),
    ]:
        events.append(_event(seq, action, entity_id, version, "restore" if action == "restore" else None))
    assert [finding for event in events for finding in tree.apply(event)[1]] == []


def test_6_a_late_original_after_a_claim_that_wrote_nothing() -> None:
    late = operation("c/1", 0, 1, action="create_many", outcome="nothing", events=[wrote(3, 7, 2, "c/1")])
    assert [f.rule for f in found([late], before=BEFORE, since=2)] == ["once"]


@pytest.mark.parametrize(("after", "rules"), [(3600, ["conflict"]), (60, [])])
def test_7_a_clock_that_jumped_holds_a_scope_up(after: int, rules: list[str]) -> None:
    """No client is left, and a mark still blocks the scope."""
    drop = operation("d/1", 0, 1, action="drop", events=[dropped(3, 7, "a", "d/1")])
    held_up = operation("c/1", after * SECOND, after * SECOND + 1, outcome="conflicted", conflicts=[lost("marked")])
    assert [f.rule for f in found([drop, held_up], before=BEFORE, since=2)] == rules


def test_8_an_error_that_rests_on_two_instants() -> None:
    """It says that a is not there and that b is: first a is there, then neither."""
    first = operation("d/1", 1, 2, action="drop", events=[dropped(3, 8, "b", "d/1")])
    second = operation("d/2", 3, 4, action="drop", events=[dropped(4, 7, "a", "d/2")])
    torn = operation("c/1", 0, 9, action="purge", outcome="failed", reads=[saw("a"), saw("b", 8)])
    true = torn._replace(reads=(saw("a", 7), saw("b")))
    assert [f.rule for f in found([torn, first, second], before=BEFORE, since=2)] == ["cycle"]
    assert found([true, first, second], before=BEFORE, since=2) == []


@pytest.fixture
def calls(store: ms.Store, tmp_path: Path) -> Calls:
    """The recorded calls of one client, whose tree has an empty schema, a full one, and a note."""
    store.catalogs.create("lake.c", type="relational")
    for path in ("lake.c.full.t", "lake.c.gone.t", "lake.c.notes.note"):
        store.tables.create(path, parents=True)
    store.tables.drop("lake.c.gone.t")
    return Calls(store, Recorder(tmp_path / "run", "c"))


def _writes_down(store: ms.Store, calls: Calls, attempt: Callable[[Within], object], *beside: str) -> str:
    """In one transaction catch an error and write it down; drop tables beside it, before it commits."""

    def block(within: Within) -> None:
        came = "done"
        try:
            attempt(within)
        except ms.MetastoreError as error:
            came = error.code
        if calls.last.attempts == 0 and all(map(store.tables.exists, beside)):
            for path in beside:
                store.tables.drop(path)
        within.alter("lake.c.notes.note", ms.SetProperty("came", f"{came} {calls.last.number}"))

    calls.transaction("lake.c.notes.note", block)
    return store.tables.load("lake.c.notes.note").properties["came"].split()[0]


def _without(reads: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant the original: a commit does not validate such reads."""
    commit = SqliteBackend.commit

    def careless(self: SqliteBackend, one: Commit) -> CommitOutcome:
        return commit(self, replace(one, reads=tuple(read for read in one.reads if not isinstance(read, reads))))

    monkeypatch.setattr(SqliteBackend, "commit", careless)


def test_2_a_caught_not_empty(store: ms.Store, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(within: Within) -> object:
        return within.drop("lake.c.full", kind="schema")

    assert _writes_down(store, calls, drop) == "not_empty"
    assert judged(store, tmp_path / "run") == []
    _without(Children, monkeypatch)
    assert _writes_down(store, calls, drop, "lake.c.full.t") == "not_empty"
    assert [finding.rule for finding in judged(store, tmp_path / "run")] == ["cycle"]


def test_2_a_caught_restore_of_nothing(
    store: ms.Store, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restore(within: Within) -> object:
        return within.restore("lake.c.full.t")

    assert _writes_down(store, calls, restore) == "entity_not_found"
    assert judged(store, tmp_path / "run") == []
    _without(Newest, monkeypatch)
    assert _writes_down(store, calls, restore, "lake.c.full.t") == "entity_not_found"
    assert [finding.rule for finding in judged(store, tmp_path / "run")] == ["cycle"]


def test_1_an_entity_of_another_database(store: ms.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ms.open(f"sqlite:///{tmp_path / 'b.db'}") as other:
        other.metalakes.create("lake", properties={"of": "another database"})
        strange = other.metalakes.alter("lake", ms.SetComment("there"))
    store.metalakes.alter("lake", ms.SetComment("kept"))
    with pytest.raises(ms.InvalidArgument):
        store.metalakes.alter(strange, ms.SetProperty("a", "1"))
    assert _tree_of(store) == []
    for where in ("metastore.managers.mutation.committed", "metastore.operation.request.committed"):
        monkeypatch.setattr(where, lambda *_: True)
    store.metalakes.alter(strange, ms.SetProperty("a", "1"))
    assert store.metalakes.load("lake").properties.get("of") == "another database", "the original is not planted"
    assert _tree_of(store) == ["replay"]


def test_7_a_new_id_is_refused_again() -> None:
    """A refusal lowers the bound that a clock left which was ahead; ids that are older than gc keeps may be refused."""
    now = 1_700_000_000.0
    made = {age: str(UUID(int=int((now - age) * 1000) << 80 | 0x7 << 76 | 0b10 << 62)) for age in (1, 8 * 86_400)}

    def refused(number: int, start: int, age: int) -> ClientOperation:
        told = operation(f"c/{number}", start, start + 2, action="create", outcome="failed")
        return told._replace(at=now, error="OperationIdRefused", operation_id=made[age])

    def rules(*told: ClientOperation) -> list[str]:
        return [finding.rule for finding in found(told, before=BEFORE, since=2)]

    later = 200 * SECOND
    assert rules(refused(1, 0, 1), refused(2, later, 1)) == ["conflict"]
    assert rules(refused(1, 0, 1), refused(2, 60 * SECOND, 1)) == []
    assert rules(refused(1, 0, 1), refused(2, later, 8 * 86_400)) == []
    assert rules(refused(1, 0, 1), refused(2, later, 1)._replace(error="OperationIdReused")) == []


def test_7_a_store_that_refuses_new_ids(
    store: ms.Store, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gc ran under a clock that was two days ahead. The original never lowered the bound again."""
    now = time.time_ns() // 1000

    def bound(set_to: int | None = None) -> int:
        backend: Any = store._session.backend
        if set_to is not None:
            backend._written(
                lambda connection, _: connection.execute("UPDATE info SET writer = 99, forgotten = ?", (set_to,))
            )
        return int(backend._written(lambda c, _: c.execute("SELECT forgotten FROM info").fetchone()[0]))

    def create() -> str | None:
        calls.create("lake.c.full.u", operation_id=ms.new_operation_id())
        return calls.last.error

    bound(now + 2 * 86_400_000_000)
    assert create() == "OperationIdRefused"
    assert bound() < time.time_ns() // 1000, "new ids are accepted from a minute later on"
    monkeypatch.setattr(SqliteBackend, "forget", lambda *_: None)
    bound(now + 2 * 86_400_000_000)
    assert create() == "OperationIdRefused"
    assert judged(store, tmp_path / "run") == []
    monotonic = time.monotonic_ns
    monkeypatch.setattr("metastore.checker.recorder.time.monotonic_ns", lambda: monotonic() + 3600 * SECOND)
    assert create() == "OperationIdRefused"
    assert {finding.rule for finding in judged(store, tmp_path / "run")} == {"conflict"}
