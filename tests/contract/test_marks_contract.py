"""What every backend promises of marks: guards step aside, the owner passes, nothing lapses by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore.kinds.entity import Entity
from metastore.port.backend import QUIET
from metastore.port.commit import Cause, Commit
from metastore.port.conditions import DROPPED, Absent, Expect, Guard
from metastore.port.intents import Mark
from metastore.port.writes import Write
from tests.contract.ground import (
    NEW_DOC,
    Ground,
    commit_of,
    delete,
    exclusive,
    guards_of,
    insert,
    interrupted,
    put,
    renamed,
    update,
)
from tests.contract.intents import committed, conflict, document, eventually, freeze, mark, new_id, unmarked

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

MARKED: tuple[Cause, ...] = ("marked", "read")
"""What a commit may say that stepped aside; "read" where it is sent in several statements."""


def guarded(*writes: Write, by: tuple[Entity, ...], **fields: Any) -> Commit:
    return commit_of(*writes, guards=guards_of(*by), **fields)


STEP_ASIDE: dict[str, Callable[[Ground], tuple[Entity, Commit]]] = {
    "create": lambda g: (g.one, guarded(insert(g.one, "x"), by=(g.one,))),
    "create further below": lambda g: (g.catalog, guarded(insert(g.one, "x"), by=(g.one,))),
    "alter below": lambda g: (g.one, guarded(update(g.table, doc=NEW_DOC), by=(g.one,))),
    "alter of the scope": lambda g: (g.one, guarded(update(g.one, doc=NEW_DOC), by=(g.catalog,))),
    "alter of the scope, in a batch": lambda g: (
        g.one,
        guarded(update(g.one, doc=NEW_DOC), insert(g.two, "x"), by=(g.two,)),
    ),
    "owned": lambda g: (g.one, guarded(put(g.table, "q"), delete(g.table, g.part), by=(g.table,))),
    "owned, of the scope": lambda g: (g.table, guarded(put(g.table, "q"), by=(g.table,))),
    "rename below": lambda g: (g.catalog, guarded(renamed(g, "due"), by=(g.catalog,))),
    "rename of the scope": lambda g: (g.two, guarded(renamed(g, "due"), by=(g.catalog,))),
    "transaction": lambda g: (
        g.one,
        guarded(insert(g.one, "x"), update(g.table, doc=NEW_DOC), by=(g.one,), reads=(Expect(g.two.id, 1),)),
    ),
    "only reads": lambda g: (g.one, guarded(by=(g.one,), reads=(Expect(g.table.id, 1),))),
    "stages": lambda g: (
        g.one,
        guarded(update(g.table, doc=NEW_DOC), update(g.table, version=2, doc=document("3")), by=(g.one,)),
    ),
    "skip_existing": lambda g: (
        g.one,
        guarded(insert(g.one, "x"), insert(g.one, "y"), by=(g.one,), skip_existing=True),
    ),
}


class TestMarking:
    def test_a_mark(self, ground: Ground) -> None:
        own = new_id()
        (result,) = committed(ground.backend.mark(Mark(own, ground.one.id, 30.0))).results
        assert result is not None
        assert (result.id, result.version) == (ground.one.id, 1)
        (found,) = ground.backend.marked([ground.one.id, ground.two.id, ground.catalog.id])
        assert (found.id, found.mark) == (ground.one.id, own)
        assert 20 < found.seconds <= 30
        one = ground.store.schemas.load("m.c.one")
        assert (one, one.scope_version) == (ground.one, 1), "reads pass, and nothing has changed"
        committed(ground.backend.mark(Mark(own, ground.one.id, 60.0)))  # again: it lasts longer
        assert ground.backend.marked([ground.one.id])[0].seconds > 50
        before = ground.dump()
        conflict(ground.backend.mark(Mark(new_id(), ground.one.id, 30.0)), "marked")
        conflict(ground.backend.mark(Mark(new_id(), 10**6, 30.0)), "ancestor", "marked")
        assert not ground.backend.unmark(ground.one.id, new_id())
        assert not ground.backend.unmark(ground.two.id, own)
        assert not ground.backend.unmark(10**6, own)
        assert not ground.backend.clear(ground.one.id, own), "it is not expired"
        assert ground.dump() == before
        assert ground.backend.unmark(ground.one.id, own)
        assert not ground.backend.unmark(ground.one.id, own)
        assert ground.store.schemas.load("m.c.one").scope_version == 1
        assert ground.backend.marked([]) == []

    def test_a_freeze_bumps_the_scope_version(self, ground: Ground) -> None:
        own = new_id()
        wanted = Mark(own, ground.one.id, 30.0, scope_version=1, guards=guards_of(ground.catalog))
        before = ground.dump()
        conflict(ground.backend.mark(replace(wanted, scope_version=2)), "ancestor")
        conflict(ground.backend.mark(replace(wanted, guards=(Guard(ground.catalog.id, 2),))), "ancestor")
        assert ground.dump() == before
        (result,) = committed(ground.backend.mark(wanted)).results
        assert result is not None
        assert result.version == 2
        one = ground.store.schemas.load("m.c.one")
        assert (one.version, one.scope_version) == (1, 2)
        assert [v.version for v in ground.store.schemas.history("m.c.one")] == [1]
        before = ground.dump()
        conflict(ground.backend.mark(wanted), "ancestor")
        conflict(ground.backend.mark(replace(wanted, operation_id=new_id(), scope_version=2)), "marked", "ancestor")
        below = Mark(new_id(), ground.table.id, 30.0, scope_version=1, guards=guards_of(one))
        conflict(ground.backend.mark(below), "marked", "ancestor")
        assert ground.dump() == before

    def test_marked_first_then_frozen(self, ground: Ground) -> None:
        own = mark(ground, ground.one)
        (result,) = committed(ground.backend.mark(Mark(own, ground.one.id, 30.0, 1, guards_of(ground.catalog)))).results
        assert result is not None
        assert result.version == 2

    def test_the_others_turn(self, ground: Ground) -> None:
        """After a mark, for as long as it was there and 50 ms at least, there is no other one."""
        own = mark(ground, ground.one)
        eventually(lambda: ground.backend.now() > _marked_at(ground, own) + 3 * QUIET)
        before = ground.backend.now()
        assert ground.backend.unmark(ground.one.id, own)
        assert 3 * QUIET < _quiet_until(ground) - before < 60e6
        found = ground.backend.marked([ground.one.id])
        refused = [
            ground.backend.mark(Mark(own, ground.one.id, 1.0)),
            ground.backend.mark(Mark(new_id(), ground.one.id, 1.0, 1)),
            ground.send(exclusive(ground.one)),
        ]
        shared = ground.send(insert(ground.one, "x"), guards=guards_of(ground.one))
        plain = ground.send(update(ground.one, doc=NEW_DOC))
        if not ground.backend.marked([ground.one.id]):
            pytest.skip("the machine was too slow")
        assert [(one.mark, 0 < one.seconds * 1e6 < 60e6) for one in found] == [(None, True)]
        for outcome in refused:
            conflict(outcome, "marked", "ancestor")
        committed(shared)
        committed(plain)
        eventually(lambda: ground.backend.marked([ground.one.id]) == [])
        mark(ground, ground.one, 1.0)

    def test_at_least(self, ground: Ground) -> None:
        own = mark(ground, ground.one)
        assert ground.backend.unmark(ground.one.id, own)
        until = _quiet_until(ground)
        committed(eventually(lambda: _marked(ground, ground.one)))
        assert ground.backend.now() >= until


def _marked(ground: Ground, entity: Entity) -> Any:
    outcome = ground.backend.mark(Mark(new_id(), entity.id, 1.0))
    return outcome if unmarked(ground, entity) is False else None


def _quiet_until(ground: Ground) -> int:
    """Return until when the others have their turn in the first schema."""
    guard = next(row for row in ground.dump()["guard"] if row[0] == ground.one.id)
    assert guard[-1] is not None
    return int(guard[-1])


def _marked_at(ground: Ground, own: UUID) -> int:
    return next(int(row[-3]) for row in ground.dump()["guard"] if str(row[-4]) == str(own))


class TestGuardsStepAside:
    @pytest.mark.parametrize("what", STEP_ASIDE)
    def test_for_others_not_for_ones_own(self, ground: Ground, what: str) -> None:
        scope, commit = STEP_ASIDE[what](ground)
        other = mark(ground, scope)
        before = ground.dump()
        conflict(ground.backend.commit(commit), *MARKED)
        assert ground.dump() == before
        bad = replace(commit, guards=(*commit.guards, Guard(10**6, 1)))
        conflict(ground.backend.commit(bad), "ancestor", *MARKED)
        assert ground.dump() == before
        held = (
            scope.id if any(getattr(w, "scope_version", None) and w.id == scope.id for w in _updates(commit)) else None
        )
        committed(ground.backend.commit(replace(commit, operation_id=other, held=held)))
        assert unmarked(ground, scope) == (held is not None)

    def test_shared_guards_of_a_read_value(self, ground: Ground) -> None:
        """An exclusive guard steps aside too."""
        mark(ground, ground.one)
        barred = Guard(ground.one.id, 1, exclusive=True)
        conflict(ground.send(guards=(barred,), reads=(Absent(ground.one.id, "schema", "x"),)), *MARKED)
        committed(ground.send(guards=(Guard(ground.two.id, 1, exclusive=True),)))


def _updates(commit: Commit) -> list[Any]:
    return [w for w in commit.writes if hasattr(w, "scope_version")]


HELD: dict[str, Callable[[Ground, Guard], Commit]] = {
    "rename": lambda g, own: commit_of(renamed(g, "due"), guards=guards_of(g.catalog)),
    "rename, frozen": lambda g, own: commit_of(
        replace(renamed(g, "due"), scope_version=own.scope_version), guards=guards_of(g.catalog)
    ),
    "drop and others": lambda g, own: commit_of(
        exclusive(g.two, state=DROPPED, scope_version=own.scope_version), update(g.one, doc=NEW_DOC), put(g.table, "q")
    ),
    "stages": lambda g, own: commit_of(
        replace(renamed(g, "due"), scope_version=own.scope_version), insert(g.catalog, "two")
    ),
    "create below": lambda g, own: commit_of(insert(g.two, "x"), guards=(own,)),
    "alter of the scope": lambda g, own: commit_of(update(g.two, doc=NEW_DOC), guards=(own,)),
    "several below, in stages": lambda g, own: commit_of(
        update(g.two, doc=NEW_DOC),
        update(g.two, version=2, doc=document("3")),
        insert(g.two, "x"),
        put(g.table, "q"),
        guards=(own, *guards_of(g.catalog)),
    ),
    "create below, then drop": lambda g, own: commit_of(
        insert(g.two, "x"), exclusive(g.two, state=DROPPED, scope_version=own.scope_version), guards=(own,)
    ),
    "exclusive twice": lambda g, own: commit_of(
        replace(renamed(g, "due"), scope_version=own.scope_version),
        exclusive(g.two, version=2, scope_version=own.scope_version + 1, state=DROPPED),
        guards=(own,),
    ),
    "rename, then alter": lambda g, own: commit_of(
        replace(renamed(g, "due"), scope_version=own.scope_version),
        update(g.two, version=2, doc=NEW_DOC),
        guards=(own,),
    ),
    "only reads": lambda g, own: commit_of(guards=(own,), reads=(Expect(g.two.id, 1),)),
}


class TestTheOwnersCommit:
    @pytest.mark.parametrize("what", HELD)
    def test_requires_and_removes_its_mark(self, ground: Ground, what: str) -> None:
        frozen = what != "rename"
        own = freeze(ground, ground.two) if frozen else mark(ground, ground.two)
        commit = replace(HELD[what](ground, Guard(ground.two.id, 1 + frozen)), held=ground.two.id)
        before = ground.dump()
        conflict(ground.backend.commit(commit), *MARKED)  # another operation's
        elsewhere = replace(commit, held=ground.one.id, guards=(*commit.guards, Guard(ground.one.id, 1)))
        conflict(ground.backend.commit(replace(elsewhere, operation_id=own)), "ancestor", *MARKED)
        stale = replace(commit, operation_id=own, guards=(*commit.guards, Guard(ground.lake.id, 5)))
        conflict(ground.backend.commit(stale), "ancestor", "read")
        assert ground.dump() == before
        committed(ground.backend.commit(replace(commit, operation_id=own)))
        assert unmarked(ground, ground.two)
        (guard,) = [row for row in ground.dump()["guard"] if row[0] == ground.two.id]
        assert guard[-4:-1] == (None, None, None)
        assert guard[-1] is not None, "it is the others' turn"
        again = commit_of(guards=(Guard(ground.two.id, guard[9]),), held=ground.two.id)
        conflict(ground.backend.commit(again), *MARKED)

    def test_after_it_was_taken_away(self, ground: Ground) -> None:
        own = mark(ground, ground.two)
        assert ground.backend.unmark(ground.two.id, own)
        commit = commit_of(renamed(ground, "due"), operation_id=own, held=ground.two.id)
        conflict(ground.backend.commit(commit), "ancestor", *MARKED)  # the turn of the others may be over


def _twice(tx: Any) -> Any:
    tx.tables.alter("m.c.one.t", ms.SetComment("1"))
    return tx.tables.alter("m.c.one.t", ms.SetComment("2"))


def _freeze(ground: Ground) -> bool:
    with ground.store.schemas.exclusive("m.c.one", timeout=3.0) as tx:
        tx.tables.alter("m.c.one.t", ms.SetComment("x"))
    return True


CALLS: dict[str, Callable[[Ground], object]] = {
    "drop": lambda g: g.store.schemas.drop("m.c.one", cascade=True),
    "pinned": lambda g: g.store.tables.alter("m.c.one.t", ms.SetComment("x"), expected_version=1, deadline=3.0),
    "replace": lambda g: g.store.tables.create("m.c.one.t", comment="x", if_exists="replace", deadline=3.0),
    "freeze": _freeze,
    "create": lambda g: g.store.tables.create("m.c.one.new"),
    "alter": lambda g: g.store.tables.alter("m.c.one.t", ms.SetComment("x")),
    "alter of the scope": lambda g: g.store.schemas.alter("m.c.one", ms.SetComment("x")),
    "rename": lambda g: g.store.schemas.rename("m.c.one", "uno"),
    "partition": lambda g: g.store.partitions.create("m.c.one.t", "q", values={}),
    "transaction": lambda g: g.store.run(lambda tx: tx.tables.alter("m.c.one.t", ms.SetComment("x")), deadline=3.0),
    "transaction, in stages": lambda g: g.store.run(_twice, deadline=3.0),
    "create_many": lambda g: g.store.tables.create_many("m.c.one", [{"name": "a"}, {"name": "b"}]),
    "create_many, replace": lambda g: g.store.tables.create_many(
        "m.c.one", [{"name": "t", "comment": "x"}, {"name": "u"}], if_exists="replace", deadline=3.0
    ),
}
OF_THE_TABLE = (
    "alter",
    "pinned",
    "replace",
    "partition",
    "transaction",
    "transaction, in stages",
    "create_many, replace",
)


class TestExpiry:
    def test_it_holds_until_it_is_cleared(self, ground: Ground) -> None:
        """Then the scope version is another one, so that the owner's commit fails, whatever it says of its mark."""
        own = mark(ground, ground.two, 0.0)
        eventually(lambda: ground.backend.marked([ground.two.id])[0].seconds < 0)
        conflict(ground.send(insert(ground.two, "x"), guards=guards_of(ground.two)), *MARKED)
        conflict(ground.backend.mark(Mark(new_id(), ground.two.id, 1.0)), "marked")
        assert not ground.backend.clear(ground.two.id, new_id())
        assert not ground.backend.clear(ground.one.id, own)
        assert eventually(lambda: ground.backend.clear(ground.two.id, own))
        assert not ground.backend.clear(ground.two.id, own)
        two = ground.store.schemas.load("m.c.two")
        assert (two.version, two.scope_version) == (1, 2)
        assert unmarked(ground, ground.two)
        before = ground.dump()
        commit = commit_of(renamed(ground, "due"), operation_id=own)
        conflict(ground.backend.commit(replace(commit, held=ground.two.id)), "marked", "ancestor")
        conflict(ground.backend.commit(commit), "marked", "ancestor")
        below = commit_of(insert(ground.two, "x"), guards=guards_of(ground.two), operation_id=own)
        conflict(ground.backend.commit(below), "ancestor")
        assert ground.dump() == before

    def test_its_owner_comes_back_in_time(self, ground: Ground) -> None:
        own = freeze(ground, ground.two, 0.0)
        commit = commit_of(insert(ground.two, "x"), guards=(Guard(ground.two.id, 2),), operation_id=own)
        committed(ground.backend.commit(replace(commit, held=ground.two.id)))
        assert not ground.backend.clear(ground.two.id, own)

    @pytest.mark.parametrize("what", CALLS)
    def test_whoever_comes_clears_it(self, ground: Ground, what: str) -> None:
        mark(ground, ground.one, 0.02)
        assert CALLS[what](ground)
        assert ground.backend.marked([ground.one.id]) == [] or unmarked(ground, ground.one)

    @pytest.mark.parametrize("what", OF_THE_TABLE)
    def test_on_the_entity_itself(self, ground: Ground, what: str) -> None:
        mark(ground, ground.table, 0.02)
        assert CALLS[what](ground)
        assert unmarked(ground, ground.table)

    @pytest.mark.parametrize("verb", ["create", "rename"])
    def test_also_with_a_claim(self, ground: Ground, verb: str) -> None:
        """What was taken up again, and then meets the mark of a dead operation."""
        own, calls = new_id(), ground.store.tables
        assert ground.backend.forbid(own) == 1
        with interrupted(ground.store, lambda: None, lambda: mark(ground, ground.one, 0.02)):
            if verb == "create":
                calls.create("m.c.one.new", operation_id=own, deadline=3.0)
            else:
                calls.rename("m.c.one.t", "new", operation_id=own, deadline=3.0)
        assert calls.exists("m.c.one.new")
