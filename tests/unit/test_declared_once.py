"""A field, or an option, is declared once: signatures, help and type checkers say what the declarations say."""

from __future__ import annotations

import inspect
import json
import pydoc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import metastore as ms
from metastore.kinds.entity import Entity
from metastore.kinds.field import REQUIRED, DocField, doc_field
from metastore.kinds.kind import Kind
from metastore.kinds.registry import KINDS
from metastore.managers.all import plural
from metastore.managers.manager import Manager
from metastore.managers.options import BULK_OPTIONS, CALL_OPTIONS, CREATE_OPTIONS, CallOptions
from metastore.managers.owned import OwnedManager
from metastore.managers.principals import Owners

BUILT_IN = [kind for kind in KINDS.values() if not isinstance(kind, ms.Kind)]
ROOT = Path(__file__).resolve().parents[2]
Signature = inspect.Signature


@pytest.fixture
def store() -> Iterator[ms.Store]:
    with ms.open("memory://") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        store.schemas.create("m.c.s")
        yield store


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.name)
def test_create_takes_what_the_class_declares(store: ms.Store, kind: Kind) -> None:
    create = inspect.signature(getattr(store, plural(kind.name)).create)
    own = {name: p for name, p in create.parameters.items() if name != "path" and name not in CREATE_OPTIONS}
    declared = {name: field for name, field in kind.entity.doc_fields.items() if field.given}
    assert {name: p.default for name, p in own.items()} == {
        name: inspect.Parameter.empty if field.default is REQUIRED else field.default
        for name, field in declared.items()
    }
    assert declared.keys() <= get_type_hints(kind.entity).keys()


def test_what_an_iterator_gives_is_there_for_a_replacement_too(store: ms.Store) -> None:
    store.tables.create("m.c.s.t", columns=[ms.Column("old", "int")])
    rows = [{"name": "t", "columns": iter([ms.Column("new", "int")])}]
    assert store.tables.create_many("m.c.s", rows, if_exists="replace") == 1
    assert [column.name for column in store.tables.load("m.c.s.t").columns] == ["new"]


def test_a_replacement_leaves_what_is_fixed(store: ms.Store) -> None:
    store.catalogs.create("m.folds", type="relational", fold_case=True)
    rows: list[dict[str, Any]] = [{"name": "folds", "type": "model"}]
    assert store.catalogs.create_many("m", rows, if_exists="replace") == 1
    assert store.catalogs.load("m.folds").fold_case
    with pytest.raises(ms.InvalidArgument, match="fold_case is fixed"):
        store.catalogs.create("m.folds", type="model", fold_case=False, if_exists="replace")


class Shelf(Entity):
    """An entity whose class has got a field since the first ones were stored."""

    room: str = doc_field(str)
    height: int = doc_field(int, default=3, later=True)


def test_a_document_older_than_a_field_shows_the_default(store: ms.Store) -> None:
    record = store.schemas.load("m.c.s").record
    old = Shelf(record._replace(doc=json.dumps({"comment": None, "properties": {}, "room": "attic"})))
    assert (old.room, old.height) == ("attic", 3)
    assert isinstance(Shelf.height, DocField)
    assert list(Shelf.doc_fields) == ["room", "height"]
    damaged = Shelf(record._replace(doc='{"comment":null,"properties":{}}'))
    with pytest.raises(ms.UnreadableRow):
        _ = damaged.room


# --- options


def _mutations(manager: type, options: frozenset[str]) -> Iterator[tuple[str, Signature]]:
    for name, function in inspect.getmembers(manager, inspect.isfunction):
        if not name.startswith("_") and options <= inspect.signature(function).parameters.keys():
            yield name, inspect.signature(function)


def test_every_mutation_shows_its_options() -> None:
    assert {"alter", "rename", "drop", "begin_drop", "restore", "purge"} == dict(
        _mutations(Manager, CALL_OPTIONS)
    ).keys()
    assert {"put_many", "drop"} == dict(_mutations(OwnedManager, CALL_OPTIONS)).keys()
    assert "create_many" in dict(_mutations(Manager, BULK_OPTIONS))


def test_no_method_hides_its_options(store: ms.Store) -> None:
    managers = [value for value in vars(store).values() if isinstance(value, Manager | OwnedManager)]
    assert len(managers) == 20
    for manager in [*managers, store.manager("table")]:
        for name, method in inspect.getmembers(manager, inspect.ismethod):
            if not name.startswith("_"):
                kinds = [p.kind for p in inspect.signature(method).parameters.values()]
                assert inspect.Parameter.VAR_KEYWORD not in kinds or (name, type(manager).__name__) == (
                    "row",
                    "Sources",
                )


READS = {
    *("dropped", "dropped_page", "exists", "groups", "grants", "history", "history_page", "list", "load", "load_many"),
    *(
        "load_version",
        "members",
        "names",
        "names_page",
        "of",
        "of_partitions",
        "on",
        "on_columns",
        "owned_by",
        "page",
        "targets",
    ),
    *(
        "versions",
        "versions_page",
        "below",
        "figures",
        "newest",
        "tables",
        "tables_and_drops",
        "now",
        "relations",
        "rows",
    ),
}
"""The methods of managers that change nothing."""
INNER = {"event", "place", "relate", "row", "unrelate"}
"""What managers call of each other."""
ONLY_SOME = {"create_many": BULK_OPTIONS, "attach_many": BULK_OPTIONS, "exclusive": {"principal", "lease"}}
"""They commit in several steps, under several operation ids."""


@pytest.mark.parametrize("in_transaction", [False, True], ids=["store", "transaction"])
def test_every_method_that_writes_shows_each_option_with_its_type(store: ms.Store, in_transaction: bool) -> None:
    hints = get_type_hints(CallOptions)
    source = store.transaction() if in_transaction else store
    managers = [m for m in vars(source).values() if isinstance(m, Manager | OwnedManager | Owners)]
    assert len(managers) == 21
    for manager in [*managers, source.relations("tag_on"), source.manager("table")]:
        for name, method in inspect.getmembers(manager, inspect.ismethod):
            if name.startswith("_") or name in READS | INNER:
                continue
            parameters = inspect.signature(method).parameters
            for option in ONLY_SOME.get(name, CALL_OPTIONS):
                shown = parameters[option]
                where = f"{type(manager).__name__}.{name}: {option}"
                assert shown.default is None, where
                assert shown.kind is inspect.Parameter.KEYWORD_ONLY, where
                assert str(shown.annotation).endswith("None"), where
                assert shown.annotation == hints[option] or name == "exclusive", where


def test_types_and_defaults_are_shown(store: ms.Store) -> None:
    parameters = inspect.signature(store.tables.create).parameters
    assert str(parameters["deadline"]) == "deadline: float | None = None"
    assert str(parameters["parents"]) == "parents: bool = False"
    assert parameters["if_exists"].default == "error"
    text = pydoc.plain(pydoc.render_doc(store.tables.create))
    for name in CREATE_OPTIONS:
        assert f"{name}: " in text
    assert "at most once" in pydoc.plain(pydoc.render_doc(store.tables.rename))


def test_an_unknown_keyword_is_refused_as_before(store: ms.Store) -> None:
    calls: list[Any] = [store.tables.create, store.tables.drop, store.tables.alter]
    for call in calls:
        with pytest.raises(TypeError, match="nope"):
            call("m.c.s.t", nope=1)
    with pytest.raises(TypeError, match=r"'colums'; known are columns, comment, .*, location, .*, sort_orders$"):
        calls[0]("m.c.s.t", colums=[])


# --- types

SNIPPET = """
import metastore as ms
from typing_extensions import assert_type

def uses(store: ms.Store, table: ms.Table, any_entity: ms.Entity) -> None:
    assert_type(table.location, str | None)
    assert_type(store.tables.create("a.b.c.t", deadline=1.0).columns, tuple[ms.Column, ...])
    print(store.manager("dashboard").load("a.b.c.d").panels)
    table.nope
    any_entity.columns
    store.tables.drop(table, operation=1)
    store.tables.create("a.b.c.t", if_exists="maybe")
    store.tags.attach(table, "a.pii", deadline="soon")
"""


@pytest.mark.only_whole
@pytest.mark.slow
@pytest.mark.xdist_group("mypy")
def test_a_wrong_attribute_is_a_type_error(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    limit = sys.getrecursionlimit()
    try:
        out, errors, _ = api.run(["--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(file)])
    finally:
        sys.setrecursionlimit(limit)  # mypy raises it, and the tests after this one count on the usual one
    assert not errors
    refused = [line for line in out.splitlines() if "snippet.py" in line and "error:" in line]
    assert [line.split(":")[1] for line in refused] == ["9", "10", "11", "12", "13"], out
