"""What every backend promises of one commit: preconditions, all or nothing, ids, positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from metastore.port.commit import Cause, Commit, Committed, Conflicted
from metastore.port.conditions import DROPPED, LIVE, ROOT_ID, Absent, Expect, Guard, Listing
from metastore.port.relations import NO_COLUMN, NO_VALUE, ONLY
from metastore.port.writes import Event, Relate, Update, Write
from tests.contract.ground import (
    NEW_DOC,
    Ground,
    commit_of,
    delete,
    exclusive,
    guards_of,
    insert,
    put,
    renamed,
    spare,
    update,
)

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@dataclass(frozen=True)
class Case:
    """A precondition: a commit for which it holds, one for which not, and what that one may say it found."""

    holds: Commit
    violated: Commit
    cause: Cause
    id: int | None = None
    found: int | None = None


def _guard(g: Ground, *, exclusive: bool) -> Case:
    good, stale = (Guard(g.one.id, v, exclusive) for v in (g.one.scope_version, g.one.scope_version + 1))
    return Case(commit_of(spare(g), guards=(good,)), commit_of(spare(g), guards=(stale,)), "ancestor", g.one.id, 1)


def _read(g: Ground, good: Any, bad: Any, found_id: int | None, found: int | None = None) -> Case:
    barred = tuple([Guard(e.id, 1, exclusive=True) for e in (g.catalog, g.one, g.two, g.table)])
    holds = commit_of(spare(g), guards=barred, reads=(good,))
    return Case(holds, commit_of(spare(g), guards=barred, reads=(bad,)), "read", found_id, found)


def _listing(g: Ground, *members: Any) -> Listing:
    return Listing(g.catalog.id, "schema", frozenset((m.id, m.version) for m in members))


def _partitions(g: Ground, *members: tuple[int, int]) -> Listing:
    return Listing(g.table.id, "partition", frozenset(members), owned=True)


def _no_partition(g: Ground, name: str) -> Absent:
    return Absent(g.table.id, "partition", name, owned=True)


def _taken(g: Ground, write: Write, free: Write) -> Case:
    return Case(commit_of(spare(g), free), commit_of(spare(g), write), "name")


def _with_owner(g: Ground, name: str) -> tuple[Write, Write]:
    """Return what a user's create writes."""
    (new_id,) = g.backend.reserve_ids(1)
    made = insert(g.catalog, name, new_id)
    event = Event("owner", "create", None, made.event.path_after, other_path=g.two.path)
    return made, Relate(new_id, "owner", ONLY, NO_COLUMN, NO_VALUE, g.two.id, 0, NEW_DOC, event)


def _restore_taken(g: Ground) -> Case:
    version = list(g.store.schemas.history(g.old))[-1].version
    restore = Update(g.old.id, version, update(g.old).event, scope_version=2, state=LIVE)
    return Case(commit_of(restore), commit_of(insert(g.catalog, "old"), restore), "name")


def _versions(g: Ground, good: Write, bad: Write, row_id: int | None, found: int | None) -> Case:
    return Case(commit_of(spare(g), good), commit_of(spare(g), bad), "self", row_id, found)


CASES: dict[str, Callable[[Ground], Case]] = {
    "guard": lambda g: _guard(g, exclusive=False),
    "exclusive guard": lambda g: _guard(g, exclusive=True),
    "guard of nothing": lambda g: Case(
        commit_of(spare(g)), commit_of(spare(g), guards=(Guard(10**6, 1),)), "ancestor", 10**6
    ),
    "one guard of many": lambda g: Case(
        commit_of(spare(g), guards=guards_of(g.table, g.two)),
        commit_of(spare(g), guards=(*guards_of(g.lake, g.table), Guard(g.two.id, 7))),
        "ancestor",
        g.two.id,
        1,
    ),
    "single create": lambda g: Case(
        commit_of(insert(g.one, "x"), guards=guards_of(g.one)),
        commit_of(insert(g.one, "x"), guards=(*guards_of(g.catalog), Guard(g.one.id, 2))),
        "ancestor",
        g.one.id,
        1,
    ),
    "single create, name": lambda g: Case(
        commit_of(insert(g.catalog, "x")), commit_of(insert(g.catalog, "one")), "name", g.catalog.id
    ),
    "create with its owner": lambda g: Case(
        commit_of(*_with_owner(g, "x"), guards=guards_of(g.catalog, g.two)),
        commit_of(*_with_owner(g, "x"), guards=(*guards_of(g.catalog), Guard(g.two.id, 2))),
        "ancestor",
        g.two.id,
        1,
    ),
    "create with its owner, name": lambda g: Case(
        commit_of(*_with_owner(g, "x")), commit_of(*_with_owner(g, "one")), "name", g.catalog.id
    ),
    "single alter": lambda g: Case(
        commit_of(update(g.one, doc=NEW_DOC)), commit_of(update(g.one, doc=NEW_DOC, version=9)), "self", g.one.id, 1
    ),
    "single alter of nothing": lambda g: Case(
        commit_of(update(g.one, doc=NEW_DOC)), commit_of(update(g.one, id=10**6, doc=NEW_DOC)), "self", 10**6
    ),
    "single alter, guard": lambda g: Case(
        commit_of(update(g.one, doc=NEW_DOC), guards=guards_of(g.catalog)),
        commit_of(update(g.one, doc=NEW_DOC), guards=(Guard(g.catalog.id, 2),)),
        "ancestor",
        g.catalog.id,
        1,
    ),
    "version": lambda g: _versions(g, update(g.one, doc=NEW_DOC), update(g.one, doc=NEW_DOC, version=2), g.one.id, 1),
    "scope version": lambda g: Case(
        commit_of(spare(g), exclusive(g.two, in_use=False)),
        commit_of(spare(g), exclusive(g.two, in_use=False, scope_version=2)),
        "ancestor",
        g.two.id,
        1,
    ),
    "name of an insert": lambda g: _taken(g, insert(g.catalog, "one"), insert(g.catalog, "old")),
    "name of a rename": lambda g: _taken(g, renamed(g, "one"), renamed(g, "old")),
    "name of a restore": _restore_taken,
    "empty": lambda g: Case(
        commit_of(exclusive(g.two, state=DROPPED, empty=True)),
        commit_of(exclusive(g.one, state=DROPPED, empty=True)),
        "not_empty",
        g.one.id,
    ),
    "validated read": lambda g: _read(g, Expect(g.one.id, 1), Expect(g.one.id, 2), g.one.id, 1),
    "validated read of nothing": lambda g: _read(g, Expect(g.one.id, 1), Expect(10**6, 1), 10**6),
    "validated owned read": lambda g: _read(
        g, Expect(g.part.id, 1, owned=True), Expect(g.part.id, 2, owned=True), g.part.id, 1
    ),
    "absent": lambda g: _read(
        g, Absent(g.catalog.id, "schema", "old"), Absent(g.catalog.id, "schema", "one"), g.catalog.id
    ),
    "absent owned row": lambda g: _read(g, _no_partition(g, "q"), _no_partition(g, "p"), g.table.id),
    "listing with one less": lambda g: _read(g, _listing(g, g.one, g.two), _listing(g, g.one), g.catalog.id),
    "listing with one more": lambda g: _read(
        g, _listing(g, g.one, g.two), _listing(g, g.one, g.two, g.old), g.catalog.id
    ),
    "empty listing": lambda g: _read(
        g, Listing(g.two.id, "table", frozenset()), Listing(g.one.id, "table", frozenset()), g.one.id
    ),
    "listing of owned rows": lambda g: _read(
        g, _partitions(g, (g.part.id, 1)), _partitions(g, (g.part.id, 2)), g.table.id
    ),
    "new owned row": lambda g: Case(
        commit_of(spare(g), put(g.table, "q")), commit_of(spare(g), put(g.table, "p")), "name", g.part.id, 1
    ),
    "owned row": lambda g: _versions(g, put(g.table, "p", 1, NEW_DOC), put(g.table, "p", 2, NEW_DOC), g.part.id, 1),
    "owned row that is not there": lambda g: _versions(
        g, put(g.table, "p", 1, NEW_DOC), put(g.table, "q", 1, NEW_DOC), None, None
    ),
    "deletion": lambda g: _versions(g, delete(g.table, g.part), put(g.table, "p", 7), g.part.id, 1),
}


class TestPreconditions:
    @pytest.mark.parametrize("name", CASES)
    def test_violated_then_held(self, ground: Ground, name: str) -> None:
        case = CASES[name](ground)
        before = ground.dump()
        outcome = ground.backend.commit(case.violated)
        assert isinstance(outcome, Conflicted), outcome
        assert outcome.cause == case.cause
        assert case.id is None or outcome.id in {None, case.id}
        assert outcome.found in {None, case.found}
        assert ground.dump() == before, "a conflict leaves nothing behind"
        assert ground.backend.steps(case.violated.operation_id) == []
        outcome = ground.backend.commit(case.holds)
        assert isinstance(outcome, Committed), outcome
        assert len(outcome.results) == len(case.holds.writes)
        assert len(ground.dump()["operation"]) == len(before["operation"]) + len(case.holds.writes)

    def test_only_reads(self, ground: Ground) -> None:
        assert ground.send(reads=(Expect(ground.one.id, 1),)) == Committed(())
        outcome = ground.send(reads=(Expect(ground.one.id, 3),))
        assert isinstance(outcome, Conflicted)
        assert outcome.cause == "read"

    def test_root_guard(self, ground: Ground) -> None:
        assert isinstance(ground.send(spare(ground), guards=(Guard(ROOT_ID, 2),)), Conflicted)
        assert isinstance(ground.send(spare(ground), guards=(Guard(ROOT_ID, 1, exclusive=True),)), Committed)
