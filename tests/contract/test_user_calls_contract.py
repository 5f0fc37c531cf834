"""Each call of a user's view does what the table in docs/governance.md says: it obeys the rules, or is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.governance.seen import Seen
from metastore.kinds.entity import Entity
from metastore.managers.pages.page import TokenScope, write_token
from tests.contract import boards
from tests.contract.authorized import Lake, prepare
from tests.docs.examples import ROOT

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

HIDDEN = "lake.hr.people.salaries"


@pytest.fixture
def lake(store: Store) -> Lake:
    """Give the lake, in which ann reads sales, and something hidden has everything that an object can have."""
    made = prepare(store)
    made.reader()
    store.tags.create("lake.secret")
    store.tags.attach(made.salaries, "lake.secret")
    store.owners.set(made.salaries, ("lake", "bob@corp"))
    store.partitions.create(made.salaries, "p=1", values={})
    store.statistics.set(made.salaries, {"custom-rows": 5})
    store.tables.alter(made.salaries, ms.SetComment("hidden"))
    return made


@pytest.fixture
def ann(lake: Lake) -> Store:
    """Give the store as ann may use it."""
    return lake.store.as_user("ann@corp")


def _table() -> dict[str, str]:
    """Return what the table says of each public name of a store."""
    text = (ROOT / "docs" / "governance.md").read_text(encoding="utf-8")
    lines = text[text.index("| calls | for a user |") :].split("\n\n")[0].splitlines()[2:]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return {name: says for names, says in cells for name in re.findall(r"`(\w+)`", names)}


def test_the_table_has_every_call() -> None:
    with ms.open("memory://") as store:
        assert set(_table()) == {name for name in dir(store) if not name.startswith("_")}


REFUSED: dict[str, list[Callable[[Store], Any]]] = {
    "as_user": [lambda s: s.as_user("bob@corp")],
    "backup": [lambda s: s.backup("x")],
    "import_from": [lambda s: s.import_from(BytesIO())],
    "gc": [lambda s: s.gc()],
    "verify": [lambda s: s.verify()],
    "stats": [lambda s: s.stats()],
    "losses": [lambda s: s.losses()],
    "secrets": [lambda s: s.secrets.rotate(), lambda s: s.secrets.scrub()],
    "leases": [
        lambda s: s.leases.acquire("x"),
        lambda s: s.leases.break_("x"),
        lambda s: s.leases.holder("x"),
        lambda s: s.leases.close(),
        lambda s: s.leases.staging,
        lambda s: s.bind(deadline=1.0).leases.acquire("x"),
    ],
    "at": [lambda s: s.at(datetime.now(UTC))],
    "replica": [lambda s: s.replica()],
    "position": [lambda s: s.position()],
    "diff": [lambda s: s.diff("x")],
    "revert": [lambda s: s.revert("lake.sales", to="x"), lambda s: s.revert("lake", to="x", dry_run=True)],
    "pin": [lambda s: s.pin("x")],
    "pins": [lambda s: s.pins()],
    "unpin": [lambda s: s.unpin("x")],
    "consumers": [lambda s: s.consumers.list(), lambda s: s.consumers.get("x"), lambda s: s.consumers.drop("x")],
}


def test_what_is_refused_is_in_the_table() -> None:
    assert {name for name, says in _table().items() if says.startswith("refused")} == set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(ann: Store, name: str) -> None:
    for call in REFUSED[name]:
        with pytest.raises((ms.PermissionDenied, ms.InvalidArgument)):
            call(ann)


def _shows_nothing(call: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
    """Whether a call shows nothing of what it names."""
    try:
        found = call(*arguments, **options)
        return not (list(found) if isinstance(found, Iterator) else found)
    except ms.EntityNotFound as error:
        return "hidden" not in str(error) and "salaries" not in str(error.missing or "")


def test_rows_relations_and_searches_show_nothing_hidden(lake: Lake, ann: Store) -> None:
    for target in (HIDDEN, lake.salaries):
        kind = {} if isinstance(target, Entity) else {"kind": "table"}
        rows = (ann.partitions.list, ann.partitions.names, ann.tables.history, ann.tables.load, ann.tables.drop)
        assert [_shows_nothing(call, target) for call in rows] == [True] * 5
        about = (ann.statistics.of, ann.tags.on, ann.owners.of)
        assert [_shows_nothing(call, target, **kind) for call in about] == [True] * 3
        assert _shows_nothing(ann.tables.load, target, version=1)
    assert _shows_nothing(ann.tags.targets, "lake.secret")
    assert _shows_nothing(ann.owners.owned_by, ("lake", "bob@corp"))
    assert not list(ann.find(name="salar*"))
    assert not list(ann.find(kind="user", name="bob*"))
    with pytest.raises(ms.EntityNotFound):
        list(ann.find("lake.hr"))


def test_a_search_does_not_look_below_what_is_hidden(lake: Lake, ann: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user does not see may be most of a store."""
    looked: list[int] = []
    find = Seen.find

    def spied(backend: Any, search: Any) -> Any:
        looked.extend([search.parent, *search.parents])
        return find(backend, search)

    monkeypatch.setattr(Seen, "find", spied)
    assert "lake.sales.eu.orders" in {one.path for one in ann.find("lake", kind="table")}
    assert lake.store.catalogs.load("lake.sales").id in looked
    assert lake.hr.id not in looked
    assert lake.store.schemas.load("lake.hr.people").id not in looked


def test_a_search_looks_below_a_declared_container_that_is_hidden(lake: Lake, ann: Store) -> None:
    """The rules ask for a right to each catalog and schema above an object, to no other container."""
    lake.store.manager(boards.BOARD.name).create("lake.sales.eu.b", owner="bob")
    lake.store.manager(boards.NOTE.name).create("lake.sales.eu.b.n")
    assert not ann.manager("note").exists("lake.sales.eu.b.n")
    lake.role("reader", ("select_note", "catalog", "lake.sales"))
    assert ann.manager("note").load("lake.sales.eu.b.n").path == "lake.sales.eu.b.n"
    assert not ann.manager("board").exists("lake.sales.eu.b")
    for under in ("lake", "lake.sales.eu"):
        assert [one.path for one in ann.find(under, kind="note")] == ["lake.sales.eu.b.n"]
        assert [one.path for one in ann.find(under, name="n")] == ["lake.sales.eu.b.n"]


def test_the_feed_shows_nothing_hidden(lake: Lake, ann: Store) -> None:
    paths = {change.path_after for change in ann.changes()} | {c.path_after for c in ann.changes_page(size=500).items}
    assert "lake.sales.eu.orders" in paths
    assert not [path for path in paths if path and ("hr" in path or "bob" in path or "secret" in path)]
    assert not list(ann.changes(under=lake.hr, timeout=0.01))


def test_the_feed_names_no_other_end_that_is_hidden(lake: Lake, ann: Store) -> None:
    """Whoever sees a table does not see who owns it, or what is attached to it, unless it sees that too."""
    lake.store.tags.create("lake.shown")
    lake.grant(lake.store.roles.load(("lake", "reader")), ("apply_tag", "tag", "lake.shown"))
    lake.store.owners.set(lake.orders, ("lake", "bob@corp"))
    for tag in ("lake.secret", "lake.shown"):
        lake.store.tags.attach(lake.orders, tag)
    changes = [change for change in (*ann.changes(), *ann.changes_page(size=500).items) if change.other_path]
    orders = [change for change in changes if change.path_after == "lake.sales.eu.orders"]
    assert [change.other_path for change in orders] == ["lake.shown"] * 2
    assert not [change for change in changes if "bob" in str(change) or "secret" in str(change)]


def test_a_token_with_another_id_shows_nothing_more(lake: Lake, ann: Store) -> None:
    """A client can make tokens: the epoch that signs them is in every position."""
    epoch = lake.store._session.epoch()
    history = write_token(TokenScope("history", "table"), epoch, lake.salaries.id, [0])
    assert _shows_nothing(lambda: ann.tables.history_page("lake.sales.eu.nothing", token=history).items)
    schema = lake.store.schemas.load("lake.hr.people")
    children = write_token(TokenScope("children", "table"), epoch, schema.id, ["", 0])
    assert _shows_nothing(lambda: ann.tables.page("lake.sales.nothing", token=children).items)


def test_a_lease_of_the_service_serves_a_user(lake: Lake, ann: Store) -> None:
    with lake.store.leases.acquire("job") as lease:
        lake.role("writer", ("modify_table", "schema", "lake.sales.eu"))
        assert ann.tables.alter("lake.sales.eu.orders", ms.SetComment("x"), lease=lease).comment == "x"
    with pytest.raises(ms.LeaseLost):
        ann.tables.alter("lake.sales.eu.orders", ms.SetComment("y"), lease=lease)
    assert lake.store.verify() == []


def test_figures_of_the_process_name_nothing(lake: Lake, ann: Store) -> None:
    ann.ping()
    with pytest.raises(ms.EntityNotFound):
        ann.tables.load(HIDDEN)
    assert "salaries" not in f"{ann.counters}{ann.metrics()}{ann.cache.stats()}"
    ann.close()
    assert lake.store.tables.exists(HIDDEN)


def test_a_user_asks_about_itself(lake: Lake, ann: Store) -> None:
    assert ann.allowed("ann@corp", "select_table", lake.orders)
    with pytest.raises(ms.PermissionDenied):
        ann.allowed("bob@corp", "select_table", lake.orders)
    with pytest.raises(ms.EntityNotFound):
        ann.allowed("ann@corp", "select_table", lake.salaries)


def test_a_transaction_and_its_caught_errors(lake: Lake, ann: Store) -> None:
    with ann.transaction() as tx:
        with pytest.raises(ms.EntityNotFound):
            tx.tables.load(HIDDEN)
        with pytest.raises(ms.EntityNotFound):
            tx.tables.alter(lake.salaries, ms.SetComment("x"))
        with pytest.raises(ms.PermissionDenied):
            tx.tables.alter(lake.orders, ms.SetComment("x"))
        assert not tx.tables.drop(lake.salaries)
        assert tx.tables.load(lake.orders).comment is None
    assert lake.store.tables.load(HIDDEN).comment == "hidden"

    def after_an_error(tx: Any) -> int:
        with pytest.raises(ms.PermissionDenied):
            tx.tables.create("lake.sales.eu.mine")
        return len(list(tx.tables.list("lake.sales.eu")))

    assert ann.run(after_an_error) == 2


def test_a_transaction_lists_and_takes_names_beside_hidden_ones(lake: Lake, ann: Store) -> None:
    lake.role("maker", *[(f"create_{what}", "catalog", "lake.sales") for what in ("table", "schema")])
    lake.role("not all", ("select_table", "table", "lake.sales.eu.refunds"), deny=True)

    def both(tx: Any) -> list[str]:
        with pytest.raises(ms.EntityAlreadyExists):
            tx.tables.create("lake.sales.eu.refunds")
        tx.tables.create("lake.sales.us.mine", parents=True)
        assert [table.name for table in tx.tables.list("lake.sales.us")] == ["mine"]
        with pytest.raises(ms.EntityNotFound):
            tx.tables.load("lake.sales.eu.refunds")
        assert list(tx.catalogs.names("lake")) == ["sales"]
        return [*tx.tables.names("lake.sales.eu"), *[table.name for table in tx.tables.list("lake.sales.eu")]]

    assert ann.run(both) == ["orders", "orders"]
    assert ann.tables.exists("lake.sales.us.mine")
    assert lake.store.verify() == []


def test_an_error_of_a_run_rests_on_the_rights_of_one_instant(lake: Lake, ann: Store) -> None:
    """A user sees one of two tables at each instant; a function that sees each before and after the swap runs again."""
    store, runs, user = lake.store, list[tuple[bool, bool]](), lake.store.users.load(("lake", "ann@corp"))
    denied = ("select_table", "table", "lake.sales.eu.orders"), ("select_table", "table", "lake.sales.eu.refunds")
    no_orders, no_refunds = (lake.role(on, (word, kind, on), deny=True) for word, kind, on in denied)
    store.roles.unassign(no_orders, user)

    def swap(tx: Any) -> None:
        tx.roles.unassign(no_refunds, user)
        tx.roles.assign(no_orders, user)

    def look(tx: Any) -> None:
        before = tx.tables.exists("lake.sales.eu.orders")
        if not runs:
            store.run(swap)
        runs.append((before, tx.tables.exists("lake.sales.eu.refunds")))
        raise KeyError(runs[-1])

    with pytest.raises(KeyError):
        ann.run(look)
    assert runs == [(True, True), (False, True)]


def test_a_conflict_names_nothing_hidden(lake: Lake, ann: Store) -> None:
    with pytest.raises(ms.VersionConflict) as caught, ann.transaction() as tx:  # noqa: PT012
        tx.tables.exists(HIDDEN)
        lake.store.tables.alter(HIDDEN, ms.SetComment("new"), principal="bob@corp")
    assert "salaries" not in str(caught.value)
    assert "bob" not in str(caught.value)
    with pytest.raises(ms.VersionConflict) as caught, ann.transaction() as tx:  # noqa: PT012
        tx.tables.load("lake.sales.eu.orders")
        lake.store.tables.alter("lake.sales.eu.orders", ms.SetComment("new"), principal="bob@corp")
    assert "orders was expected at version 1 and is at version 2 by bob@corp" in str(caught.value)
