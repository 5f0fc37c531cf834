"""Revoke while others write: in the feed's order, no write of a user stands after the loss of its right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.operation import authorized
from tests.concurrency.workers import Job, Team, Turn
from tests.contract.ground import interrupted

WRITERS, ROUNDS = 3, 12
ANN, BOB = ("lake", "ann@corp"), ("lake", "bob@corp")


def write(turn: Turn, number: int) -> tuple[int, int]:
    """Alter and create as ann while rights come and go, and once at least; return how much was done, and denied."""
    ann = turn.store.as_user("ann@corp")
    done = denied = 0
    turn.meet()
    while turn.go_on() or not done:
        try:
            ann.tables.alter("lake.sales.eu.orders", ms.SetProperty(f"n{number}", str(done + denied)))
            ann.tables.create(f"lake.sales.eu.t{number}_{done + denied}")
            done += 1
        except (ms.PermissionDenied, ms.EntityNotFound):
            denied += 1
    return done, denied


def take_and_give(turn: Turn) -> None:
    """Take the rights away and give them back, in each of the ways."""
    store = turn.store
    group, role = store.groups.load("lake.writers"), store.roles.load("lake.writer")
    turn.meet()
    for n in range(ROUNDS):
        way = n % 4
        if way == 0:
            store.roles.revoke(role, "use_catalog", "lake.sales", kind="catalog")
            store.roles.grant(role, "use_catalog", "lake.sales", kind="catalog")
        elif way == 1:
            store.groups.remove(group, store.users.load(ANN))
            store.groups.add(group, store.users.load(ANN))
        elif way == 2:
            store.users.disable(ANN)
            store.users.enable(ANN)
        else:
            store.roles.grant(role, "use_schema", "lake.sales.eu", kind="schema", effect="deny")
            store.roles.revoke(role, "use_schema", "lake.sales.eu", kind="schema")
            store.roles.grant(role, "use_schema", "lake.sales.eu", kind="schema")


def seed(store: Store) -> None:
    """Make a lake where ann may write sales.eu, by a role of a group."""
    store.metalakes.create("lake")
    store.catalogs.create("lake.sales", type="relational")
    store.schemas.create("lake.sales.eu")
    store.tables.create("lake.sales.eu.orders")
    role, group = store.roles.create("lake.writer"), store.groups.create("lake.writers")
    store.groups.add(group, store.users.create(ANN))
    store.roles.assign(role, group)
    store.roles.grant(role, "use_catalog", "lake.sales", kind="catalog")
    for word in ("use_schema", "modify_table", "create_table"):
        store.roles.grant(role, word, "lake.sales.eu", kind="schema")


def outrun(store: Store) -> list[str]:
    """Return the writes of ann in the feed while it has no right: there must be none."""
    member = enabled = True
    granted = {"use_catalog": True, "use_schema": True}
    denied = False
    late = []
    for change in store.changes():
        if change.kind == "membership" and change.path_before != change.path_after and "writers" in str(change):
            member = change.action != "drop"
        elif change.kind == "user":
            enabled = change.action != "disable"
        elif change.kind == "grant":
            effect, word = change.entity.value.split(":")  # type: ignore[union-attr]
            if effect == "deny":
                denied = change.action != "drop"
            elif word in granted:
                granted[word] = change.action != "drop"
        elif change.principal == "ann@corp" and not (member and enabled and all(granted.values()) and not denied):
            late.append(f"{change.position} {change.action} {change.path_after}")
    return late


def test_no_write_stands_after_the_loss_of_its_right(url: str, team: Team) -> None:
    with ms.open(url) as store:
        seed(store)
        jobs = [*[Job(write, n, background=True) for n in range(WRITERS)], Job(take_and_give)]
        *results, _ = team.run(url, jobs)
        assert sum(done for done, _ in results) > 0
        assert outrun(store) == []
        assert store.verify() == []


@pytest.mark.parametrize("cache", [None, ms.Cache("validate")], ids=["no cache", "cache"])
def test_another_server_sees_grants_drops_and_lists_at_once(url: str, cache: ms.Cache | None) -> None:
    """Field case 15: each answer is that of the moment, although the same question was answered just before."""
    orders = "lake.sales.eu.orders"
    with ms.open(url) as one, ms.open(url, cache=cache) as other:
        seed(one)
        bob = other.as_user("bob@corp")
        one.users.create(BOB)

        def seen() -> tuple[list[str], list[str], bool]:
            names = [role.name for role in other.roles.list("lake")]
            return names, [role.name for role in other.roles.of(BOB)], _loads(bob, orders)

        assert seen() == (["writer"], [], False)
        reader = one.roles.create("lake.reader")
        for word in ("use_catalog", "use_schema"):
            one.roles.grant(reader, word, "lake.sales", kind="catalog")
        assert seen() == (["reader", "writer"], [], False)
        one.roles.grant(reader, "select_table", orders, kind="table")
        one.roles.assign(reader, one.users.load(BOB))
        assert seen() == (["reader", "writer"], ["reader"], True)
        one.roles.revoke(reader, "select_table", orders, kind="table")
        assert seen() == (["reader", "writer"], ["reader"], False)
        one.roles.grant(reader, "select_table", orders, kind="table")
        assert seen()[2]
        one.tables.drop(orders)
        assert not _loads(bob, orders)
        assert not other.tables.exists(orders)
        one.tables.restore(orders)
        assert seen()[2]
        one.roles.drop(reader)
        assert seen() == (["writer"], [], False)


def _loads(store: Store, path: str) -> bool:
    try:
        return store.tables.load(path).path == path
    except (ms.PermissionDenied, ms.EntityNotFound):
        return False


def test_evidence_that_is_not_guarded_is_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = authorized._guarded

    def unguarded(access: Any, view: Any, proposal: Any, merge: Any) -> Any:
        return replace(proposal, evidence=guarded(access, view, proposal, merge).evidence)

    monkeypatch.setattr(authorized, "_guarded", unguarded)
    with ms.open(url) as store:
        seed(store)
        ann = store.as_user("ann@corp")
        with interrupted(ann, lambda: store.users.disable(ANN)):
            ann.tables.alter("lake.sales.eu.orders", ms.SetComment("late"))
        assert len(outrun(store)) == 1
        assert [found.invariant for found in store.verify()] == [14]
