"""A right that is taken away between the decision and the commit: the commit does not land.

The negative control leaves the evidence out of the commit's guards. Then each of them lands.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import metastore as ms
from metastore import Store
from metastore.operation import authorized
from metastore.operation.request import Proposal
from tests.contract.authorized import Lake, prepare
from tests.contract.ground import interrupted

ANN = ("lake", "ann@corp")
MODIFY = ("modify_table", "schema", "lake.sales.eu")


@pytest.fixture
def lake(store: Store) -> Lake:
    """Give the lake, where ann may write what is in sales.eu, by a role of a group."""
    made = prepare(store)
    made.reader()
    group = store.groups.create("lake.writers")
    store.groups.add(group, store.users.load(ANN))
    role = store.roles.create("lake.writer")
    made.grant(role, MODIFY, ("create_table", "schema", "lake.sales.eu"))
    store.roles.assign(role, group)
    store.roles.create("lake.deny")
    made.grant(store.roles.load("lake.deny"), MODIFY, ("create_table", "catalog", "lake.sales"), deny=True)
    return made


def _revive(store: Store) -> None:
    store.roles.assign("lake.deny", ANN)
    store.roles.drop("lake.deny")


NOTHING: Callable[[Store], object] = lambda store: None  # noqa: E731
LOSSES: dict[str, tuple[Callable[[Store], object], Callable[[Store], object]]] = {
    "revoke": (
        NOTHING,
        lambda s: [
            s.roles.revoke("lake.writer", word, "lake.sales.eu", kind="schema")
            for word in ("create_table", "modify_table")
        ],
    ),
    "unassign": (NOTHING, lambda s: s.roles.unassign("lake.writer", s.groups.load("lake.writers"))),
    "remove from the group": (NOTHING, lambda s: s.groups.remove("lake.writers", ANN)),
    "disable the group": (NOTHING, lambda s: s.groups.disable("lake.writers")),
    "drop the group": (NOTHING, lambda s: s.groups.drop("lake.writers")),
    "drop the role": (NOTHING, lambda s: s.roles.drop("lake.writer")),
    "disable the user": (NOTHING, lambda s: s.users.disable(ANN)),
    "drop the user": (NOTHING, lambda s: s.users.drop(ANN)),
    "assign a role that denies": (NOTHING, lambda s: s.roles.assign("lake.deny", s.users.load(ANN))),
    "restore a role that denies": (_revive, lambda s: s.roles.restore("lake.deny")),
    "deny": (
        NOTHING,
        lambda s: [
            s.roles.grant("lake.reader", word, "lake.sales.eu", effect="deny", kind="schema")
            for word in ("create_table", "modify_table")
        ],
    ),
    "change the owner": (
        lambda s: (
            s.owners.set("lake.sales.eu", ANN, kind="schema"),
            s.roles.drop("lake.writer"),
        ),
        lambda s: s.owners.set("lake.sales.eu", ("lake", "bob@corp"), kind="schema"),
    ),
}
WRITES: dict[str, Callable[[Store, Lake], object]] = {
    "alter": lambda ann, lake: ann.tables.alter(lake.orders, ms.SetComment("late")),
    "alter by path": lambda ann, lake: ann.tables.alter("lake.sales.eu.orders", ms.SetComment("late")),
    "create": lambda ann, lake: ann.tables.create("lake.sales.eu.late"),
    "create_many": lambda ann, lake: ann.tables.create_many(lake.schema, [{"name": "late"}]),
    "rename": lambda ann, lake: ann.tables.rename(lake.orders, "late"),
}


def _late(lake: Lake) -> bool:
    """Whether the late write has landed."""
    tables = lake.store.tables
    return tables.exists("lake.sales.eu.late") or tables.load("lake.sales.eu.orders").comment == "late"


PAIRS = [*[(write, loss) for write in ("alter by path", "create") for loss in LOSSES], *[(w, "revoke") for w in WRITES]]


@pytest.mark.parametrize(("write", "loss"), list(dict.fromkeys(PAIRS)))
def test_what_rests_on_a_lost_right_does_not_land(lake: Lake, write: str, loss: str) -> None:
    prepared, lost = LOSSES[loss]
    prepared(lake.store)
    ann = lake.store.as_user("ann@corp")
    ann.tables.alter("lake.sales.eu.orders", ms.SetProperty("early", "yes"))  # the evidence is remembered
    with (
        interrupted(ann, lambda: lost(lake.store)),
        pytest.raises((ms.PermissionDenied, ms.EntityNotFound)),
    ):
        WRITES[write](ann, lake)
    assert not _late(lake)
    assert lake.store.verify() == []


@pytest.mark.parametrize("loss", LOSSES)
def test_evidence_that_is_not_guarded_lets_it_land(lake: Lake, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, lost = LOSSES[loss]
    prepared(lake.store)
    ann = lake.store.as_user("ann@corp")
    guarded = authorized._guarded

    def unguarded(access: object, view: object, proposal: Proposal[object], merge: object) -> Proposal[object]:
        rests = guarded(access, view, proposal, merge)  # type: ignore[arg-type]  # it decides, and guards nothing
        guards = proposal.guards
        if loss in ("deny", "change the owner", "restore a role that denies"):
            guards = ()  # the guards of the way say the same
        return Proposal(guards, proposal.writes, proposal.finish, evidence=rests.evidence)

    monkeypatch.setattr(authorized, "_guarded", unguarded)
    with interrupted(ann, lambda: lost(lake.store)):
        ann.tables.alter("lake.sales.eu.orders", ms.SetComment("late"))
    assert _late(lake)
    (found,) = {violation.invariant for violation in lake.store.verify()}
    assert found == 14
