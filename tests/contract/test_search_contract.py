"""``store.find``: what it finds is what a plain look at everything finds, whatever is renamed or dropped meanwhile."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.registry import KINDS
from metastore.names import fold
from metastore.port.backend import Backend
from tests.contract import boards
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

NAMES = ["orders", "orders_eu", "orders%", "orders[1]", "new orders", "Orders", "o", "ördersé", "a.b", "ord\\er", "z"]
GLOBS = [
    *("*", "orders", "orders*", "*orders", "*orders*", "o?ders", "o*", "?", "??", "orders%", "orders_*", "orders[1]"),
    *(
        "[o]*",
        "ö*",
        "a.b",
        "ord\\er",
        "ord\\*",
        "",
        "**",
        "*?*",
        "no such name",
        "orders?*",
        "\U0010ffff*",
        "z*",
        "Ord*",
    ),
]


@pytest.fixture
def tree(ground: Ground) -> Ground:
    """Give containers of several depths, with tables, views and boards of many names; some dropped."""
    store = ground.store
    for path in ("m.c.two", "m.c.two.deep", "m.c.two.deep.deeper", "m.c.orders"):
        store.schemas.create(path, if_exists="return")
        rows = [{"name": n, "properties": {"team": path[-1], "n": n}} for n in NAMES]
        store.tables.create_many(path, rows)
        store.views.create(f"{path}.orders_view")
    board = store.manager(boards.BOARD.name).create("m.c.two.orders_board", owner="ada")
    store.manager("note").create("m.c.two.orders_board.orders_note")
    assert board.kind == "board"
    store.metalakes.create("orders")
    assert store.tables.drop("m.c.two.z")
    assert store.schemas.drop("m.c.two.deep.deeper", cascade=True)
    return ground


def _all(store: ms.Store) -> list[Any]:
    """Return every live entity, looked for without ``find``."""

    def below(parent: Any) -> Iterator[Any]:
        for name, kind in KINDS.items():
            if (parent is None and not kind.parents) or (parent is not None and parent.kind in kind.parents):
                for child in store.manager(name).list(parent):
                    yield child
                    if kind.container:
                        yield from below(child)

    return list(below(None))


def _like(glob: str, name: str, folded: bool) -> bool:
    glob, name = (fold(glob), fold(name)) if folded else (glob, name)
    return re.fullmatch(re.escape(glob).replace(r"\*", ".*").replace(r"\?", "."), name) is not None


def _expected(every: list[Any], glob: str | None, **wanted: Any) -> set[Any]:
    folding = wanted.get("folding")
    found = [e for e in every if _like("*" if glob is None else glob, e.name, e.names[:-1][:2] == folding)]
    if wanted.get("under") is not None:
        found = [e for e in found if e.names != (u := wanted["under"]) and e.names[: len(u)] == u]
    if wanted.get("kind") is not None:
        found = [e for e in found if e.kind == wanted["kind"]]
    if not wanted.get("recursive", True):
        depth = len(wanted.get("under") or ()) + 1
        found = [e for e in found if len(e.names) == depth]
    pairs = wanted.get("properties") or {}
    return {(e.kind, e.path, e.id, e.version) for e in found if pairs.items() <= e.properties.items()}


def _seen(found: Iterator[Any]) -> set[Any]:
    every = [(e.kind, e.path, e.id, e.version) for e in found]
    assert len(every) == len(set(every))
    return set(every)


SCOPES = [None, "m", "m.c", "m.c.two", "m.c.two.deep", "m.c.old2", "orders", "m.c.two.orders_board"]


@pytest.fixture(params=[3, 500], ids=["small pages", "usual pages"])
def _pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metastore.managers.find._PAGE", request.param)


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("_pages")
def test_it_finds_what_is_there(tree: Ground) -> None:
    store = tree.store
    store.schemas.create("m.c.old2")
    every = _all(store)
    assert len(every) > 40
    for scope in SCOPES:
        under = None if scope is None else tuple(scope.split("."))
        for glob in GLOBS:
            assert _seen(store.find(scope, name=glob)) == _expected(every, glob, under=under), (scope, glob)
        for kind in (None, "table", "schema", "board", "note", "metalake"):
            for recursive in (True, False):
                for name in (None, "orders*", "*s"):
                    found = _seen(store.find(scope, kind=kind, name=name, recursive=recursive))
                    assert found == _expected(every, name, under=under, kind=kind, recursive=recursive)
    for properties in ({"team": "o"}, {"team": "p", "n": "orders"}, {"n": "none"}, {}):
        for name in (None, "orders*"):
            found = _seen(store.find("m.c", name=name, properties=properties))
            assert found == _expected(every, name, under=("m", "c"), properties=properties)


@pytest.mark.usefixtures("_pages")
def test_below_a_catalog_that_folds_case_names_are_compared_without_it(ground: Ground) -> None:
    """The catalog's own name is compared exactly: its metalake does not fold."""
    store = ground.store
    store.catalogs.create("m.Fold", type="relational", fold_case=True)
    for schema in ("m.Fold.S", "m.Fold.S.Deep", "m.c.exact"):
        store.schemas.create(schema)
        store.tables.create_many(schema, [{"name": name} for name in ("Orders", "ORDERS_eu", "Straße", "S", "z")])
    store.tables.create("m.c.exact.orders")
    every = _all(store)
    for scope in (None, "m", "m.Fold", "m.Fold.s", "m.Fold.S.deep", "m.c"):
        under = None if scope is None else next(e.names for e in every if e.path.lower() == scope.lower())
        for glob in ("orders", "ORD*", "o?ders", "*S", "s", "strasse", "STRAßE*", "fold", "F*", "*", "exact"):
            for recursive in (True, False):
                wanted = _expected(every, glob, under=under, recursive=recursive, folding=("m", "Fold"))
                assert _seen(store.find(scope, name=glob, recursive=recursive)) == wanted, (scope, glob)
    assert len(_seen(store.find(name="orders"))) == 3


def test_what_is_found_is_the_entity(tree: Ground) -> None:
    (one,) = tree.store.find("m.c.two", name="orders_eu", recursive=False)
    assert one == tree.store.tables.load("m.c.two.orders_eu")
    assert isinstance(one, ms.Table)
    changed = tree.store.tables.alter(one, ms.SetComment("found"))
    assert changed.version == 2
    (again,) = tree.store.find(tree.two, name="orders_eu", recursive=False)
    assert again == changed


def test_an_entity_in_hand_is_meant_by_its_id(tree: Ground) -> None:
    store = tree.store
    moved = store.schemas.rename("m.c.two", "moved")
    found = {e.path for e in store.find(tree.two, name="orders", kind="table")}
    assert found == {"m.c.moved.orders", "m.c.moved.deep.orders"}
    with pytest.raises(ms.EntityNotFound):
        store.find("m.c.two", name="orders")
    assert store.schemas.drop(moved, cascade=True)
    with pytest.raises(ms.EntityNotFound):
        store.find(tree.two, name="orders")
    assert {e.path for e in store.find(name="orders", kind="table")} == {"m.c.orders.orders"}


def test_an_entity_of_another_database_is_refused(tree: Ground) -> None:
    """Its id and its path mean something else here."""
    with ms.open("memory://") as other:
        foreign = other.metalakes.create("m")
    with pytest.raises(ms.InvalidArgument, match="of another database"):
        tree.store.find(foreign)
    with pytest.raises(ms.InvalidArgument, match="of another database"):
        tree.store.changes_page(under=foreign)


def test_a_scope_that_is_dropped_midway_raises(tree: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metastore.managers.find._PAGE", 2)
    for glob in ("*", "o*"):
        store, scope = tree.store, tree.store.schemas.load("m.c.two")
        found = store.find("m.c.two", name=glob)
        next(found)
        assert store.schemas.drop("m.c.two", cascade=True)
        with pytest.raises(ms.EntityNotFound, match="is not there any more"):
            list(found)
        store.schemas.restore("m.c.two", id=scope.id)


@pytest.mark.each_run_on("memory")
@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "tabel"}, {"kind": 5}, {"name": 5}, {"name": "a\x00"}, {"name": "\ud800"}, {"properties": ["a"]},
        {"name": "*a" * 30_000},
        {"properties": {"a": 1}}, {"recursive": "yes"}, {"under": 5}, {"kind": "partition"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_at_once(tree: Ground, wrong: dict[str, Any]) -> None:
    with pytest.raises(ms.InvalidArgument):
        tree.store.find(**wrong)


@pytest.mark.parametrize("under", ["m.c.none", "none", "m.c.one.t"])
def test_what_is_no_container_is_not_found(tree: Ground, under: str) -> None:
    with pytest.raises(ms.EntityNotFound):
        tree.store.find(under)


def test_while_others_rename_and_drop(tree: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays is found exactly once; a schema that moves between two places is never seen with another's path."""
    monkeypatch.setattr("metastore.managers.find._PAGE", 4)
    store = tree.store
    done = threading.Event()
    failed: list[ms.MetastoreError] = []

    def disturb() -> None:
        try:
            while not done.is_set():
                store.schemas.rename("m.c.two.deep", "m.c.orders.deep")
                store.tables.drop("m.c.orders.deep.orders")
                store.tables.restore("m.c.orders.deep.orders")
                store.schemas.rename("m.c.orders.deep", "m.c.two.deep")
        except ms.MetastoreError as error:
            failed.append(error)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for glob in ("orders*", "*orders*") * 3:
            found = [e.path for e in store.find("m.c", name=glob, kind="table")]
            for stays in ("m.c.two.", "m.c.orders."):
                there = [p for p in found if p.startswith(stays) and ".deep." not in p]
                expected = [n for n in NAMES if re.fullmatch(glob.replace("*", ".*"), n)]
                assert sorted(there) == sorted(f"{stays}{n}" for n in expected)
            assert {p.rpartition(".deep.")[0] for p in found if ".deep." in p} <= {"m.c.two", "m.c.orders"}
    finally:
        done.set()
        thread.join()
    assert not failed


@pytest.mark.parametrize("chosen", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_prefix_is_looked_up_in_the_index(chosen: str, request: pytest.FixtureRequest) -> None:
    """Whatever the tree's size: one scan of a part of the index of names, and look-ups by id."""
    with ms.open(request.getfixturevalue(f"{chosen}_url")) as store:
        backend: Any = store._session.backend
        for by_name, index in ((True, "guard_name"), (False, "guard_live_name")):
            plan = _plan(backend, chosen, by_name)
            assert index in plan
            assert "Seq Scan on guard" not in plan
            assert "SCAN g" not in plan


def _plan(backend: Backend, chosen: str, by_name: bool) -> str:
    asked: dict[str, Any] = {"scope": 0, "kind": "", "parent": -1, "page_size": 5, "fragment": "", "most": 5}
    asked |= {"before": "p", "after_name": "o", "after_id": -1} if by_name else {"after_family": "", "after_key": ""}
    port: Any = backend
    text = port.sql.by_name if by_name else port.sql.by_parent
    if chosen == "sqlite":
        rows = port._rows(f"EXPLAIN QUERY PLAN {text}", asked | {"pattern": "o*", "folded": "o*"})
    else:
        rows = port._rows(f"EXPLAIN {text}", asked | {"pattern": "o%", "folded": "o%"})
    return "\n".join(str(row[-1]) for row in rows)


@pytest.mark.parametrize("page", [2, 5, 17])
def test_containers_of_any_size_share_statements(ground: Ground, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """Many small ones, and large ones among them, of which a statement for several says that there is more."""
    store = ground.store
    sizes = [0, 0, 1, 0, 40, 1, 2, 5, 0, 17, 16, 0, 0, 1, 3]
    store.schemas.create_many("m.c", [{"name": f"s{n:02}"} for n in range(len(sizes))])
    for n, size in enumerate(sizes):
        store.tables.create_many(f"m.c.s{n:02}", [{"name": f"t{m:02}"} for m in range(size)])
    monkeypatch.setattr("metastore.managers.find._PAGE", page)
    for kind, glob in [("table", "*"), ("table", "t1*"), (None, "*0"), ("schema", "*"), ("view", "*")]:
        found = [one.path for one in store.find("m.c", kind=kind, name=glob)]
        pattern = re.compile(glob.replace("*", ".*"))
        fits = [o.path for o in _all(store) if kind in (None, o.kind) and pattern.fullmatch(o.name)]
        assert sorted(found) == sorted(path for path in fits if path.startswith("m.c."))
