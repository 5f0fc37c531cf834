"""What every backend promises of operation ids: one row each; tombstones, claims, and callers' ids that are too old."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from metastore.backends.sql.tables import metadata
from metastore.port.backend import DRIFT
from metastore.port.commit import Commit
from metastore.port.conditions import DROPPED, ROOT_ID, Caller, Expect, Guard
from metastore.port.intents import Resolution
from tests.contract.ground import (
    NEW_DOC,
    Dump,
    Ground,
    commit_of,
    delete,
    exclusive,
    guards_of,
    insert,
    put,
    renamed,
    update,
)
from tests.contract.intents import announce, applied, committed, conflict, document, entry, helping, new_id, row_of

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

SHAPES: dict[str, Callable[[Ground], Commit]] = {
    "create": lambda g: commit_of(insert(g.one, "x"), guards=guards_of(g.one)),
    "alter": lambda g: commit_of(update(g.one, doc=NEW_DOC), guards=guards_of(g.catalog)),
    "batch": lambda g: commit_of(update(g.one, doc=NEW_DOC), insert(g.two, "x"), put(g.table, "q")),
    "exclusive": lambda g: commit_of(renamed(g, "due"), guards=guards_of(g.catalog)),
    "drop": lambda g: commit_of(exclusive(g.two, state=DROPPED, empty=True)),
    "owned": lambda g: commit_of(put(g.table, "q"), delete(g.table, g.part), guards=guards_of(g.table)),
    "stages": lambda g: commit_of(
        update(g.one, doc=NEW_DOC), update(g.one, version=2, doc=document("3")), insert(g.one, "x")
    ),
    "names change hands": lambda g: commit_of(renamed(g, "due"), insert(g.catalog, "two")),
    "skip_existing": lambda g: commit_of(insert(g.catalog, "new"), insert(g.catalog, "one"), skip_existing=True),
    "skip_existing, the first": lambda g: commit_of(
        insert(g.catalog, "one"), insert(g.catalog, "new"), skip_existing=True
    ),
}


def written(commit: Commit) -> int:
    """Return how many rows a commit writes to the operation table."""
    return len(commit.writes) - commit.skip_existing


def without_times(found: Dump) -> Dump:
    """Return all rows but for the times in the operation table, which a tombstone that is written again has new."""
    at = [column.name for column in metadata.tables["operation"].columns].index("time")
    return {**found, "operation": [(*row[:at], *row[at + 1 :]) for row in found["operation"]]}


class TestForbid:
    def test_counts(self, ground: Ground) -> None:
        own = new_id()
        assert [ground.backend.forbid(own) for _ in range(3)] == [1, 2, 3]
        row = row_of(ground, own)
        assert (row.action, row.attempt, row.seq, row.entity_id) == ("forbidden", 3, None, None)
        assert ground.backend.forbid(new_id()) == 1

    def test_what_is_decided(self, ground: Ground) -> None:
        """None: it is pending or decided. What was not applied can be claimed once more."""
        ids = [announce(ground, ground.one) for _ in range(6)]
        done, noted, cancelled = new_id(), entry(ground.one, action="failed", result="{}"), announce(ground, ground.two)
        committed(ground.send(insert(ground.two, "x"), operation_id=done))
        committed(ground.backend.write_down(noted))
        assert ground.backend.cancel(cancelled)
        assert ground.backend.forbid(ids[0]) is None
        actions: Any = ("alter", "failed", "unchanged", "moved", "expired")
        resolutions = [Resolution(i, a, None, NEW_DOC, "{}") for i, a in zip(ids[1:], actions, strict=True)]
        resolutions = [r if r.action == "alter" else replace(r, doc=None) for r in resolutions]
        committed(ground.backend.help(helping(ground.one, *resolutions)))
        before = ground.dump()
        for i in (*ids[:4], done, noted.operation_id):
            assert ground.backend.forbid(i) is None
        assert ground.dump() == before
        assert [ground.backend.forbid(i) for i in (*ids[4:], cancelled)] == [2, 2, 2]
        assert [row_of(ground, i).action for i in ids[4:]] == ["moved", "expired"]

    def test_a_late_original(self, ground: Ground) -> None:
        """What was sent before the tombstone can not be applied after it, whatever it is."""
        for make in SHAPES.values():
            commit = make(ground)
            assert ground.backend.forbid(commit.operation_id) == 1
            before = ground.dump()
            conflict(ground.backend.commit(commit), "operation")
            assert ground.dump() == before
        made = entry(ground.one)
        assert ground.backend.forbid(made.operation_id) == 1
        conflict(ground.backend.write_down(made), "operation")


class TestClaims:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_commits(self, ground: Ground, shape: str) -> None:
        """Only the last number counts; what fails keeps the tombstone; what is applied replaces it."""
        commit = SHAPES[shape](ground)
        conflict(ground.backend.commit(replace(commit, claim=1)), "claim")
        assert [ground.backend.forbid(commit.operation_id) for _ in range(2)] == [1, 2]
        before = ground.dump()
        for wrong in (1, 3):
            conflict(ground.backend.commit(replace(commit, claim=wrong)), "claim")
        conflict(ground.backend.commit(commit), "operation")
        stale = replace(commit, claim=2, guards=(*commit.guards, Guard(ground.lake.id, 7)))
        conflict(ground.backend.commit(stale), "ancestor", "read")
        assert ground.dump() == before
        committed(ground.backend.commit(replace(commit, claim=2)))
        steps = ground.backend.steps(commit.operation_id)
        assert [s.ordinal for s in steps] == list(range(written(commit)))
        assert all(s.seq is not None and s.attempt is None for s in steps)
        assert ground.backend.forbid(commit.operation_id) is None
        before = ground.dump()
        conflict(ground.backend.commit(replace(commit, claim=2)), "claim")
        conflict(ground.backend.commit(replace(commit, claim=3)), "claim")
        assert ground.dump() == before

    @pytest.mark.parametrize("shape", ["create", "batch", "owned", "skip_existing"])
    def test_a_failure_keeps_it(self, ground: Ground, shape: str) -> None:
        """A name that is taken, a version that is another one, a read: then the claim is still good."""
        commit = SHAPES[shape](ground)
        taken = (insert(ground.one, "t", None), insert(ground.one, "t", None))
        bad = replace(commit, writes=(*commit.writes, *taken), skip_existing=False)
        assert ground.backend.forbid(commit.operation_id) == 1
        before = ground.dump()
        conflict(ground.backend.commit(replace(bad, claim=1)), "name")
        bad = replace(commit, writes=(*commit.writes, update(ground.two, version=5)))
        conflict(ground.backend.commit(replace(bad, claim=1)), "self", "read")
        bad = replace(commit, writes=(*commit.writes, exclusive(ground.catalog, state=DROPPED, empty=True)))
        conflict(ground.backend.commit(replace(bad, claim=1)), "not_empty")
        assert ground.dump() == before
        committed(ground.backend.commit(replace(commit, claim=1)))

    def test_one_that_writes_nothing_keeps_it(self, ground: Ground) -> None:
        """All that it would create exists. What was sent before it can not be applied when a name becomes free."""
        commit = commit_of(insert(ground.catalog, "one"), insert(ground.catalog, "two"), skip_existing=True)
        assert ground.backend.forbid(commit.operation_id) == 1
        before = ground.dump()
        assert committed(ground.backend.commit(replace(commit, claim=1))).results == (None, None)
        assert without_times(ground.dump()) == without_times(before)
        assert ground.store.schemas.drop("m.c.two")
        conflict(ground.backend.commit(commit), "operation")
        assert not ground.store.schemas.exists("m.c.two")
        assert ground.backend.forbid(commit.operation_id) == 2
        conflict(ground.backend.commit(replace(commit, claim=1)), "claim")
        committed(ground.backend.commit(replace(commit, claim=2)))
        assert [s.action for s in ground.backend.steps(commit.operation_id)] == ["create"]

    def test_one_that_only_checks_keeps_it(self, ground: Ground) -> None:
        commit = commit_of(guards=guards_of(ground.one), reads=(Expect(ground.one.id, 1),))
        assert ground.backend.forbid(commit.operation_id) == 1
        before = ground.dump()
        committed(ground.backend.commit(replace(commit, claim=1)))
        assert without_times(ground.dump()) == without_times(before)
        assert ground.backend.forbid(commit.operation_id) == 2

    def test_entries(self, ground: Ground) -> None:
        made = entry(ground.one, "text")
        conflict(ground.backend.write_down(replace(made, claim=1)), "claim")
        assert ground.backend.forbid(made.operation_id) == 1
        conflict(ground.backend.write_down(replace(made, claim=2)), "claim")
        (result,) = committed(ground.backend.write_down(replace(made, claim=1))).results
        assert result is not None
        assert result.version == 0
        assert (row_of(ground, made.operation_id).action, row_of(ground, made.operation_id).attempt) == ("pending", 1)
        conflict(ground.backend.write_down(replace(made, claim=1)), "claim")  # pending: nobody can claim it
        assert ground.backend.cancel(made.operation_id)
        assert row_of(ground, made.operation_id).attempt == 2
        conflict(ground.backend.write_down(replace(made, claim=1)), "claim")
        assert ground.backend.forbid(made.operation_id) == 3
        committed(ground.backend.write_down(replace(made, claim=3)))
        committed(ground.backend.help(helping(ground.one, applied(made.operation_id, NEW_DOC))))
        conflict(ground.backend.write_down(replace(made, claim=3)), "claim")

    def test_moved_is_claimed_by_a_commit(self, ground: Ground) -> None:
        """Its row counts up with each claim, so that what was sent under an older one never lands."""
        own = announce(ground, ground.one)
        committed(ground.backend.help(helping(ground.one, Resolution(own, "moved", None))))
        assert ground.backend.forbid(own) == 2
        assert ground.backend.forbid(own) == 3
        conflict(ground.send(insert(ground.two, "x"), operation_id=own, claim=2), "claim")
        committed(ground.send(insert(ground.two, "x"), operation_id=own, claim=3))
        assert row_of(ground, own).action == "create"


class TestCallers:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_commits(self, ground: Ground, shape: str) -> None:
        """The first row has the fingerprint; too old or from the future is refused, with a claim too."""
        commit = SHAPES[shape](ground)
        now = ground.backend.now()
        ground.backend.forget(now - DRIFT)
        bad, good = (now - 1, now + 3 * DRIFT), Caller(now, "print")
        before = ground.dump()
        for issued in bad:
            conflict(ground.backend.commit(replace(commit, caller=Caller(issued, "print"))), "stale_id")
        assert ground.dump() == before
        assert ground.backend.forbid(commit.operation_id) == 1
        before = ground.dump()
        for issued in bad:
            stale = replace(commit, caller=Caller(issued, "print"), claim=1)
            conflict(ground.backend.commit(stale), "stale_id")
        conflict(ground.backend.commit(replace(commit, caller=good)), "operation")
        conflict(ground.backend.commit(replace(commit, caller=good, claim=2)), "claim")
        assert ground.dump() == before
        committed(ground.backend.commit(replace(commit, caller=good, claim=1)))
        steps = ground.backend.steps(commit.operation_id)
        assert [s.digest for s in steps] == ["print", *[None] * (written(commit) - 1)]

    @pytest.mark.parametrize("shape", SHAPES)
    def test_without_a_claim(self, ground: Ground, shape: str) -> None:
        commit = replace(SHAPES[shape](ground), caller=Caller(ground.backend.now(), "print"))
        before = ground.dump()
        stale = replace(commit, guards=(*commit.guards, Guard(ground.lake.id, 7)))
        conflict(ground.backend.commit(stale), "ancestor", "read")
        assert ground.dump() == before
        committed(ground.backend.commit(commit))
        assert ground.backend.steps(commit.operation_id)[0].digest == "print"
        before = ground.dump()
        conflict(ground.backend.commit(replace(commit, writes=(insert(ground.one, "y"),))), "operation", "self")
        assert ground.dump() == before

    def test_entries(self, ground: Ground) -> None:
        now = ground.backend.now()
        ground.backend.forget(now - DRIFT)
        ground.backend.forget(now - 5 * DRIFT)  # it never goes back
        before = ground.dump()
        for action in ("pending", "failed", "unchanged"):
            for issued in (now - 1, 0, now + 3 * DRIFT):
                made = entry(ground.one, action=action, caller=Caller(issued, "print"))
                conflict(ground.backend.write_down(made), "stale_id")
        assert ground.dump() == before
        for issued in (now, now + DRIFT // 2):
            committed(ground.backend.write_down(entry(ground.one, caller=Caller(issued, "print"))))
        committed(ground.backend.write_down(entry(ground.one)))  # ids that are not a caller's are never too old

    def test_root_guard(self, ground: Ground) -> None:
        """A caller's id does not make up for what else does not hold."""
        caller = Caller(ground.backend.now(), "print")
        conflict(ground.send(insert(ground.two, "x"), guards=(Guard(ROOT_ID, 2),), caller=caller), "ancestor", "read")
