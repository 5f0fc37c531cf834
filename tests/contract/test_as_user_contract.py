"""A store as a user may use it: what it sees, what it may do, what it is told, and when that changes."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.jobs import filled
from tests.contract.authorized import Lake, prepare

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

ANN = "ann@corp"


@pytest.fixture
def lake(store: Store) -> Lake:
    """Give the lake."""
    return prepare(store)


@pytest.fixture
def ann(lake: Lake) -> Store:
    """Give the store as ann may use it."""
    return lake.store.as_user(ANN)


# --- seeing


def test_without_rights_nothing_but_the_metalake_is_seen(lake: Lake, ann: Store) -> None:
    assert [m.path for m in ann.metalakes.list()] == ["lake"]
    assert list(ann.catalogs.list("lake")) == []
    assert not ann.tables.exists("lake.sales.eu.orders")
    for load in (
        lambda: ann.catalogs.load("lake.sales"),
        lambda: ann.tables.load("lake.sales.eu.orders"),
        lambda: ann.tables.load(lake.orders),
        lambda: list(ann.tables.list("lake.sales.eu")),
        lambda: list(ann.tables.list(lake.schema)),
        lambda: list(ann.tables.history(lake.orders)),
        lambda: ann.tables.alter(lake.orders, ms.SetComment("no")),
        lambda: ann.tables.alter("lake.sales.eu.orders", ms.SetComment("no")),
        lambda: ann.tables.rename(lake.orders, "other"),
        lambda: ann.tables.create("lake.sales.eu.new"),
        lambda: ann.tables.create("new", parent=lake.schema),
    ):
        with pytest.raises(ms.EntityNotFound):
            load()
    assert ann.tables.drop(lake.orders) is False
    assert ann.tables.drop("lake.sales.eu.orders") is False
    assert ann.tables.load_many(["lake.sales.eu.orders"]) == [None]
    assert list(ann.find(kind="table")) == []
    stranger = lake.store.as_user("nobody@corp")
    assert list(stranger.metalakes.list()) == []
    with pytest.raises(ms.EntityNotFound):
        stranger.metalakes.load("lake")


def test_ann_may_read_sales_and_not_hr(lake: Lake, ann: Store) -> None:
    lake.reader()
    assert [c.path for c in ann.catalogs.list("lake")] == ["lake.sales"]
    assert list(ann.catalogs.names("lake")) == ["sales"]
    assert [t.name for t in ann.tables.list("lake.sales.eu")] == ["orders", "refunds"]
    assert [t.name for t in ann.tables.page("lake.sales.eu", size=1).items] == ["orders"]
    assert list(ann.tables.names("lake.sales.eu")) == ["orders", "refunds"]
    assert ann.tables.load("lake.sales.eu.orders").id == lake.orders.id
    assert ann.tables.load(lake.orders).name == "orders"
    assert [t.path for t in ann.find(kind="table")] == ["lake.sales.eu.orders", "lake.sales.eu.refunds"]
    with pytest.raises(ms.EntityNotFound):
        ann.tables.load("lake.hr.people.salaries")
    with pytest.raises(ms.PermissionDenied) as denied:
        ann.tables.alter(lake.orders, ms.SetComment("no"))
    error = denied.value
    assert (error.user, error.privilege, error.path) == (ANN, "modify_table", "lake.sales.eu.orders")
    for call in (
        lambda: ann.tables.drop(lake.orders),
        lambda: ann.tables.rename("lake.sales.eu.orders", "other"),
        lambda: ann.tables.create("lake.sales.eu.new"),
        lambda: ann.schemas.create("lake.sales.us"),
        lambda: ann.schemas.drop("lake.sales.eu"),
        lambda: ann.schemas.drop("lake.sales.eu", cascade=True),
        lambda: ann.catalogs.disable("lake.sales"),
        lambda: ann.tables.purge(lake.orders),
        lambda: ann.metalakes.create("mine"),
        lambda: ann.users.create(("lake", "carl")),
        lambda: ann.tables.create_many(lake.schema, [{"name": "x"}]),
    ):
        with pytest.raises(ms.PermissionDenied):
            call()
    assert not lake.store.verify()


def test_a_denied_table_is_hidden_and_one_that_is_allowed_is_shown(lake: Lake, ann: Store) -> None:
    lake.reader()
    lake.role("not_refunds", ("select_table", "table", "lake.sales.eu.refunds"), deny=True)
    assert [t.name for t in ann.tables.list("lake.sales.eu")] == ["orders"]
    assert list(ann.tables.names("lake.sales.eu")) == ["orders"]
    with pytest.raises(ms.EntityNotFound):
        ann.tables.load("lake.sales.eu.refunds")
    way = [("use_catalog", "catalog", "lake.hr"), ("use_schema", "catalog", "lake.hr")]
    lake.role("hr", *way, ("select_table", "table", "lake.hr.people.salaries"))
    lake.store.tables.create("lake.hr.people.bonuses")
    assert [t.name for t in ann.tables.list("lake.hr.people")] == ["salaries"]
    assert list(ann.tables.names("lake.hr.people")) == ["salaries"]
    assert [t.name for t in ann.tables.page("lake.hr.people", size=5).items] == ["salaries"]


# --- doing


def test_who_may_modify_alters_and_who_owns_drops(lake: Lake, ann: Store) -> None:
    lake.reader()
    lake.role("writer", ("modify_table", "schema", "lake.sales.eu"))
    altered = ann.tables.alter(lake.orders, ms.SetComment("mine"))
    assert (altered.comment, altered.modified_by) == ("mine", ANN)
    assert ann.tables.rename("lake.sales.eu.orders", "sold").name == "sold"
    with pytest.raises(ms.PermissionDenied, match="own"):
        ann.tables.drop("lake.sales.eu.sold")
    lake.store.owners.set(lake.store.tables.load("lake.sales.eu.sold"), lake.store.users.load(("lake", ANN)))
    assert ann.tables.drop("lake.sales.eu.sold") is True


def test_what_is_remembered_is_the_right_to_one_operation(lake: Lake, ann: Store) -> None:
    lake.reader()
    lake.role("writer", ("modify_table", "schema", "lake.sales.eu"))
    for n in range(2):  # nothing is read for the second one
        ann.tables.alter("lake.sales.eu.orders", ms.SetComment(str(n)))
    with pytest.raises(ms.PermissionDenied, match="own"):
        ann.tables.drop("lake.sales.eu.orders")
    with pytest.raises(ms.PermissionDenied, match="own"):
        ann.tables.drop(ann.tables.load("lake.sales.eu.orders"))


def test_it_owns_what_it_creates(lake: Lake, ann: Store) -> None:
    role = lake.reader()
    lake.grant(role, ("create_table", "schema", "lake.sales.eu"))
    made = ann.tables.create("lake.sales.eu.new")
    owner = lake.store.owners.of(made)
    assert owner is not None
    assert owner.name == ANN
    assert ann.tables.alter(made, ms.SetComment("mine")).comment == "mine"
    assert ann.tables.create_many(lake.schema, [{"name": f"t{n}"} for n in range(3)]) == 3
    third = lake.store.owners.of(lake.store.tables.load("lake.sales.eu.t2"))
    assert third is not None
    assert third.name == ANN
    lake.role("deny", ("modify_table", "table", "lake.sales.eu.new"), deny=True)
    assert ann.tables.alter("lake.sales.eu.new", ms.SetComment("still")).comment == "still"
    assert ann.tables.drop("lake.sales.eu.new") is True
    assert not lake.store.verify()


def test_parents_moves_and_restores(lake: Lake, ann: Store) -> None:
    role = lake.reader()
    lake.grant(role, *[(f"create_{kind}", "catalog", "lake.sales") for kind in ("schema", "table")])
    made = ann.tables.create("lake.sales.x.y.t", parents=True)
    owner = lake.store.owners.of("lake.sales.x.y")
    assert owner is not None
    assert owner.name == ANN
    with pytest.raises(ms.EntityNotFound, match=r"lake\.hr"):
        ann.tables.rename(made, "lake.hr.people.t")
    with pytest.raises(ms.EntityNotFound, match=r"lake\.hr"):
        ann.tables.create("lake.hr.people.t", parents=True)
    assert ann.tables.rename(made, "lake.sales.eu.t").path == "lake.sales.eu.t"
    with pytest.raises(ms.PermissionDenied):
        ann.tables.rename("lake.sales.eu.orders", "lake.sales.x.orders")
    assert ann.schemas.drop("lake.sales.x", cascade=True) is True
    assert [s.name for s in ann.schemas.dropped("lake.sales")] == ["x"]
    assert ann.schemas.restore("lake.sales.x").name == "x"
    with pytest.raises(ms.PermissionDenied):
        ann.partitions.create("lake.sales.eu.orders", "p", values={})
    assert [r.name for r in ann.roles.of(("lake", ANN))] == ["reader"]
    assert [u.name for u in ann.users.list("lake")] == [ANN]
    assert lake.store.as_user(("lake", ANN)).tables.exists("lake.sales.eu.t")
    assert not lake.store.as_user(("other", ANN)).tables.exists("lake.sales.eu.t")
    assert not lake.store.verify()


def test_a_taken_name_is_told_and_nothing_else(lake: Lake, ann: Store) -> None:
    role = lake.reader()
    lake.grant(role, ("create_table", "schema", "lake.sales.eu"))
    lake.role("not_refunds", ("select_table", "table", "lake.sales.eu.refunds"), deny=True)
    for if_exists in ("error", "return", "replace"):
        with pytest.raises(ms.EntityAlreadyExists) as taken:
            ann.tables.create("lake.sales.eu.refunds", if_exists=if_exists)
        assert str(taken.value) == str(ms.EntityAlreadyExists("lake.sales.eu.refunds"))
    with pytest.raises(ms.EntityAlreadyExists):
        ann.tables.create("refunds", parent=lake.schema)
    mine = ann.tables.create("lake.sales.eu.mine")
    with pytest.raises(ms.EntityAlreadyExists):
        ann.tables.rename(mine, "refunds")


def test_groups_have_rights_and_disabled_users_have_none(lake: Lake, ann: Store) -> None:
    store = lake.store
    group, user = store.groups.create("lake.analysts"), store.users.load(("lake", ANN))
    store.groups.add(group, user)
    store.roles.assign(lake.reader(to="bob@corp"), group)
    assert ann.tables.exists("lake.sales.eu.orders")
    store.groups.disable(group)
    assert not ann.tables.exists("lake.sales.eu.orders")
    store.groups.enable(store.groups.load("lake.analysts"))
    assert ann.tables.exists("lake.sales.eu.orders")
    store.users.disable(user)
    assert not ann.tables.exists("lake.sales.eu.orders")
    store.users.enable(store.users.load(("lake", ANN)))
    assert ann.tables.exists("lake.sales.eu.orders")
    store.groups.remove(group, store.users.load(("lake", ANN)))
    assert not ann.tables.exists("lake.sales.eu.orders")


def test_a_name_has_in_each_metalake_the_rights_of_its_user_there(lake: Lake, ann: Store) -> None:
    store = lake.store
    store.metalakes.create("other")
    store.catalogs.create("other.c", type="relational")
    store.tables.create("other.c.s.t", parents=True)
    lake.reader()
    assert [m.path for m in ann.metalakes.list()] == ["lake"]
    store.users.create(("other", ANN))
    writer = store.roles.create("other.writer")
    store.roles.assign(writer, ("other", ANN))
    for word in ("use_catalog", "use_schema", "modify_table"):
        store.roles.grant(writer, word, "other.c", kind="catalog")
    assert [m.path for m in ann.metalakes.list()] == ["lake", "other"]
    assert ann.tables.alter("other.c.s.t", ms.SetComment("mine")).comment == "mine"
    with pytest.raises(ms.PermissionDenied, match=r"modify_table on lake\.sales\.eu\.orders"):
        ann.tables.alter(lake.orders, ms.SetComment("no"))
    assert [table.path for table in store.as_user(("other", ANN)).find(kind="table")] == ["other.c.s.t"]
    with ann.transaction() as tx:
        tx.tables.load(lake.orders)
        tx.tables.alter("other.c.s.t", ms.SetComment("both"))
    with pytest.raises(ms.InvalidArgument, match="different metalakes"):
        store.roles.assign(writer, ("lake", ANN))
    store.users.disable(("other", ANN))
    assert [m.path for m in ann.metalakes.list()] == ["lake"]


def test_a_user_that_is_made_again_has_no_old_right(lake: Lake, ann: Store) -> None:
    lake.reader()
    assert ann.tables.exists("lake.sales.eu.orders")
    lake.store.users.drop(("lake", ANN))
    assert not ann.tables.exists("lake.sales.eu.orders")
    lake.store.users.create(("lake", ANN))
    assert not ann.tables.exists("lake.sales.eu.orders")
    assert ann.metalakes.exists("lake")


# --- what is taken away is gone at once, whatever is remembered


def test_each_way_to_lose_a_right(lake: Lake, ann: Store) -> None:
    store = lake.store

    def may() -> bool:
        try:
            ann.tables.alter(lake.orders, ms.SetProperty("n", str(store.tables.load(lake.orders).version)))
        except (ms.PermissionDenied, ms.EntityNotFound):
            return False
        return True

    role = lake.reader()
    user = store.users.load(("lake", ANN))
    modify = ("modify_table", "schema", "lake.sales.eu")
    lake.grant(role, modify)
    assert may()
    store.roles.revoke(role, "modify_table", store.schemas.load("lake.sales.eu"))
    assert not may()
    lake.grant(role, modify)
    assert may()
    store.roles.unassign(role, user)
    assert not may()
    store.roles.assign(role, user)
    assert may()
    lake.role("deny", ("modify_table", "table", "lake.sales.eu.orders"), deny=True)
    assert not may()
    store.roles.drop("lake.deny")
    assert may()
    store.roles.restore("lake.deny")
    assert not may()
    store.roles.drop("lake.deny")
    assert may()
    store.users.disable(user)
    assert not may()
    store.users.enable(store.users.load(("lake", ANN)))
    assert may()
    store.roles.drop(role)
    assert not may()
    store.owners.set(store.catalogs.load("lake.sales"), store.users.load(("lake", ANN)))
    assert may()
    store.owners.set(store.catalogs.load("lake.sales"), store.users.load(("lake", "bob@corp")))
    assert not may()
    assert not store.verify()


# --- the rest of the surface


def test_transactions_are_checked(lake: Lake, ann: Store) -> None:
    role = lake.reader()
    lake.grant(role, ("create_schema", "catalog", "lake.sales"))
    with ann.transaction() as tx:
        made = tx.schemas.create("lake.sales.us")
        tx.tables.create("lake.sales.us.orders")
        assert tx.schemas.load(made).name == "us"
    assert ann.tables.load("lake.sales.us.orders").created_by == ANN
    with pytest.raises(ms.PermissionDenied), ann.transaction() as tx:
        tx.tables.alter("lake.sales.eu.orders", ms.SetComment("no"))
    with pytest.raises(ms.EntityNotFound), ann.transaction() as tx:
        tx.tables.load("lake.hr.people.salaries")
    tx = ann.transaction()
    tx.__enter__()
    tx.tables.load("lake.sales.eu.orders")
    lake.store.roles.revoke(role, "select_table", lake.sales)
    tx.schemas.create("lake.sales.asia")  # that needs no right to read tables
    with pytest.raises(ms.VersionConflict):
        tx.__exit__(None, None, None)
    assert not lake.store.schemas.exists("lake.sales.asia")


def test_a_freeze_needs_ownership(lake: Lake, ann: Store) -> None:
    lake.reader()
    with pytest.raises(ms.PermissionDenied), ann.schemas.exclusive("lake.sales.eu"):
        pass
    lake.store.owners.set(lake.schema, lake.store.users.load(("lake", ANN)))
    with ann.schemas.exclusive("lake.sales.eu") as tx:
        tx.tables.create("lake.sales.eu.frozen")
    assert lake.store.tables.load("lake.sales.eu.frozen").created_by == ANN


def test_an_owner_restores_in_its_place_and_needs_the_right_to_create_elsewhere(lake: Lake, ann: Store) -> None:
    role = lake.reader()
    lake.store.owners.set(lake.orders, lake.store.users.load(("lake", ANN)))
    lake.store.schemas.create("lake.sales.us")
    assert ann.tables.drop(lake.orders)
    assert ann.tables.restore("lake.sales.eu.orders").id == lake.orders.id
    assert ann.tables.drop(lake.orders)
    assert ann.tables.restore("lake.sales.eu.orders", to="again").path == "lake.sales.eu.again"
    assert ann.tables.drop(lake.orders)
    with pytest.raises(ms.PermissionDenied, match=r"needs create_table on lake\.sales\.us: no role"):
        ann.tables.restore("lake.sales.eu.again", id=lake.orders.id, to="lake.sales.us.orders")
    lake.grant(role, ("create_table", "schema", "lake.sales.us"))
    assert ann.tables.restore("lake.sales.eu.again", to="lake.sales.us.orders").id == lake.orders.id
    with ann.transaction() as tx:
        tx.tables.drop("lake.sales.us.orders")
        tx.tables.restore("lake.sales.us.orders")
    with pytest.raises(ms.PermissionDenied, match=r"must own lake\.sales\.eu or something above it: ann@corp owns"):
        ann.schemas.drop("lake.sales.eu")


def test_feed_history_and_what_was_dropped(lake: Lake, ann: Store) -> None:
    lake.reader()
    lake.store.tables.drop("lake.sales.eu.refunds")
    seen = {change.path_after or change.path_before for change in ann.changes()}
    assert {"lake.sales", "lake.sales.eu.orders", "lake.sales.eu.refunds"} <= seen
    assert not any("hr" in str(path) for path in seen)
    page = ann.changes_page(size=3)
    assert len(page.items) == 3
    assert not any("hr" in str(c.path_after) for c in ann.changes_page(size=100, under="lake").items)
    assert [v.action for v in ann.tables.history("lake.sales.eu.orders")] == ["create"]
    assert [t.name for t in ann.tables.dropped("lake.sales.eu")] == ["refunds"]
    with pytest.raises(ms.PermissionDenied):
        ann.tables.restore("lake.sales.eu.refunds")
    with pytest.raises(ms.EntityNotFound):
        list(ann.tables.dropped("lake.hr.people"))


def test_exports_are_for_owners(lake: Lake, ann: Store) -> None:
    lake.reader()
    for target in (None, "lake", "lake.sales", "lake.sales.eu.orders"):
        with pytest.raises(ms.PermissionDenied):
            ann.export_to(BytesIO(), target)
    with pytest.raises(ms.EntityNotFound):
        ann.export_to(BytesIO(), "lake.hr")
    lake.store.owners.set(lake.sales, lake.store.users.load(("lake", ANN)))
    file = BytesIO()
    ann.export_to(file, "lake.sales")
    assert b"orders" in file.getvalue()
    assert b"salaries" not in file.getvalue()


def test_upkeep_is_for_the_library(lake: Lake, ann: Store) -> None:
    for call in (ann.gc, ann.verify, ann.stats, lambda: ann.import_from(BytesIO()), lambda: ann.as_user("bob@corp")):
        with pytest.raises(ms.PermissionDenied):
            call()
    with pytest.raises(ms.InvalidArgument, match="principal"):
        ann.bind(principal="bob@corp")
    with pytest.raises(ms.InvalidArgument, match="principal"):
        ann.tables.drop("lake.sales.eu.orders", principal="bob@corp")
    with pytest.raises(ms.InvalidArgument, match="principal"):
        ann.transaction(principal="bob@corp")


def test_secrets_need_use_secret(lake: Lake, ann: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_TEST_TOKEN", "hunter2")
    lake.reader()
    lake.store.catalogs.alter(lake.sales, ms.SetProperty("token", ms.secret("env:METASTORE_TEST_TOKEN")))
    assert ann.catalogs.load("lake.sales").properties["token"] == "env:METASTORE_TEST_TOKEN"
    with pytest.raises(ms.PermissionDenied) as denied:
        ann.reveal("lake.sales", "token")
    assert denied.value.privilege == "use_secret"
    lake.role("secrets", ("use_secret", "catalog", "lake.sales"))
    assert ann.reveal("lake.sales", "token") == "hunter2"
    lake.store.owners.set(lake.sales, lake.store.users.load(("lake", ANN)))
    with pytest.raises(ms.PermissionDenied, match="METASTORE_SECRETS"):
        ann.catalogs.alter("lake.sales", ms.SetProperty("other", ms.secret("env:PATH")))
    with pytest.raises(ms.PermissionDenied, match="METASTORE_SECRETS"):
        ann.schemas.create("lake.sales.x", properties={"a": "secret:file:/etc/passwd"})
    monkeypatch.setenv("METASTORE_SECRETS", "env:METASTORE_TEST_* file:/run/secrets/*")
    ann.catalogs.alter("lake.sales", ms.SetProperty("other", ms.secret("env:METASTORE_TEST_TOKEN")))
    with pytest.raises(ms.PermissionDenied):
        ann.catalogs.alter("lake.sales", ms.SetProperty("a", ms.secret("file:/run/secrets/../../etc/passwd")))


def test_a_repeat_needs_the_same_user_and_its_rights(lake: Lake, ann: Store) -> None:
    role = lake.reader()
    lake.grant(role, ("create_table", "schema", "lake.sales.eu"))
    operation = ms.new_operation_id()
    made = ann.tables.create("lake.sales.eu.new", operation_id=operation)
    assert ann.tables.create("lake.sales.eu.new", operation_id=operation).id == made.id
    assert ann.outcome(operation) == lake.store.outcome(operation) == ms.Outcome("committed", made)
    with pytest.raises(ms.OperationIdReused):
        lake.store.tables.create("lake.sales.eu.new", operation_id=operation)
    bob = lake.store.as_user("bob@corp")
    assert bob.outcome(operation).state == "unknown"
    lake.reader(to="bob@corp")
    with pytest.raises(ms.OperationIdReused):
        bob.tables.create("lake.sales.eu.new", operation_id=operation)
    lake.store.roles.unassign(role, lake.store.users.load(("lake", ANN)))
    with pytest.raises(ms.EntityNotFound):
        ann.tables.create("lake.sales.eu.new", operation_id=operation)


def test_decisions_are_explained(lake: Lake, ann: Store) -> None:
    store = lake.store
    lake.reader()
    yes = store.allowed(ANN, "select_table", "lake.sales.eu.orders")
    assert yes.allowed
    assert yes.because[-1] == "the role reader allows select_table on lake.sales"
    no = store.allowed(ANN, "select_table", lake.salaries)
    assert not no
    assert no.because == ["no role of ann@corp allows use_catalog on lake.hr"]
    assert not store.allowed("nobody", "select_table", lake.orders)
    assert "tuple" in store.allowed(f"lake.{ANN}", "select_table", lake.orders).because[-1]  # a bare name, with a dot
    assert store.allowed(("lake", ANN), "select_table", "lake.sales.eu.orders", kind="table")
    assert store.allowed(store.users.load(("lake", ANN)), "select_table", lake.orders)
    assert ann.allowed(ANN, "select_table", lake.orders)
    with pytest.raises(ms.PermissionDenied):
        ann.allowed("bob@corp", "select_table", lake.orders)
    with pytest.raises(ms.EntityNotFound):
        ann.allowed(ANN, "select_table", lake.salaries)
    with pytest.raises(ms.InvalidArgument, match="no privilege"):
        store.allowed(ANN, "fly", lake.orders)
    with pytest.raises(ms.EntityNotFound):
        store.allowed(ANN, "select_table", "lake.sales.eu.nothing")


def test_a_privilege_that_can_never_count_is_not_granted(lake: Lake) -> None:
    role = lake.store.roles.create("lake.r")
    for word, on in (("select_tabel", lake.orders), ("create_catalog", lake.sales)):
        with pytest.raises(ms.InvalidArgument, match=word):
            lake.store.roles.grant(role, word, on)


def test_relations_are_checked(lake: Lake, ann: Store) -> None:
    store = lake.store
    lake.reader()
    tag, user = store.tags.create("lake.pii"), store.users.load(("lake", ANN))
    for call in (
        lambda: ann.tags.attach(lake.orders, "lake.pii"),
        lambda: ann.tags.load("lake.pii"),
        lambda: ann.roles.assign("lake.writer", user),
    ):
        with pytest.raises(ms.EntityNotFound):
            call()
    for refused in (
        lambda: ann.owners.set(lake.orders, user),
        lambda: ann.roles.grant("lake.reader", "modify_table", lake.orders),
        lambda: ann.roles.unassign("lake.reader", user),
        lambda: ann.tags.create("lake.other"),
    ):
        with pytest.raises(ms.PermissionDenied):
            refused()
    lake.role("tagger", ("apply_tag", "tag", "lake.pii"))
    ann.tags.attach(lake.orders, tag)
    assert [t.name for t in store.tags.on(lake.orders)] == ["pii"]
    with pytest.raises(ms.EntityNotFound):
        ann.tags.attach(lake.salaries, tag)
    store.tags.attach(lake.salaries, tag)
    assert [t.target_path for t in ann.tags.targets(tag)] == ["lake.sales.eu.orders"]
    hidden = store.tags.create("lake.hidden")
    store.tags.attach(lake.orders, hidden)
    assert [t.name for t in ann.tags.on(lake.orders)] == ["pii"]
    assert not store.verify()


@pytest.mark.parametrize("kind", ["user", "group"])
def test_who_manages_users_takes_over_nobody(lake: Lake, kind: str) -> None:
    """To rename oneself to an owner, or an owner to oneself, needs ownership of the metalake; by a restore too."""
    store, ann = lake.store, lake.store.as_user("ann@corp")
    lake.role("clerk", ("manage_users", "metalake", "lake"), ("manage_groups", "metalake", "lake"))
    manager, principals = store.manager(kind), ann.manager(kind)
    boss, mine = manager.create("lake.boss"), principals.create("lake.mine")
    for taken in (boss, mine):
        with pytest.raises(ms.PermissionDenied, match="must own"):
            principals.rename(taken, "other")
    if kind == "user":  # who has a user's external id signs in as that user
        with pytest.raises(ms.PermissionDenied, match="must own"):
            principals.alter(boss, ms.SetExternalId("mine"))
        with pytest.raises(ms.PermissionDenied, match="must own"):
            principals.create("lake.boss", external_id="mine", if_exists="replace")
        assert principals.create("lake.new", external_id="hers").external_id == "hers"
    assert manager.load(boss) == boss
    for taken in (boss, mine):
        principals.drop(taken)
        for name in ("lake.other", taken.path):
            with pytest.raises(ms.PermissionDenied, match="must own"):
                principals.restore(name, id=taken.id)
    store.manager(kind).restore("lake.boss", id=boss.id)
    assert principals.alter(boss, ms.SetComment("hers")).comment == "hers"

    store.owners.set("lake", ("lake", "ann@corp"), kind="metalake")
    assert principals.rename(boss, "chief").name == "chief"
    assert principals.alter(boss, ms.SetExternalId("hers")).external_id == "hers"
    principals.drop("lake.chief")
    assert principals.restore("lake.boss", id=boss.id).name == "boss"


def test_who_was_made_again_does_not_become_the_dropped_user(lake: Lake) -> None:
    """One commit that drops oneself and restores the earlier user of the name would give back all its rights."""
    store = lake.store
    old = store.users.load(("lake", "ann@corp"))
    store.owners.set("lake", old, kind="metalake")
    store.users.drop(old)
    new = store.users.create(("lake", "ann@corp"))
    store.roles.create("lake.clerk")
    store.roles.grant("lake.clerk", "manage_users", "lake", kind="metalake")
    store.roles.assign("lake.clerk", new)

    def become(tx: Any) -> None:
        tx.users.drop(new)
        tx.users.restore(("lake", "ann@corp"), id=old.id)

    with pytest.raises(ms.PermissionDenied, match="must own"):
        store.as_user("ann@corp").run(become)
    assert store.users.load(new) == new


def test_who_created_a_role_does_not_bring_back_its_rights(lake: Lake) -> None:
    """An operator ends the rights of a role by dropping it; its creator owns it, but not the metalake."""
    store, ann = lake.store, lake.store.as_user("ann@corp")
    lake.role("maker", ("create_role", "metalake", "lake"))
    role = ann.roles.create("lake.reader")
    lake.reader()
    assert ann.tables.exists("lake.sales.eu.orders")
    store.roles.drop(role)
    with pytest.raises(ms.PermissionDenied, match="must own"):
        ann.roles.restore("lake.reader")
    assert not ann.tables.exists("lake.sales.eu.orders")
    store.owners.set("lake", ("lake", "ann@corp"), kind="metalake")
    assert ann.roles.restore("lake.reader").id == role.id


def test_a_job_is_what_its_template_says(lake: Lake) -> None:
    """Who may run jobs runs those of templates that it sees, and no other command."""
    store, ann = lake.store, lake.store.as_user("ann@corp")
    lake.role("runner", ("run_job", "metalake", "lake"))
    template = store.job_templates.create("lake.t", type="shell", executable="echo", arguments=["{{what}}"])
    command = filled(template, {"what": "it"})

    def make(name: str, **fields: Any) -> Any:
        wanted: dict[str, Any] = {"template": "t", "command": command, "conf": {"what": "it"}} | fields
        return ann.jobs.create(("lake", name), **wanted)

    with pytest.raises(ms.EntityNotFound):
        make("unseen")
    lake.role("runner", ("use_job_template", "metalake", "lake"))
    job = make("job")
    evil = {**command, "executable": "/bin/rm"}
    row = {"name": "rows", "template": "t", "conf": {"what": "it"}}
    for wrong in (
        lambda: make("evil", command=evil),
        lambda: make("other", conf={"what": "other"}),
        lambda: make("spark", type="spark"),
        lambda: make("ran", status="succeeded"),
        lambda: make("elsewhere", execution_id="7"),
        lambda: make("job", command=evil, if_exists="replace"),
        lambda: ann.jobs.create_many("lake", [{**row, "command": evil}]),
        lambda: ann.jobs.create_many("lake", [{**row, "name": "job", "command": evil}], if_exists="replace"),
    ):
        with pytest.raises(ms.PermissionDenied, match="template"):
            wrong()
    with pytest.raises(ms.EntityNotFound):
        make("none", template="none")
    assert [one.name for one in store.jobs.list("lake")] == ["job"]
    assert dict(ann.jobs.load(job).command) == {**store.jobs.load(job).command}
    assert ann.jobs.cancel(job).status == "cancelled"


def test_a_string_is_a_bare_name(store: Store) -> None:
    """Back-quotes are a part of it: this name belongs to neither another user nor an admin."""
    prepare(store)
    for text in ("`ann@corp`", "lake.`ann@corp`"):
        ann = store.as_user(text)
        with pytest.raises(ms.EntityNotFound):
            ann.metalakes.load("lake")
        assert f"lake has no user {text}" in store.allowed(text, "use_catalog", "lake.sales").because[0]
    assert store.as_user(("lake", "ann@corp")).metalakes.load("lake")


def test_a_users_freeze_ends_within_a_minute(lake: Lake) -> None:
    ann = lake.store.as_user("ann@corp")
    lake.reader()
    lake.store.owners.set(lake.schema, ("lake", "ann@corp"))
    with pytest.raises(ms.InvalidArgument, match="at most 60 s"):
        ann.schemas.exclusive(lake.schema, ttl=61)
    with ann.schemas.exclusive(lake.schema, ttl=60) as tx:
        tx.tables.create("lake.sales.eu.made")


@pytest.mark.parametrize("hidden", [False, True], ids=["seen", "hidden"])
def test_the_right_is_asked_before_a_name_is_told(lake: Lake, hidden: bool) -> None:
    """Who may not create, rename or move to a place does not learn which names are taken there."""
    store, ann = lake.store, lake.store.as_user("ann@corp")
    words = [("use_catalog", "catalog", "lake.sales"), ("use_schema", "schema", "lake.sales.eu")]
    lake.role("way", *words, *([] if hidden else [("select_table", "schema", "lake.sales.eu")]))
    store.tables.create("lake.sales.eu.mine")
    lake.role("way", ("select_table", "table", "lake.sales.eu.mine"))
    for name in ("orders", "free"):
        for call in (
            ann.tables.create,
            lambda path: ann.tables.create(path.rpartition(".")[2], parent=lake.schema),
            lambda path: ann.tables.create_many(lake.schema, [{"name": path.rpartition(".")[2]}]),
            lambda path: ann.tables.rename("lake.sales.eu.mine", path),
        ):
            with pytest.raises(ms.PermissionDenied):
                call(f"lake.sales.eu.{name}")
            with pytest.raises(ms.PermissionDenied), ann.transaction() as tx:
                tx.tables.create(f"lake.sales.eu.{name}")
    lake.role("maker", ("create_table", "schema", "lake.sales.eu"))
    with pytest.raises(ms.EntityAlreadyExists):
        ann.tables.create("lake.sales.eu.orders")


def test_the_right_is_asked_before_a_version_is_told(lake: Lake) -> None:
    """Who sees something and may not do it is told that first, and its owner is told what else speaks against it."""
    store, old = lake.store, ms.SetProperty("p", "new", expected="another")
    store.schemas.create("lake.sales.us")
    models = store.models.create("lake.sales.eu.model")
    store.models.add_version(models, uris={"a": "b"}, properties={"p": "old"})
    lake.role(
        "reader",
        *[(word, "catalog", "lake.sales") for word in ("use_catalog", "use_schema", "select_table", "use_model")],
    )
    calls: list[tuple[str, Callable[[Any], object]]] = [
        ("version", lambda on: on.tables.drop("lake.sales.eu.orders", expected_version=9)),
        ("version", lambda on: on.tables.drop(lake.orders, expected_version=9)),
        ("version", lambda on: on.tables.rename(lake.orders, "new", expected_version=9)),
        ("version", lambda on: on.tables.rename(lake.orders, "refunds", expected_version=9)),
        ("version", lambda on: on.tables.rename(lake.orders, "lake.sales.us.new", expected_version=9)),
        ("version", lambda on: on.tables.alter(lake.orders, ms.SetComment("c"), expected_version=9)),
        ("version", lambda on: on.tables.alter("lake.sales.eu.orders", old)),
        ("version", lambda on: on.models.alter_version(models, 1, old)),
        ("content", lambda on: on.schemas.drop(lake.schema)),
        ("content", lambda on: on.tables.alter(lake.orders, ms.AddColumn("id", "long"))),
    ]
    why: dict[str, tuple[type[ms.MetastoreError], ...]] = {
        "version": (ms.VersionConflict,),
        "content": (ms.NotEmpty, ms.EntityAlreadyExists),
    }
    for name, allowed in (("ann@corp", False), ("bob@corp", True)):
        user = store.as_user(name)
        if allowed:
            store.owners.set(lake.sales, ("lake", name))
            lake.reader(to=name)
        for kind, call in calls:
            for run in (call, lambda on, call=call: on.run(call)):
                with pytest.raises(why[kind] if allowed else (ms.PermissionDenied,)):
                    run(user)
    assert store.verify() == []


def test_a_repeat_is_of_the_same_user_and_shows_what_it_sees_today(lake: Lake) -> None:
    store = lake.store
    ann, bob = store.as_user("ann@corp"), store.as_user("bob@corp")
    for name in ("ann@corp", "bob@corp"):
        lake.reader(name)
    lake.role("writer", ("modify_table", "catalog", "lake.sales"))
    lake.role("writer", to="bob@corp")
    ann.tables.alter(lake.orders, ms.SetComment("hers"))
    *_, change = store.changes()
    done = change.operation_id
    key = ms.new_operation_id()
    ann.partitions.create(lake.orders, "p=1", values={}, operation_id=key)

    def repeat(user: Store) -> list[Any]:
        return [
            user.tables.alter(lake.orders, ms.SetComment("hers"), operation_id=done).comment,
            user.partitions.create(lake.orders, "p=1", values={}, operation_id=key).name,
        ]

    assert repeat(ann) == ["hers", "p=1"]
    with pytest.raises(ms.OperationIdReused):
        bob.tables.alter(lake.orders, ms.SetComment("hers"), operation_id=done)
    with pytest.raises(ms.OperationIdReused):
        bob.partitions.create(lake.orders, "p=1", values={}, operation_id=key)
    store.roles.drop("lake.reader")
    store.roles.drop("lake.writer")
    with pytest.raises(ms.EntityNotFound):
        ann.tables.alter(lake.orders, ms.SetComment("hers"), operation_id=done)
    with pytest.raises(ms.EntityNotFound):
        ann.partitions.create(lake.orders, "p=1", values={}, operation_id=key)


def test_all_properties_can_be_written_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that the table already has may be written again, and no other."""
    monkeypatch.delenv("METASTORE_SECRETS", raising=False)
    store, ann = lake.store, lake.store.as_user("ann@corp")
    lake.reader()
    lake.role("writer", ("modify_table", "catalog", "lake.sales"), ("create_table", "catalog", "lake.sales"))
    store.tables.alter(lake.orders, ms.SetProperty("password", ms.secret("env:OTHER")))
    store.partitions.create(lake.orders, "p=1", values={}, properties={"token": ms.secret("env:TOKEN")})

    properties = {**ann.tables.load("lake.sales.eu.orders").properties, "n": "1"}
    changed = ann.tables.alter(lake.orders, *[ms.SetProperty(key, value) for key, value in properties.items()])
    assert changed.properties == properties
    replaced = ann.tables.create("lake.sales.eu.orders", properties=properties | {"n": "2"}, if_exists="replace")
    assert replaced.properties["password"] == "env:OTHER"
    row = ann.partitions.load(lake.orders, "p=1")
    again = ann.partitions.row("p=1", {}, {**row.properties, "n": "1"})
    assert ann.partitions.put_many(lake.orders, [again], ["p=1"])
    with pytest.raises(ms.PermissionDenied):
        ann.partitions.create(lake.orders, "p=2", values={}, properties=row.properties)
    for path in ("lake.sales.eu.refunds", "lake.sales.eu.orders"):
        with pytest.raises(ms.PermissionDenied):
            ann.tables.alter(path, ms.SetProperty("password", ms.secret("env:TOKEN")))
    with pytest.raises(ms.PermissionDenied):
        ann.tables.create("lake.sales.eu.copy", properties={"password": ms.secret("env:OTHER")})


def test_the_group_that_has_a_role_is_named(lake: Lake) -> None:
    store = lake.store
    role, group = store.roles.create("lake.seller"), store.groups.create("lake.sellers")
    lake.grant(role, ("use_catalog", "catalog", "lake.sales"))
    store.groups.add(group, ("lake", "ann@corp"))
    store.roles.assign(role, group)
    why = "the role seller{} allows use_catalog on lake.sales"
    assert store.allowed("ann@corp", "use_catalog", lake.sales).because[-1] == why.format(" of the group sellers")
    store.roles.assign(role, store.users.load(("lake", "ann@corp")))
    assert store.allowed("ann@corp", "use_catalog", lake.sales).because[-1] == why.format("")
