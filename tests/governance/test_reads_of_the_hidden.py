"""What a user is told of what it does not see any more: typed errors, at once, and nothing of what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.authorized import Lake, prepare
from tests.governance.test_read_after_revoked import Between

ANN = ("lake", "ann@corp")
T = "lake.sales.eu.orders"


@pytest.fixture
def lake() -> Iterator[Lake]:
    """Give the lake, which ann sees by one role."""
    with ms.open("memory://", admins=("root@corp",)) as store:
        made = prepare(store)
        role = made.reader()
        made.grant(role, ("modify_table", "catalog", "lake.sales"))
        yield made


WRITES: dict[str, Callable[[Store], Any]] = {
    "alter": lambda ann: ann.tables.alter(T, ms.SetComment("x")),
    "rename": lambda ann: ann.tables.rename(T, "x"),
    "move": lambda ann: ann.tables.rename(T, "lake.sales.us.x"),
    "drop": lambda ann: ann.tables.drop(T),
    "purge": lambda ann: ann.tables.purge(T),
    "create": lambda ann: ann.tables.create("lake.sales.eu.new"),
    "create_many": lambda ann: ann.tables.create_many("lake.sales.eu", [{"name": "x"}]),
    "restore": lambda ann: ann.tables.restore(T),
    "statistics": lambda ann: ann.statistics.set(T, {"custom-x": 1}),
    "partition": lambda ann: ann.partitions.create(T, "p", values={}),
    "tag": lambda ann: ann.tags.attach(T, "lake.tag", kind="table"),
    "begin_drop": lambda ann: ann.tables.begin_drop(T),
    "transaction": lambda ann: ann.run(lambda tx: tx.tables.alter(T, ms.SetComment("x"))),
}


@pytest.mark.parametrize("known", ["lake.sales", "lake.sales.eu", None])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_by_path_after_a_revocation_ends(lake: Lake, write: str, known: str | None) -> None:
    """What is above is remembered as seen; what the path leads to is not remembered, so that its rights are read."""
    ann = lake.store.as_user("ann@corp")
    lake.store.schemas.create("lake.sales.us")
    if known is not None:
        ann.manager("schema" if known.endswith("eu") else "catalog").load(known)
    lake.store.roles.unassign("lake.reader", lake.store.users.load(ANN))
    ann._session.backend._base = between = Between(ann._session.backend._base)  # type: ignore[attr-defined]
    between.let_go_first(-1, lambda: None)
    with suppress(ms.EntityNotFound, ms.PermissionDenied):
        assert not WRITES[write](ann)
    assert between.asked < 40
    assert lake.store.tables.load(T).version == 1


def _hide(lake: Lake) -> None:
    lake.store.roles.unassign("lake.reader", lake.store.users.load(ANN))


RESULTS: dict[str, Callable[[Store, Any], object]] = {
    "alter": lambda ann, op: ann.tables.alter(T, ms.SetComment("mine"), operation_id=op),
    "an alter that changes nothing": lambda ann, op: ann.tables.alter(T, operation_id=op),
    "partition": lambda ann, op: ann.partitions.create(T, "p", values={}, operation_id=op),
    "tag": lambda ann, op: ann.tags.attach(T, "lake.tag", kind="table", operation_id=op),
    "a tag that is there": lambda ann, op: ann.tags.attach(T, "lake.other", value="1", kind="table", operation_id=op),
}


@pytest.mark.parametrize("write", RESULTS)
def test_an_outcome_shows_nothing_that_is_hidden_by_now(lake: Lake, write: str) -> None:
    store, operation = lake.store, ms.new_operation_id()
    store.tags.create("lake.tag")
    store.tags.create("lake.other")
    store.tags.attach(T, "lake.other", value="1", kind="table")
    lake.role("tagger", ("apply_tag", "metalake", "lake"))
    ann = store.as_user("ann@corp")
    RESULTS[write](ann, operation)
    assert ann.outcome(operation) == store.outcome(operation)
    assert ann.outcome(operation).result.id
    _hide(lake)
    assert ann.outcome(operation) == ms.Outcome("unknown")
    assert store.outcome(operation).state == "committed"


@pytest.mark.parametrize("above", ["lake.sales.{}", "lake.{}", "{}"])
def test_a_restore_does_not_tell_that_a_hidden_container_exists(lake: Lake, above: str) -> None:
    store = lake.store
    store.metalakes.create("hidden")
    store.catalogs.create("lake.hidden", type="relational")
    store.schemas.create("lake.sales.hidden")
    lake.role("denied", ("use_schema", "schema", "lake.sales.hidden"), deny=True)
    kind = ("catalog", "schema", "table")[above.count(".")]
    ann, told = store.as_user("ann@corp"), []
    for name in ("hidden", "nothing"):
        with pytest.raises(ms.EntityNotFound) as caught:
            ann.manager(kind).restore(f"{above.format(name)}.x")
        told.append(str(caught.value.to_dict()).replace(name, "it"))
    assert told[0] == told[1]


def test_an_outcome_of_several_entities_needs_all_of_them(lake: Lake) -> None:
    store, operation = lake.store, ms.new_operation_id()
    role = lake.role("second", ("select_table", "table", T), ("use_catalog", "catalog", "lake.sales"))
    lake.grant(role, ("use_schema", "schema", "lake.sales.eu"))
    ann = store.as_user("ann@corp")
    with ann.transaction(operation_id=operation) as tx:
        for name in ("orders", "refunds"):
            tx.tables.alter(f"lake.sales.eu.{name}", ms.SetComment("mine"))
    assert len(ann.outcome(operation).result) == 2
    _hide(lake)
    assert ann.tables.exists(T)
    assert ann.outcome(operation) == ms.Outcome("unknown")


def test_a_metalakes_user_with_the_name_of_an_admin_is_no_admin(lake: Lake) -> None:
    store = lake.store
    assert store.allowed("root@corp", "create_catalog", "lake")
    assert not store.allowed(("lake", "root@corp"), "create_catalog", "lake")
    user = store.users.create(("lake", "root@corp"))
    assert not store.allowed(user, "create_catalog", "lake")
    assert not store.allowed(("lake", "root@corp"), "create_catalog", "lake")


@pytest.mark.parametrize(
    ("word", "on", "needs"),
    [
        ("create_table", "lake.sales.eu", "use_schema"),
        ("create_schema", "lake.sales", "use_catalog"),
        ("modify_table", "lake.sales", "use_catalog"),
    ],
)
def test_what_is_done_below_a_container_needs_its_use(lake: Lake, word: str, on: str, needs: str) -> None:
    store = lake.store
    _hide(lake)
    if on.count(".") == 2:
        lake.role("way", ("use_catalog", "catalog", "lake.sales"))
    kind = "schema" if on.count(".") == 2 else "catalog"
    lake.role("maker", (word, kind, on))
    decision = store.allowed(ANN, word, on, kind=kind)
    assert not decision
    assert decision.because == [f"no role of ann@corp allows {needs} on {on}"]
    lake.role("user", (needs, kind, on))
    assert store.allowed(ANN, word, on, kind=kind)


def test_a_user_asks_about_itself_in_one_metalake(lake: Lake) -> None:
    store = lake.store
    store.metalakes.create("other")
    store.users.create(("other", "ann@corp"))
    of_lake, any_of = store.as_user(ANN), store.as_user("ann@corp")
    assert any_of.allowed(ANN, "select_table", T, kind="table")
    assert of_lake.allowed("ann@corp", "select_table", T, kind="table")
    assert not any_of.allowed(("other", "ann@corp"), "select_table", T, kind="table")
    assert not of_lake.allowed(("other", "ann@corp"), "select_table", T, kind="table")


def test_who_loses_the_right_to_a_scope_is_not_told_that_it_was_dropped(lake: Lake) -> None:
    ann = lake.store.as_user("ann@corp")
    found, schema = ann.find("lake.sales.eu"), ann.schemas.load("lake.sales.eu")
    assert next(found)
    _hide(lake)
    calls: list[Callable[[], Iterator[Any]]] = [lambda: found, lambda: ann.find(schema)]
    for call in calls:
        with pytest.raises(ms.EntityNotFound, match="is not there any more") as caught:
            list(call())
        assert "dropped" not in str(caught.value)


def test_the_group_through_which_a_role_comes_is_named(lake: Lake) -> None:
    store = lake.store
    group = store.groups.create("lake.readers")
    store.groups.add(group, ANN)
    store.roles.assign("lake.reader", group)
    itself = "the role reader allows select_table on lake.sales"
    assert store.allowed(ANN, "select_table", T).because[-1] == itself
    _hide(lake)
    through = "the role reader of the group readers allows select_table on lake.sales"
    assert store.allowed(ANN, "select_table", T).because[-1] == through
    store.roles.grant("lake.reader", "modify_table", "lake.sales", kind="catalog", effect="deny")
    with pytest.raises(ms.PermissionDenied, match="the role reader of the group readers denies modify_table"):
        store.as_user("ann@corp").tables.alter(T, ms.SetComment("x"))
