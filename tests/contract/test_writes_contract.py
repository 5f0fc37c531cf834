"""What every backend promises of the writes of one commit: order, all or nothing, ids, positions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

from metastore.port.commit import Committed, Conflicted
from metastore.port.conditions import DROPPED, Guard
from metastore.port.upkeep import BEFORE_ALL
from metastore.port.writes import Place, Result, Update, Write
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


class TestSeveralWrites:
    def test_writes_see_those_before(self, ground: Ground) -> None:
        """two → three, one → two, and a new one with something in it, and no two partitions of a name."""
        g = ground
        (new,) = g.backend.reserve_ids(1)
        writes: tuple[Write, ...] = (
            renamed(g, "three"),
            exclusive(g.one, place=Place(g.catalog.id, "two", "two", fold=False)),
            insert(g.catalog, "one", new),
            insert(g.catalog, "four"),
            delete(g.table, g.part),
            put(g.table, "q"),
        )
        outcome = g.send(*writes)
        assert isinstance(outcome, Committed), outcome
        assert [r and r.version for r in outcome.results] == [2, 2, 1, 1, 2, 1]
        assert [r and r.id for r in outcome.results[:3]] == [g.two.id, g.one.id, new]
        assert list(g.store.schemas.names("m.c")) == ["four", "one", "three", "two"]
        assert [p.name for p in g.store.partitions.list("m.c.two.t")] == ["q"]

    def test_child_below_a_new_parent(self, ground: Ground) -> None:
        (new,) = ground.backend.reserve_ids(1)
        child = replace(insert(ground.two, "below"), parent_id=new)
        assert isinstance(ground.send(insert(ground.two, "new", new), child), Committed)
        assert ground.store.schemas.exists("m.c.two.new.below")

    def test_children_dropped_with_their_parent(self, ground: Ground) -> None:
        drops = [exclusive(e, state=DROPPED, empty=True) for e in (ground.table, ground.one)]
        assert isinstance(ground.send(*drops), Committed)
        assert not ground.store.schemas.exists("m.c.one")

    def test_a_failing_last_write_undoes_all(self, ground: Ground) -> None:
        before = ground.dump()
        many = [insert(ground.two, f"n{n}") for n in range(20)]
        outcome = ground.send(*many, put(ground.table, "q"), update(ground.one, doc=NEW_DOC), insert(ground.two, "n7"))
        assert isinstance(outcome, Conflicted)
        assert outcome.cause == "name"
        assert ground.dump() == before

    def test_skip_existing(self, ground: Ground) -> None:
        names = ["one", "a", "two", "b", "a"]
        outcome = ground.send(*[insert(ground.catalog, n) for n in names], skip_existing=True)
        assert isinstance(outcome, Committed)
        assert [r is not None for r in outcome.results] == [False, True, False, True, False]
        assert list(ground.store.schemas.names("m.c")) == ["a", "b", "one", "two"]
        found = ground.backend.by_id([r.id for r in outcome.results if r is not None])
        assert [k and k.record.chain[-1].name for k in found] == ["a", "b"]

    def test_skip_existing_still_guards(self, ground: Ground) -> None:
        outcome = ground.send(insert(ground.catalog, "one"), guards=(Guard(ground.catalog.id, 3),), skip_existing=True)
        assert isinstance(outcome, Conflicted)


class TestOperations:
    def test_id_is_used_once(self, ground: Ground) -> None:
        first = commit_of(insert(ground.two, "x"))
        assert isinstance(ground.backend.commit(first), Committed)
        before = ground.dump()
        for again in (
            commit_of(insert(ground.two, "y"), operation_id=first.operation_id),
            commit_of(update(ground.one, doc=NEW_DOC), operation_id=first.operation_id),
            commit_of(renamed(ground, "y"), put(ground.table, "q"), operation_id=first.operation_id),
        ):
            assert ground.backend.commit(again) == Conflicted("operation")
        assert ground.dump() == before

    def test_forbid_before(self, ground: Ground) -> None:
        commit = commit_of(spare(ground))
        before = ground.dump()
        assert ground.backend.forbid(commit.operation_id)
        assert ground.backend.forbid(commit.operation_id), "forbidden already is not applied"
        assert ground.backend.commit(commit) == Conflicted("operation")
        after = ground.dump()
        assert {**after, "operation": []} == {**before, "operation": []}
        (tombstone,) = ground.backend.steps(commit.operation_id)
        assert (tombstone.action, tombstone.seq, tombstone.entity_id) == ("forbidden", None, None)
        assert tombstone.operation_id not in {s.operation_id for s in ground.backend.feed(0, 100).rows}

    def test_forbid_after(self, ground: Ground) -> None:
        commit = commit_of(spare(ground), put(ground.table, "q"))
        outcome = ground.backend.commit(commit)
        assert isinstance(outcome, Committed)
        assert not ground.backend.forbid(commit.operation_id)
        steps = ground.backend.steps(commit.operation_id)
        assert [Result(s.entity_id or 0, s.version or 0, s.time) for s in steps] == list(outcome.results)
        assert [s.ordinal for s in steps] == [0, 1]

    def test_forbid_after_the_first_write_was_skipped(self, ground: Ground) -> None:
        commit = commit_of(insert(ground.catalog, "one"), insert(ground.catalog, "new"), skip_existing=True)
        assert isinstance(ground.backend.commit(commit), Committed)
        assert not ground.backend.forbid(commit.operation_id), "it was applied"
        assert [s.action for s in ground.backend.steps(commit.operation_id)] == ["create"]

    def test_forbidden_before_the_first_write_would_be_skipped(self, ground: Ground) -> None:
        commit = commit_of(insert(ground.catalog, "one"), insert(ground.catalog, "new"), skip_existing=True)
        assert ground.backend.forbid(commit.operation_id)
        before = ground.dump()
        assert ground.backend.commit(commit) == Conflicted("operation")
        assert ground.dump() == before

    def test_step(self, ground: Ground) -> None:
        """A step says who did what to what, and what it was afterwards."""
        moved = renamed(ground, "three")
        commit = commit_of(moved, principal="mover")
        outcome = ground.backend.commit(commit)
        assert isinstance(outcome, Committed)
        (step,) = ground.backend.steps(commit.operation_id)
        (result,) = outcome.results
        assert result is not None
        assert Result(step.entity_id or 0, step.version or 0, step.time) == result
        assert (step.principal, step.created_by, step.kind, step.action) == ("mover", "tester", "schema", "alter")
        assert (step.scope_version, step.in_use, step.owner_id) == (2, True, None)
        assert step.doc == ground.two.record.doc
        assert ground.backend.history(ground.two.id, 1, 9) == [step]


class TestVersions:
    def test_scope_version_grows_with_exclusive_updates_only(self, ground: Ground) -> None:
        g = ground

        def standing() -> list[tuple[int, int]]:
            known = g.backend.by_id([g.catalog.id, g.one.id, g.two.id, g.table.id])
            return [(k.record.version, k.record.chain[-1].scope_version) for k in known if k is not None]

        assert standing() == [(1, 1)] * 4
        assert isinstance(g.send(insert(g.one, "x"), guards=guards_of(g.one)), Committed)
        assert isinstance(g.send(put(g.table, "p", 1, NEW_DOC), guards=guards_of(g.table)), Committed)
        assert isinstance(g.send(exclusive(g.table, state=DROPPED), guards=guards_of(g.one)), Committed)
        assert standing() == [(1, 1), (1, 1), (1, 1), (2, 2)]
        assert isinstance(g.send(update(g.one, doc=NEW_DOC)), Committed)
        assert isinstance(g.send(renamed(g, "three")), Committed)
        assert isinstance(g.send(exclusive(g.catalog, in_use=False)), Committed)
        assert standing() == [(2, 2), (2, 1), (2, 2), (2, 2)]

    def test_drop_and_restore_time(self, ground: Ground) -> None:
        now = ground.backend.now()
        (gone,) = ground.backend.dropped_before(now + 10**6, BEFORE_ALL, 9)
        assert gone.id == ground.old.id
        assert ground.backend.dropped_before(now + 10**6, gone, 9) == []
        ground.store.schemas.restore("m.c.old")
        assert ground.backend.dropped_before(now + 10**6, BEFORE_ALL, 9) == []

    def test_positions(self, ground: Ground) -> None:
        """Positions grow with every commit, and in a commit with the ordinals."""
        for n in range(5):
            many = [insert(ground.two, f"{chr(ord('z') - i)}{n}") for i in range(6)]
            assert isinstance(ground.send(*many, _noop(ground, n), put(ground.table, f"q{n}")), Committed)
            assert isinstance(ground.send(insert(ground.catalog, "one")), Conflicted)
        page = ground.backend.feed(0, 1000)
        assert page.held
        seqs = [s.seq or 0 for s in page.rows]
        assert all(a < b for a, b in pairwise(seqs))
        assert [s.ordinal for s in page.rows[-8:]] == list(range(8))
        assert len({s.operation_id for s in page.rows[-8:]}) == 1
        middle = seqs[len(seqs) // 2]
        assert [s.seq for s in ground.backend.feed(middle, 3).rows] == seqs[len(seqs) // 2 + 1 :][:3]

    def test_reserved_ids(self, ground: Ground) -> None:
        ids = [*ground.backend.reserve_ids(3), *ground.backend.reserve_ids(2)]
        outcome = ground.send(spare(ground))
        assert isinstance(outcome, Committed)
        (result,) = outcome.results
        assert result is not None
        assert len({*ids, result.id, ground.part.id}) == 7


def _noop(g: Ground, n: int) -> Update:
    return update(g.one, version=g.one.version + n, doc=NEW_DOC)


class TestTrigger:
    """A change of parent, name, liveness or in-use without a new scope version is refused."""

    @pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
    def url(self, request: pytest.FixtureRequest) -> str:
        chosen: str = request.getfixturevalue(f"{request.param}_url")
        return chosen

    @pytest.mark.parametrize(
        "change", ["parent_id = 0", "name = 'x'", "key = 'x'", "state = 1", "in_use = NOT in_use", "fold = NOT fold"]
    )
    def test_silent_change(self, ground: Ground, url: str, change: str) -> None:
        engine = create_engine(url)
        where = {"id": ground.two.id}
        try:
            with pytest.raises(IntegrityError), engine.begin() as connection:
                connection.execute(text(f"UPDATE guard SET {change} WHERE id = :id"), where)
            with engine.begin() as connection:
                bumped = f"UPDATE guard SET {change}, scope_version = scope_version + 1 WHERE id = :id"
                assert connection.execute(text(bumped), where).rowcount == 1
        finally:
            engine.dispose()
