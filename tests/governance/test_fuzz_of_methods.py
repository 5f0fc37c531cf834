"""Each public method, called by a user with narrow rights, with arguments that lead to what it does not see.

The methods are found by looking (``tests/bad_input/surface.py``), so that a new one is tried by itself. A call shows
nothing hidden, changes nothing hidden, and raises the typed errors alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

import metastore as ms
from metastore import Store
from metastore.aio.derive import INTERNAL
from metastore.managers.pages.page import Page
from tests.bad_input.surface import Method, good, grow

MARK = "classified"
"""The comment, a property, a value or a name of everything that eve must not see contains it."""
_REST = inspect.Parameter.VAR_KEYWORD


class World:
    """One of everything. Eve reads the tables of one schema; one of them is denied, and so is all else."""

    def __init__(self, store: Store) -> None:
        self.store = store
        grow(store)
        store.metalakes.create("other", comment=MARK)
        denied = store.tables.create("m.c.s.denied", comment=MARK, properties={MARK: "1"})
        store.tables.create(f"m.c.s.{MARK}")
        store.catalogs.create("m.far", type="relational", comment=MARK)
        store.tables.create("m.far.s.t", parents=True, comment=MARK)
        store.tables.drop(store.tables.create("m.far.s.gone", comment=MARK))
        store.partitions.create(denied, "p", values={}, properties={MARK: "1"})
        store.statistics.set(denied, {f"custom-{MARK}": 5})
        store.statistics.put_many(denied, [store.statistics.row("x", {MARK: 1})])
        store.tags.attach(denied, "m.tag1", value=MARK)
        store.owners.set(denied, "m.user1")
        store.sources.put_many("m.far", [store.sources.row("x", table=denied.id, location=MARK)])
        store.groups.add("m.group1", "m.user1")
        eve, role = store.users.create("m.eve"), store.roles.create("m.narrow")
        store.roles.assign(role, eve)
        for word in ("use_catalog", "use_schema", "select_table"):
            store.roles.grant(role, word, "m.c", kind="catalog")
        for name in ("denied", MARK):
            store.roles.grant(role, "select_table", f"m.c.s.{name}", effect="deny", kind="table")
        self.hidden = [denied, store.catalogs.load("m.far")]
        for kind in ("view", "function", "fileset", "topic", "model", "tag", "policy", "user", "group", "role"):
            path = f"m.c.s.{kind}1" if kind in ("view", "function", "fileset", "topic", "model") else f"m.{kind}1"
            self.hidden.append(store.manager(kind).alter(path, ms.SetComment(MARK)))
        self.eve = store.as_user("eve")

    def values(self, manager: str) -> list[Any]:
        """Return what each parameter of a manager's method gets in turn."""
        paths = ["m.c.s.denied", "m.far", "m.far.s", "m.far.s.t", "other", "m.far.s.gone", "m.c.s.view1", "m.role1"]
        own = [one for one in self.hidden[2:] if manager in (f"{one.kind}s", "policies")]
        entities = [*self.hidden[:2], *own, self.store.tables.load("m.c.s.t")]
        return [
            *paths,
            *entities,
            ("m", "user1"),
            self.hidden[0].id,
            [self.hidden[0].id],
            ["m.c.s.denied"],
            "p",
            "x",
            1,
        ]

    def versions(self) -> list[tuple[str, int, str]]:
        """Return everything that is there."""
        return sorted([(one.path, one.version, str(one.comment)) for one in self.store.find()])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Give the world; a value may be the name of a file."""
    monkeypatch.chdir(tmp_path)
    with ms.open("memory://", deadline=5.0) as store:
        yield World(store)


def _told(found: Any) -> str:
    """Return all that a result tells."""
    if isinstance(found, BytesIO):
        return found.getvalue().decode()
    if isinstance(found, Iterator):
        found = list(islice(found, 500))
    if isinstance(found, Page):
        found = found.items
    if isinstance(found, list | tuple) and not hasattr(found, "_fields"):
        return " ".join(map(_told, found))
    more = found.to_dict() if hasattr(found, "to_dict") else ""
    entity = getattr(found, "entity", None)
    return f"{getattr(found, 'record', '')} {getattr(entity, 'record', '')} {more} {found!r}"


def _arguments(method: Method, world: World, odd: inspect.Parameter, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call: one is ``value``, the others that it needs are good ones."""
    positional, named = list[Any](), dict[str, Any]()
    for one in method.parameters:
        needed = one.default is inspect.Parameter.empty and one.kind is not _REST
        if one.kind is _REST or not (needed or one.name == odd.name):
            continue
        given = value if one.name == odd.name else good(method, one.name, world.store)
        if one.kind is inspect.Parameter.KEYWORD_ONLY or not needed:
            named[one.name] = given
        else:
            positional.append(given)
    return positional, named


def _methods() -> dict[str, list[Method]]:
    """Return the public methods of a store, and those of each of its managers."""
    found: dict[str, list[Method]] = {}
    with ms.open("memory://") as store:
        grow(store)
        for owner in ["store", *sorted({name for name in dir(store) if not name.startswith("_")})]:
            thing = store if owner == "store" else getattr(store, owner)
            if owner != "store" and (callable(thing) or not type(thing).__module__.startswith("metastore.")):
                continue
            for name in [name for name in dir(thing) if not name.startswith("_") and name not in INTERNAL]:
                method = getattr(thing, name)
                if inspect.ismethod(method):
                    parameters = tuple(inspect.signature(method).parameters.values())
                    found.setdefault(owner, []).append(Method(owner, name, parameters))
    return found


OF: Final = _methods()


def _calls(method: Method, world: World, store: Store) -> Iterator[tuple[str, object]]:
    """Yield what each call of a method tells, and its odd argument."""
    for parameter in method.parameters:
        if parameter.kind is _REST or parameter.name == "follow":  # that one ends with its timeout alone
            continue
        for value in world.values(method.owner):
            positional, named = _arguments(method, world, parameter, value)
            try:
                told = _told(method.on(store)(*positional, **named))
            except ms.MetastoreError as error:
                told = f"{error} {error.to_dict()}"
            except OSError:
                assert "FileOrName" in str(parameter.annotation)
                continue
            if method.name == "export_to":
                told += "".join([_told(one) for one in positional if isinstance(one, BytesIO)])
            yield told, (method.name, parameter.name, value)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("owner", OF)
def test_a_user_is_shown_nothing_hidden_and_changes_nothing(owner: str, world: World) -> None:
    before = world.versions()
    for method in OF[owner]:
        for told, call in _calls(method, world, world.eve):
            assert MARK not in told, call
    assert world.versions() == before
    assert world.store.verify() == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *(("tables", "load"), ("tables", "page"), ("tables", "history"), ("partitions", "list"), ("statistics", "of")),
        *(("tags", "on"), ("sources", "figures"), ("store", "find"), ("store", "changes"), ("store", "export_to")),
    ],
)
def test_the_same_calls_of_the_library_show_it(owner: str, name: str, world: World) -> None:
    """The negative control."""
    (method,) = [one for one in OF[owner] if one.name == name]
    assert any(MARK in told for told, _ in _calls(method, world, world.store))
