"""What was read of a user's rights at one time never vouches for what was read of them before.

Ann loads T by one role and loses it. Then she loads U, which reads her scope versions again. No later call that names
both may show T, or write it. No call in these tests meets another one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import metastore as ms
from metastore import Store
from tests.contract.authorized import Lake, prepare

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

ANN, BOB = ("lake", "ann@corp"), ("lake", "bob@corp")
T, U = "lake.sales.eu.orders", "lake.hr.people.salaries"


@pytest.fixture
def lake(store: Store) -> Lake:
    """Give the lake, where ann sees both catalogs, each by a role of its own."""
    made = prepare(store)
    for name, catalog in (("first", "lake.sales"), ("second", "lake.hr")):
        words = ("use_catalog", "use_schema", "select_table", "modify_table", "create_table")
        made.role(name, *[(word, "catalog", catalog) for word in words])
    return made


def _lose(lake: Lake, ann: Store, role: str, lost: str, kept: str) -> None:
    """Let ann know both tables, lose one, and read the other again."""
    assert ann.tables.load(lost).id
    assert ann.tables.load(kept).id
    lake.store.roles.unassign(role, lake.store.users.load(ANN))
    lake.store.tables.alter(lost, ms.SetComment("late"))
    assert ann.tables.load(kept).id


READS: dict[str, Callable[[Store], list[str | None]]] = {
    "load_many": lambda ann: [one.path for one in ann.tables.load_many([T, U]) if one is not None],
    "find": lambda ann: [one.path for one in ann.find(kind="table") if one.name != "refunds"],
    "changes": lambda ann: [c.path_after for c in ann.changes(kinds=["table"]) if "refunds" not in str(c)],
    "changes_page": lambda ann: [c.path_after for c in ann.changes_page(size=4, kinds=["table"]).items],
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("role", "lost", "kept"), [("lake.first", T, U), ("lake.second", U, T)])
def test_no_read_shows_what_was_lost(lake: Lake, read: str, role: str, lost: str, kept: str) -> None:
    ann = lake.store.as_user("ann@corp")
    _lose(lake, ann, role, lost, kept)
    assert set(READS[read](ann)) <= {kept, "lake.sales.eu.refunds"} - {lost}


@pytest.mark.parametrize("again", [T, U])
def test_a_tag_is_not_attached_without_its_right(lake: Lake, again: str) -> None:
    store, ann, tag = lake.store, lake.store.as_user("ann@corp"), lake.store.tags.create("lake.tag")
    lake.role("tagger", ("apply_tag", "tag", "lake.tag"))
    on = lake.salaries if again == U else lake.orders
    assert ann.tags.attach_many(tag, [{"target": on, "value": "1"}]) == 1
    store.roles.unassign("lake.tagger", store.users.load(ANN))
    assert ann.tables.load(again).id
    with pytest.raises((ms.PermissionDenied, ms.EntityNotFound)):
        ann.tags.attach_many(tag, [{"target": on, "value": "2"}])
    with pytest.raises((ms.PermissionDenied, ms.EntityNotFound)):
        ann.tags.attach(on, tag, value="2")
    assert [one.value for one in store.tags.on(on)] == ["1"]
    assert store.verify() == []


def test_a_former_owner_moves_nothing(lake: Lake) -> None:
    """The table's owner is a group that ann has left; where it goes, she may create by her own roles."""
    store, ann = lake.store, lake.store.as_user("ann@corp")
    group = store.groups.create("lake.owners")
    store.groups.add(group, store.users.load(ANN))
    store.owners.set(lake.orders, group)
    store.schemas.create("lake.sales.us")
    moved = ann.tables.rename(lake.orders, "lake.sales.us.orders")
    assert ann.tables.load(moved).id
    store.groups.remove(group, store.users.load(ANN))
    assert ann.schemas.load("lake.sales.eu").id
    with pytest.raises(ms.PermissionDenied):
        ann.tables.rename(moved, "lake.sales.eu.orders")
    assert store.tables.load(moved).path == "lake.sales.us.orders"
    assert store.verify() == []


def test_what_is_above_a_start_is_not_remembered(lake: Lake) -> None:
    """A chunk of rows is looked up from its schema on: a denial on the catalog counts at once."""
    store = lake.store
    bob = store.as_user("bob@corp")
    lake.role(
        "maker", *[(w, "catalog", "lake.sales") for w in ("use_catalog", "use_schema", "create_table")], to=BOB[1]
    )
    lake.role("reader", ("select_table", "catalog", "lake.sales"), to=BOB[1])
    assert bob.tables.load(T).id
    assert bob.schemas.load("lake.sales.eu").id
    store.roles.grant("lake.reader", "select_table", "lake.sales", effect="deny", kind="catalog")
    store.roles.grant("lake.reader", "modify_table", "lake.sales", kind="catalog")
    assert store.roles.revoke("lake.reader", "modify_table", "lake.sales", kind="catalog")
    with pytest.raises(ms.EntityAlreadyExists):
        bob.tables.create_many(lake.schema, [{"name": "orders"}], if_exists="replace")
    assert store.verify() == []


def test_an_end_in_hand_that_is_hidden_by_now_is_refused(lake: Lake) -> None:
    store, ann = lake.store, lake.store.as_user("ann@corp")
    role = store.roles.create("lake.third")
    lake.role("granter", ("manage_grants", "metalake", "lake"))
    store.owners.set(lake.salaries, store.users.load(ANN))
    assert ann.roles.grant(role, "select_table", lake.salaries).role == "lake.third"
    store.roles.revoke("lake.granter", "manage_grants", "lake", kind="metalake")
    with pytest.raises(ms.EntityNotFound):
        ann.roles.grant(role, "modify_table", lake.salaries)
    with pytest.raises(ms.EntityNotFound):
        ann.owners.set(lake.salaries, store.users.load(BOB))
    assert [grant.privilege for grant in store.roles.grants(role)] == ["select_table"]
