"""A restore by path takes the entity that was dropped there last, while others are dropped."""

from __future__ import annotations

from typing import Any

import pytest

import metastore as ms
from metastore.retry.policy import Attempt
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect
from tests.concurrency.workers import Job, Team, Turn, outcome

ROUNDS = 40
PATH = "lake.cat.s.t"


def create_and_drop(turn: Turn) -> set[str]:
    """Create a table and drop it, again and again; return what came of it."""
    turn.meet()
    tables = turn.store.tables
    return {outcome(act, PATH) for _ in range(ROUNDS) for act in (tables.create, tables.drop)}


def restore(turn: Turn) -> set[str]:
    """Restore a table, again and again, and drop it; return what came of it."""
    turn.meet()
    tables = turn.store.tables
    return {outcome(act, PATH) for _ in range(ROUNDS) for act in (tables.restore, tables.drop)}


def test_the_newest(url: str, team: Team) -> None:
    seed(url)
    with ms.open(url) as store:
        store.tables.drop(store.tables.create(PATH))
        results = team.run(url, [Job(create_and_drop), Job(restore), Job(restore)])
        assert set().union(*results) <= {"ok", "EntityAlreadyExists", "EntityNotFound"}
        dropped, restored = list[int](), 0
        for change in store.changes():
            if change.path_before == PATH and change.action == "drop":
                dropped.append(change.entity_id)
            elif change.path_after == PATH and change.action == "restore":
                restored += 1
                assert change.entity_id == dropped.pop(), change.position
        assert restored
    assert violations(url) == []


def test_the_newest_of_one_that_is_dropped_meanwhile(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the restore's look and its commit another table is dropped at the path."""
    seed(url)
    newer = list[int]()
    with ms.open(url) as store, ms.open(url) as other:
        store.tables.drop(store.tables.create(PATH))
        backend = store._session.backend
        commit = backend.commit

        def meanwhile(*arguments: Any, **options: Any) -> Any:
            if not newer:
                newer.append(other.tables.create(PATH).id)
                other.tables.drop(PATH)
            return commit(*arguments, **options)

        monkeypatch.setattr(backend, "commit", meanwhile)
        assert store.tables.restore(PATH).id == newer[0]
    assert violations(url) == []


def test_it_waits_for_those_in_flight_and_leaves_no_mark(postgres_url: str) -> None:
    """A sibling's statement holds the parent's guard: the restore marks the parent, so that no new ones come."""
    seed(postgres_url)
    seen = list[object]()
    with connect(postgres_url) as sibling:

        def let_go(attempt: Attempt) -> None:
            marked = sibling.execute("SELECT id FROM guard WHERE mark IS NOT NULL").fetchall()
            seen.append((attempt.cause, [row[0] for row in marked]))
            sibling.execute("ROLLBACK")

        with ms.open(postgres_url, hooks=[let_go]) as store:
            parent, table = store.schemas.load("lake.cat.s"), store.tables.create(PATH)
            store.tables.drop(table)
            seen.clear()
            sibling.execute("BEGIN")
            sibling.execute(f"SELECT FROM guard WHERE id = {parent.id} FOR KEY SHARE")
            assert store.tables.restore(PATH).id == table.id
            assert seen == [("busy", [parent.id]), (None, [])]
            assert store.tables.create("sibling", parent=parent).version == 1
    assert violations(postgres_url) == []
