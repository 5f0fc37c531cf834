"""Relations while other processes drop, restore, rename and collect their ends: no reader sees one with a dead end.

``verify`` replays the feed: whenever a relation was written, both its ends stood where its event says.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import pytest

import metastore as ms
from metastore.managers.relations import manager as relations
from metastore.operation.guards import guards_of
from tests.concurrency.workers import Job, Team, Turn, outcome
from tests.long import long_unless

ROUNDS = 40
TABLE = "lake.cat.s.t"
USERS = [("lake", f"u{n}@corp.com") for n in range(3)]
EXPECTED = {"ok", "EntityNotFound", "EntityAlreadyExists"}

Calls = Callable[[ms.Store, random.Random], Sequence[Callable[[], object]]]


def prepare(url: str) -> None:
    """Make what the jobs work on."""
    with ms.open(url, principal="seed") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="relational")
        store.tables.create(TABLE, parents=True, columns=[ms.Column("a", "int")])
        store.tags.create("lake.tag")
        store.roles.create("lake.role")
        for user in USERS:
            store.users.create(user)


def _drop_and_restore(store: ms.Store, kind: str, path: str | tuple[str, ...]) -> Sequence[Callable[[], object]]:
    manager = store.manager(kind)
    return partial(manager.drop, path, cascade=True), partial(manager.restore, path)


def _tag(store: ms.Store, dice: random.Random) -> Sequence[Callable[[], object]]:
    value = dice.choice((None, "x", "y"))
    return partial(store.tags.attach, TABLE, "lake.tag", value=value), partial(store.tags.detach, TABLE, "lake.tag")


def _tag_column(store: ms.Store, dice: random.Random) -> Sequence[Callable[[], object]]:
    column = dice.choice(("a", "b"))
    return (
        partial(store.tags.attach, TABLE, "lake.tag", column=column),
        partial(store.tags.detach, TABLE, "lake.tag", column=column),
    )


def _rename_column(store: ms.Store, dice: random.Random) -> Sequence[Callable[[], object]]:
    one, two = dice.sample(("a", "b"), 2)
    return (partial(store.tables.alter, TABLE, ms.RenameColumn(one, two)),)


def _grant(store: ms.Store, dice: random.Random) -> Sequence[Callable[[], object]]:
    user = dice.choice(USERS)
    return (
        partial(store.roles.assign, "lake.role", user),
        partial(store.roles.unassign, "lake.role", user),
        partial(store.roles.grant, "lake.role", "select_table", TABLE, effect=dice.choice(("allow", "deny"))),
        partial(store.roles.revoke, "lake.role", "select_table", TABLE),
    )


def _own(store: ms.Store, dice: random.Random) -> Sequence[Callable[[], object]]:
    return (partial(store.owners.set, TABLE, dice.choice(USERS)),)


def _drop_tag(store: ms.Store, _: random.Random) -> Sequence[Callable[[], object]]:
    return _drop_and_restore(store, "tag", "lake.tag")


def _drop_role(store: ms.Store, _: random.Random) -> Sequence[Callable[[], object]]:
    return _drop_and_restore(store, "role", "lake.role")


def _drop_user(store: ms.Store, dice: random.Random) -> Sequence[Callable[[], object]]:
    return _drop_and_restore(store, "user", dice.choice(USERS))


def _cascade(store: ms.Store, _: random.Random) -> Sequence[Callable[[], object]]:
    return _drop_and_restore(store, "schema", "lake.cat.s")


def _recreate(store: ms.Store, _: random.Random) -> Sequence[Callable[[], object]]:
    return (
        partial(store.tags.drop, "lake.tag"),
        partial(store.tags.create, "lake.tag"),
        partial(store.gc, retention=timedelta(0)),
    )


CASES: dict[str, tuple[Calls, Calls]] = {
    "drop role, grant": (_drop_role, _grant),
    "drop tag, attach": (_drop_tag, _tag),
    "set owner, drop user": (_drop_user, _own),
    "owner, owner": (_own, _own),
    "rename of a column, tag on it": (_rename_column, _tag_column),
    "cascade, attach": (_cascade, _tag),
    "restore, gc": (_recreate, _tag),
}


def play(turn: Turn, case: str, side: int, seed: int) -> Counter[str]:
    """Make random calls of one side of a case; between them, look for relations with a dead end."""
    store, dice, done = turn.store, random.Random(seed), Counter[str]()
    turn.meet()
    for _ in range(ROUNDS):
        for call in CASES[case][side](store, dice):
            done[outcome(call)] += 1
        done[outcome(_look, store)] += 1
    return done


def _look(store: ms.Store) -> None:
    """Check what one reader sees: one owner, and nothing twice."""
    assert len(store.relations("owner").on(TABLE, inherited=False)) <= 1
    seen = [(one.id, one.value) for one in store.tags.on(TABLE)]
    assert len(seen) == len(set(seen))


@pytest.mark.one_in(2, on="postgres")
@pytest.mark.each_run_on("postgres")
@pytest.mark.parametrize("case", long_unless(CASES, lambda case: not case.startswith(("drop tag", "restore", "set"))))
def test_no_relation_has_a_dead_end(url: str, team: Team, case: str) -> None:
    """Field cases 8, 9, 18."""
    prepare(url)
    jobs = [Job(play, case, side, seed) for seed, side in enumerate((0, 1, 1))]
    counts = sum(team.run(url, jobs), Counter[str]())
    assert counts["ok"] > ROUNDS
    assert counts.keys() <= EXPECTED, counts
    with ms.open(url) as store:
        collected = case == "restore, gc"
        violations = store.verify()
        assert violations == []
        for one in store.tags.targets("lake.tag") if store.tags.exists("lake.tag") else ():
            assert (one.target_path, one.column in (None, "a", "b")) == (TABLE, True)
        owned = [e.path for user in USERS if store.users.exists(user) for e in store.owners.owned_by(user)]
        assert len(owned) <= 1  # one owner, the last that was set
        live = {c.entity_id: c for c in store.changes() if c.kind in ("tag_on", "owner", "membership", "grant")}
        there = {row.id for row in store._session.backend.relations("tag_on", _slots(store))}
        gone = {entity_id for entity_id, change in live.items() if change.action == "drop"}
        assert not there & gone
        if not collected:
            assert there <= live.keys()


def move_about(turn: Turn, drops: bool) -> int:
    """Rename the table there and back, or drop and restore it at either name, until that was done once at least.

    Return how often it was.
    """
    tables, done, rounds = turn.store.tables, 0, 0
    turn.meet()
    while rounds < ROUNDS or (not done and rounds < 100 * ROUNDS):
        rounds += 1
        for here, other in ((TABLE, f"{TABLE}2"), (f"{TABLE}2", TABLE)):
            if drops:
                done += outcome(tables.drop, here) == "ok"
                done += outcome(tables.restore, here) == "ok"
            else:
                done += outcome(tables.rename, here, other.rpartition(".")[2]) == "ok"
    return done


def test_case_4_what_survives_a_rename_and_a_drop_keeps_owner_and_tags(url: str, team: Team) -> None:
    """Field case 4."""
    prepare(url)
    with ms.open(url) as store:
        table = store.tables.load(TABLE)
        store.owners.set(table, USERS[0])
        store.tags.attach(table, "lake.tag", value="x")
        assert all(team.run(url, [Job(move_about, drops) for drops in (False, True)]))
        for path in (TABLE, f"{TABLE}2"):
            if list(store.tables.names("lake.cat.s")) == []:
                outcome(store.tables.restore, path)
        owner = store.owners.of(table)
        assert owner is not None
        assert owner.name == USERS[0][1]
        assert [(one.name, one.value) for one in store.tags.on(table)] == [("tag", "x")]
        assert store.verify() == []


def _slots(store: ms.Store) -> list[tuple[int, int]]:
    tables = [e.id for e in store.find("lake", kind="table")]
    return [(table, tag.id) for table in tables for tag in store.tags.list("lake")]


def attach_unguarded(turn: Turn, seed: int) -> None:
    """Attach as a library would that reads the other end and does not guard it."""
    store, dice = turn.store, random.Random(seed)
    vars(relations)["both"] = lambda first, _: guards_of(first)
    turn.meet()
    while turn.go_on():
        for call in _tag(store, dice):
            outcome(call)


def drop_and_restore(turn: Turn) -> None:
    """Drop the tag and restore it, again and again."""
    turn.meet()
    for _ in range(150):
        for call in _drop_tag(turn.store, random.Random()):
            outcome(call)


@pytest.mark.postgres
def test_an_end_that_is_read_and_not_guarded_is_found(postgres_url: str) -> None:
    """The negative control: without the guard on the other end, ``verify`` finds relations to a dropped tag."""
    prepare(postgres_url)
    team = Team()  # of its own: their library is spoiled
    team.run(postgres_url, [Job(drop_and_restore), *[Job(attach_unguarded, n, background=True) for n in range(3)]])
    team.close()
    with ms.open(postgres_url) as store:
        assert 13 in {violation.invariant for violation in store.verify()}
