"""Cases from the field (docs/field-cases.md) about changes and names, with several processes."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import metastore as ms
from metastore.retry.classify import Consequence, of_sqlstate
from tests.concurrency import broken
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import before_commit, rows
from tests.concurrency.workers import Job, Team, Turn, outcome

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

TABLE = "lake.cat.s.t"


def set_properties(turn: Turn, number: int, rounds: int) -> None:
    turn.meet()
    for n in range(rounds):
        turn.store.tables.alter(TABLE, ms.SetProperty(f"p{number}.{n}", "x"))


def test_case_1_property_changes_of_different_keys_all_survive(url: str, team: Team) -> None:
    """Field case 1: Two property changes of different keys at once: both survive."""
    seed(url, TABLE)
    team.run(url, [Job(set_properties, n, 12) for n in range(6)])
    with ms.open(url) as store:
        table = store.tables.load(TABLE)
        assert set(table.properties) == {f"p{p}.{n}" for p in range(6) for n in range(12)}
        assert [v.version for v in store.tables.history(TABLE)] == list(range(1, 6 * 12 + 2))
    assert violations(url) == []


def lost_properties(url: str) -> set[str]:
    """Set two properties, the second one between the first one's read and its commit; return what is missing."""
    with ms.open(url) as store, ms.open(url) as other:
        with before_commit(store, lambda: other.tables.alter(TABLE, ms.SetProperty("other", "x"))):
            store.tables.alter(TABLE, ms.SetProperty("own", "x"))
        return {"own", "other"} - set(store.tables.load(TABLE).properties)


def test_case_1_however_they_interleave(url: str) -> None:
    """Field case 1: A change that lands between read and commit is merged, not overwritten."""
    seed(url, TABLE)
    assert lost_properties(url) == set()
    assert violations(url) == []


def test_case_1_fails_without_the_version_check(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 1, negative control: a read-modify-write without compare loses the other's change."""
    seed(url, TABLE)
    broken.ignore_versions(monkeypatch)
    assert lost_properties(url) == {"other"}


def alter_pinned(turn: Turn, number: int) -> str:
    turn.meet()
    return outcome(turn.store.tables.alter, TABLE, ms.SetProperty("k", str(number)), expected_version=1)


def test_case_2_losing_update_leaves_nothing(url: str, team: Team) -> None:
    """Field case 2: A losing update leaves nothing behind: no version row, no history, no event, no "success"."""
    seed(url, TABLE)
    before = rows(url, "SELECT count(*) FROM operation")[0][0]
    results = Counter(team.run(url, [Job(alter_pinned, n) for n in range(8)]))
    assert results == {"ok": 1, "VersionConflict": 7}
    with ms.open(url) as store:
        assert [v.version for v in store.tables.history(TABLE)] == [1, 2]
        assert [c.action for c in store.changes() if c.kind == "table"] == ["create", "alter"]
    assert rows(url, "SELECT count(*) FROM operation")[0][0] == before + 1
    assert violations(url) == []


def recreate(turn: Turn, rounds: int) -> None:
    for n in range(rounds):
        assert turn.store.tables.drop(TABLE)
        turn.store.tables.create(TABLE, comment=f"incarnation {n}")


def alter_held(turn: Turn) -> int:
    """Change a held table as long as others recreate it; return how often it was gone."""
    gone = 0
    while turn.go_on():
        try:
            held = turn.store.tables.load(TABLE)
            changed = turn.store.tables.alter(held, ms.SetProperty("id", str(held.id)))
        except ms.EntityNotFound:
            gone += 1
            continue
        assert changed.id == held.id
    return gone


def test_case_5_drop_and_recreate_does_not_fool_a_holder(url: str, team: Team) -> None:
    """Field case 5: Drop and recreate under one name: the old holder's change fails, the new entity is untouched."""
    seed(url, TABLE)
    with ms.open(url) as store, ms.open(url) as other:
        held = store.tables.load(TABLE)
        other.tables.drop(TABLE)
        new = other.tables.create(TABLE)
        for call in (
            lambda: store.tables.alter(held, ms.SetComment("mine")),
            lambda: store.tables.alter(held, ms.SetComment("mine"), expected_version=1),
            lambda: store.tables.rename(held, "t2"),
        ):
            assert outcome(call) == "EntityNotFound"
        assert store.tables.drop(held) is False
        assert store.tables.drop(held) is False  # it can be tried again
        assert other.tables.load(TABLE) == new
    team.run(url, [Job(recreate, 120), *(Job(alter_held, background=True) for _ in range(4))])
    for path, table_id, properties in _incarnations(url):
        assert set(properties.values()) <= {str(table_id)}, path
    assert violations(url) == []


def _incarnations(url: str) -> list[tuple[str, int, dict[str, str]]]:
    with ms.open(url) as store:
        found = [*store.tables.dropped("lake.cat.s"), store.tables.load(TABLE)]
        return [(t.path, t.id, dict(t.properties)) for t in found]


def import_tables(turn: Turn, rounds: int) -> list[tuple[int, int, str | None]]:
    found = []
    for n in range(rounds):
        turn.meet()
        table = turn.store.tables.create(f"lake.cat.s.i{n}", comment=str(os.getpid()), if_exists="return")
        found.append((table.id, table.version, table.comment))
    return found


def test_case_7_two_imports_of_one_object(url: str, team: Team) -> None:
    """Field case 7: Two imports of one object at once: both callers get the same entity."""
    seed(url)
    for first, second in zip(*team.run(url, [Job(import_tables, 60)] * 2), strict=True):
        assert first == second
    assert violations(url) == []


def create_filesets(turn: Turn, rounds: int) -> list[str]:
    found = []
    for n in range(rounds):
        turn.meet()
        found.append(outcome(turn.store.filesets.create, f"lake.cat.s.f{n}"))
    return found


def test_case_10_two_creates_of_one_fileset(url: str, team: Team) -> None:
    """Field case 10: Two creates of one fileset: one succeeds, one "already exists"."""
    seed(url)
    for results in zip(*team.run(url, [Job(create_filesets, 60)] * 2), strict=True):
        assert sorted(results) == ["EntityAlreadyExists", "ok"]
    assert violations(url) == []


def overwrite(turn: Turn, rounds: int) -> list[int]:
    found = []
    for n in range(rounds):
        turn.meet()
        found.append(turn.store.tables.create(f"lake.cat.s.t{n}", comment="new", if_exists="replace").id)
    return found


def rename_away(turn: Turn, rounds: int) -> list[int]:
    found = []
    for n in range(rounds):
        turn.meet()
        found.append(turn.store.tables.rename(f"lake.cat.s.t{n}", f"u{n}").id)
    return found


def test_case_11_overwriting_never_reverts_a_rename(url: str, team: Team) -> None:
    """Field case 11: Overwriting by name never reverts a concurrent rename: the renamed id has the new name."""
    seed(url, *(f"lake.cat.s.t{n}" for n in range(60)))
    written, renamed = team.run(url, [Job(overwrite, 60), Job(rename_away, 60)])
    with ms.open(url) as store:
        for n in range(60):
            there = store.tables.load(f"lake.cat.s.u{n}")
            assert there.id == renamed[n]
            if written[n] == renamed[n]:  # overwritten first
                assert there.comment == "new"
                assert not store.tables.exists(f"lake.cat.s.t{n}")
            else:
                assert store.tables.load(f"lake.cat.s.t{n}").id == written[n]
    assert violations(url) == []


def take_name(turn: Turn, rename: bool, rounds: int) -> list[str]:
    tables, found = turn.store.tables, []
    for n in range(rounds):
        turn.meet()
        if rename:
            found.append(outcome(tables.rename, f"lake.cat.s.t{n}", f"wanted{n}"))
        else:
            found.append(outcome(tables.create, f"lake.cat.s.wanted{n}"))
    return found


def test_case_12_rename_onto_a_name_that_another_creates(url: str, team: Team) -> None:
    """Field case 12: Rename onto a name that another creates at that moment: exactly one of the two has it."""
    seed(url, *(f"lake.cat.s.t{n}" for n in range(60)))
    renames, creates = team.run(url, [Job(take_name, True, 60), Job(take_name, False, 60)])
    with ms.open(url) as store:
        for n, results in enumerate(zip(renames, creates, strict=True)):
            assert sorted(results) == ["EntityAlreadyExists", "ok"]
            assert store.tables.exists(f"lake.cat.s.wanted{n}")
            assert store.tables.exists(f"lake.cat.s.t{n}") == (renames[n] != "ok")
    assert violations(url) == []


def drop_and_create(turn: Turn, rounds: int) -> None:
    turn.meet()
    for _ in range(rounds):
        turn.store.tables.create(TABLE, if_exists="return")
        turn.store.tables.drop(TABLE)


def test_case_13_drop_and_recreate_within_a_millisecond(url: str, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 13: Repeated drop and recreate within one millisecond.

    On SQLite, whose clock is ours, within one microsecond.
    """
    seed(url)
    with ms.open(url) as store:
        if url.startswith("sqlite"):
            now = store._session.backend.now()
            monkeypatch.setattr(type(store._session.clock), "micros", lambda clock: now)
        made = []
        for _ in range(50):
            made.append(store.tables.create(TABLE).id)
            assert store.tables.drop(TABLE)
        assert [t.id for t in store.tables.dropped("lake.cat.s")] == made
        assert store.tables.restore(TABLE).id == made[-1]
        store.tables.drop(TABLE)
        monkeypatch.undo()
    team.run(url, [Job(drop_and_create, 60)] * 4)
    assert violations(url) == []


def create_nested(turn: Turn, number: int, rounds: int) -> None:
    for n in range(rounds):
        turn.meet()
        turn.store.schemas.create(f"lake.cat.a{n}.b.c{number}", parents=True)


def test_case_17_nested_namespaces_do_not_collide(url: str, team: Team) -> None:
    """Field case 17: Two nested namespaces A:B:C and A:B:D created at once do not collide on A."""
    seed(url)
    team.run(url, [Job(create_nested, n, 10) for n in range(4)])
    with ms.open(url) as store:
        for n in range(10):
            assert list(store.schemas.names(f"lake.cat.a{n}.b")) == ["c0", "c1", "c2", "c3"]
    assert violations(url) == []


def test_case_35_a_conflict_is_typed_and_says_who_won(url: str) -> None:
    """Field case 35: A conflict is a typed error with the versions; the winner is in the history."""
    seed(url, TABLE)
    with ms.open(url, principal="loser") as store, ms.open(url, principal="winner") as other:
        held = store.tables.load(TABLE)
        with (
            before_commit(store, lambda: other.tables.alter(TABLE, ms.SetComment("mine"))),
            pytest.raises(ms.VersionConflict) as caught,
        ):
            store.tables.alter(held, ms.SetComment("no, mine"), expected_version=held.version)
        error = caught.value
        assert (error.path, error.expected, error.found) == (TABLE, 1, 2)
        assert "version 1" in str(error)
        assert "2" in str(error)
        assert list(store.tables.history(TABLE))[1].principal == "winner"


def test_case_35_codes_decide_not_texts() -> None:
    """Field case 35: Errors are recognised by SQLSTATE: nothing of a message, in whatever language, is looked at."""
    assert of_sqlstate("40001") is of_sqlstate("40P01") is Consequence.RETRY
    assert of_sqlstate("23505") is Consequence.UNIQUE
    assert of_sqlstate("08006") is of_sqlstate(None) is Consequence.UNKNOWN


def create_same(turn: Turn, threads: int) -> list[str]:
    barrier = threading.Barrier(threads)

    def create(_: int) -> str:
        barrier.wait()
        return outcome(turn.store.tables.create, "lake.cat.s.wanted")

    with ThreadPoolExecutor(threads) as pool:
        turn.meet()
        return list(pool.map(create, range(threads)))


def test_case_36_fifty_creates_of_one_name(url: str, team: Team) -> None:
    """Field case 36: 50 concurrent creates of one name: exactly one succeeds."""
    seed(url)
    results = Counter(r for found in team.run(url, [Job(create_same, 10)] * 5) for r in found)
    assert results == {"ok": 1, "EntityAlreadyExists": 49}
    assert violations(url) == []


def drop_pinned(turn: Turn, rounds: int) -> list[str]:
    found = []
    for n in range(rounds):
        turn.meet()
        found.append(outcome(turn.store.tables.drop, f"lake.cat.s.t{n}", expected_version=1))
    return found


def alter_each(turn: Turn, rounds: int) -> list[str]:
    found = []
    for n in range(rounds):
        turn.meet()
        found.append(outcome(turn.store.tables.alter, f"lake.cat.s.t{n}", ms.SetComment("x")))
    return found


def test_case_37_a_drop_carries_a_version_check(url: str, team: Team) -> None:
    """Field case 37: A drop of version 1 does not drop what was altered meanwhile."""
    seed(url, *(f"lake.cat.s.t{n}" for n in range(60)))
    drops, alters = team.run(url, [Job(drop_pinned, 60), Job(alter_each, 60)])
    for results in zip(drops, alters, strict=True):
        assert results in {("ok", "EntityNotFound"), ("VersionConflict", "ok")}
    assert violations(url) == []
