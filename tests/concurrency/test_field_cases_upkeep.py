"""Cases from the field about disabling, and about gc on every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

import metastore as ms
from tests.concurrency.checks import leftovers, seed, violations
from tests.concurrency.raw import before_commit
from tests.concurrency.workers import Job, Team, Turn, outcome

NOW = timedelta(0)


def disable_and_enable(turn: Turn, rounds: int) -> None:
    catalogs, metalakes = turn.store.catalogs, turn.store.metalakes
    turn.meet()
    for n in range(rounds):
        if n % 2:
            metalakes.disable("lake")
            metalakes.enable("lake")
        else:
            catalogs.disable("lake.cat")
            for _ in range(10):
                assert not catalogs.load("lake.cat").in_use
            catalogs.enable("lake.cat")


def write_below(turn: Turn, number: int) -> Counter[str]:
    """Write with what was read while all was enabled."""
    store, done = turn.store, Counter[str]()
    parent = store.schemas.load("lake.cat.s")
    table = store.tables.create(f"t{number}", parent=parent)
    turn.meet()
    while turn.go_on():
        done[outcome(store.tables.alter, table, ms.SetComment(str(sum(done.values()))))] += 1
        done[outcome(store.tables.create, f"u{number}", parent=parent, if_exists="return")] += 1
        done[outcome(store.tables.drop, f"lake.cat.s.u{number}")] += 1
    return done


def test_case_16_a_disabled_catalog_admits_no_write(url: str, team: Team) -> None:
    """Field case 16: A disabled metalake or catalog admits no write, also not one that read it as enabled before.

    The replay of the feed finds a write between disable and enable.
    """
    seed(url)
    results = team.run(url, [Job(disable_and_enable, 40), *(Job(write_below, n, background=True) for n in range(5))])
    done: Counter[str] = sum(results[1:], Counter())
    assert done.keys() <= {"ok", "NotInUse"}
    assert violations(url) == []


def test_case_16_however_they_interleave(url: str) -> None:
    """Field case 16: Read as enabled, disabled before the commit: NotInUse, nothing written."""
    seed(url, "lake.cat.s.t")
    with ms.open(url) as store, ms.open(url) as other:
        held = store.tables.load("lake.cat.s.t")
        with before_commit(store, lambda: other.catalogs.disable("lake.cat")), pytest.raises(ms.NotInUse):
            store.tables.alter(held, ms.SetComment("late"))
        assert other.tables.load("lake.cat.s.t").version == 1
    assert violations(url) == []


def collect(turn: Turn, rounds: int) -> Counter[str]:
    found = Counter[str]()
    for _ in range(rounds):
        turn.meet()
        collected = turn.store.gc(retention=NOW, keep_versions=2)
        found.update(vars(collected))
    return found


def fill_and_drop(turn: Turn, number: int, rounds: int) -> int:
    """Make subtrees and drop them; return how many entities there is then nothing left of."""
    schemas = turn.store.schemas
    for n in range(rounds):
        top = f"lake.cat.s{number}.r{n}"
        schemas.create(f"{top}.a.b", parents=True)
        turn.store.tables.create_many(f"{top}.a", [{"name": f"t{i}"} for i in range(30)])
        turn.store.tables.create_many(f"{top}.a.b", [{"name": f"t{i}"} for i in range(30)])
        for i in range(3):
            table = turn.store.tables.load(f"{top}.a.t{i}")
            turn.store.partitions.create(table, "p", values={"p": "1"})
        turn.store.tables.drop(f"{top}.a.t0")
        turn.meet()
        schemas.drop(top, cascade=True)
    return rounds * 63


def test_case_19_gc_on_every_node_at_once(url: str, team: Team) -> None:
    """Field case 19: gc on every node at once: no error, nothing removed twice or too early, and the counts add up."""
    seed(url, "lake.cat.s.tlive")
    rounds = 4
    jobs = [Job(fill_and_drop, n, rounds) for n in range(3)] + [Job(collect, rounds) for _ in range(4)]
    results = team.run(url, jobs)
    made, removed = sum(results[:3]), sum(r["entities"] for r in results[3:])
    with ms.open(url) as store:
        last = store.gc(retention=NOW, keep_versions=2)
        assert removed + last.entities == made
        store.gc(retention=NOW, keep_versions=2)
        assert [s.name for s in store.schemas.list("lake.cat")] == ["s", "s0", "s1", "s2"]
        assert store.tables.load("lake.cat.s.tlive").version == 1
    assert leftovers(url) == []
    assert violations(url, collected=True) == []


def test_case_19_purging_leaves_what_was_restored_elsewhere(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 19: A dropped table is restored elsewhere, by its id, while the schema that had it is being purged."""
    seed(url, "lake.cat.other")
    with ms.open(url) as store, ms.open(url) as other:
        table = store.tables.create("lake.cat.s.t", comment="precious")
        store.tables.drop(table)
        backend, came = store._session.backend, list[str]()
        delete = backend.delete_entities

        def restore_first(ids: Sequence[int]) -> int:
            if not came:
                came.append(outcome(other.tables.restore, "lake.cat.s.t", id=table.id, to="lake.cat.other.t"))
            return delete(ids)

        monkeypatch.setattr(backend, "delete_entities", restore_first)
        assert store.schemas.purge("lake.cat.s")
        assert other.tables.exists("lake.cat.other.t") == (came == ["ok"])
    assert violations(url, collected=True) == []
