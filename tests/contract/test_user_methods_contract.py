"""Each public method of each manager, called by a user without any right: it shows nothing, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.managers.pages.page import Page
from tests.contract.ground import behind, dump

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

MARK = "classified"
"""The comment, a property or the name of everything that eve must not see contains it."""
HIDDEN = {
    "catalogs": "lake.hr",
    "schemas": "lake.hr.people",
    "tables": "lake.hr.people.salaries",
    "views": "lake.hr.people.v",
    "filesets": "lake.hr.people.f",
    "topics": "lake.hr.people.p",
    "models": "lake.hr.people.m",
    "functions": "lake.hr.people.fn",
    "tags": "lake.classified_tag",
    "policies": "lake.classified_policy",
    "users": "lake.classified_bob",
    "groups": "lake.classified_team",
    "roles": "lake.classified_role",
    "job_templates": "lake.classified_template",
    "jobs": "lake.classified_job",
    "metalakes": "other",
}
"""What each manager is asked for. Eve is a user of ``lake``, and not of ``other``."""
TABLE, BOB, ROLE, TEAM = HIDDEN["tables"], HIDDEN["users"], HIDDEN["roles"], HIDDEN["groups"]
CREATED: dict[str, dict[str, Any]] = {
    "catalogs": {"type": "relational"},
    "views": {"representations": (ms.SQL("spark", "SELECT 1"),)},
    "job_templates": {"type": "shell", "executable": "/bin/true"},
    "jobs": {"template": "classified_template"},
}
"""What a create of each kind needs."""


@dataclass
class World:
    """The store, eve's view of it, and what is hidden from her, in hand."""

    store: Store
    eve: Store
    held: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def world(store: Store) -> World:
    """Make one of everything, and a user without rights; name is in the comment of each."""
    store.metalakes.create("lake")
    for name, path in sorted(HIDDEN.items(), key=lambda item: (item[0] == "jobs", item[1].count("."), item[1])):
        getattr(store, name).create(path, comment=MARK, properties={MARK: "1"}, **CREATED.get(name, {}))
    made = World(store, store)
    made.held = {name: getattr(store, name).load(path) for name, path in HIDDEN.items()}
    table = made.held["tables"]
    store.tables.alter(table, ms.AddColumn("c", "string"), ms.SetComment(MARK))
    store.partitions.create(table, "p=1", values={}, properties={MARK: "1"})
    store.statistics.set(table, {"custom-classified": 5})
    store.statistics.set(table, {"custom-classified": 5}, partition="p=1")
    store.models.add_version(made.held["models"], uris={MARK: "s3://b/m"}, aliases=[MARK], comment=MARK)
    store.tags.attach(table, made.held["tags"])
    store.policies.attach(table, made.held["policies"])
    store.owners.set(table, made.held["users"])
    store.groups.add(made.held["groups"], made.held["users"])
    store.roles.assign(made.held["roles"], made.held["users"])
    store.roles.grant(made.held["roles"], "select_table", table)
    store.tables.drop(store.tables.create("lake.hr.people.gone", comment=MARK))
    store.users.create("lake.eve")
    made.eve = store.as_user("eve")
    return made


Call = Callable[[Any, Any], Any]
"""Gets a store's manager, and what is hidden: a path or an entity."""


def _everywhere(name: str) -> dict[str, Call]:
    """Return the calls of the methods that the managers of all kinds have."""
    path = HIDDEN[name]
    parent = None if name == "metalakes" else path.rpartition(".")[0]
    return {
        "create": lambda m, _: m.create(f"{path}2", **CREATED.get(name, {})),
        "create_many": lambda m, _: m.create_many(parent, [{"name": "x", **CREATED.get(name, {})}]),
        "load": lambda m, target: m.load(target),
        "load_many": lambda m, _: m.load_many([path]),
        "exists": lambda m, _: m.exists(path),
        "list": lambda m, _: m.list(parent),
        "names": lambda m, _: m.names(parent),
        "page": lambda m, _: m.page(parent),
        "names_page": lambda m, _: m.names_page(parent),
        "dropped": lambda m, _: m.dropped(parent),
        "dropped_page": lambda m, _: m.dropped_page(parent),
        "history": lambda m, target: m.history(target),
        "history_page": lambda m, target: m.history_page(target),
        "alter": lambda m, target: m.alter(target, ms.SetComment("x")),
        "rename": lambda m, target: m.rename(target, "other_name"),
        "drop": lambda m, target: m.drop(target, cascade=True),
        "begin_drop": lambda m, target: m.begin_drop(target),
        "purge": lambda m, target: m.purge(target),
        "restore": lambda m, _: m.restore(path),
        "enable": lambda m, target: m.enable(target),
        "disable": lambda m, target: m.disable(target),
    }


def _attached(name: str) -> dict[str, Call]:
    """Return the calls of tags and policies."""
    rows = [{"target": TABLE, "kind": "table"}]
    return {
        "attach": lambda m, target: m.attach(TABLE, target, kind="table"),
        "detach": lambda m, target: m.detach(TABLE, target, kind="table"),
        "attach_many": lambda m, target: m.attach_many(target, rows),
        "on": lambda m, _: m.on(TABLE, kind="table"),
        "on_columns": lambda m, _: m.on_columns(TABLE, kind="table"),
        "targets": lambda m, target: m.targets(target),
    }


def _owned(row: str) -> dict[str, Call]:
    """Return the calls of owned rows of the table."""
    return {
        "load": lambda m, _: m.load(TABLE, row),
        "exists": lambda m, _: m.exists(TABLE, row),
        "list": lambda m, _: m.list(TABLE),
        "names": lambda m, _: m.names(TABLE),
        "page": lambda m, _: m.page(TABLE),
        "names_page": lambda m, _: m.names_page(TABLE),
        "drop": lambda m, _: m.drop(TABLE, row),
        "put_many": lambda m, _: m.put_many(TABLE, [], [row]),
    }


CALLS: dict[str, dict[str, Call]] = {
    **{name: _everywhere(name) for name in HIDDEN},
    "partitions": {
        **_owned("p=1"),
        "create": lambda m, _: m.create(TABLE, "p=2", values={}),
        "begin_drop": lambda m, _: m.begin_drop(TABLE, "p=1"),
    },
    "statistics": {
        **_owned("custom-classified"),
        "of": lambda m, _: m.of(TABLE),
        "of_partitions": lambda m, _: m.of_partitions(TABLE, ["p=1"]),
        "set": lambda m, _: m.set(TABLE, {"custom-classified": 6}),
        "remove": lambda m, _: m.remove(TABLE, ["custom-classified"]),
    },
    "owners": {
        "of": lambda m, _: m.of(TABLE, kind="table"),
        "owned_by": lambda m, _: m.owned_by(BOB),
        "set": lambda m, _: m.set(TABLE, ("lake", "eve"), kind="table"),
        "remove": lambda m, _: m.remove(TABLE, BOB, kind="table"),
    },
    "drops": {"pending": lambda m, _: m.pending(), "resume": lambda m, _: m.resume(print)},
    "secrets": {"rotate": lambda m, _: m.rotate(), "scrub": lambda m, _: m.scrub()},
    "consumers": {
        "get": lambda m, _: m.get("x"),
        "list": lambda m, _: m.list(),
        "drop": lambda m, _: m.drop("x"),
    },
}
CALLS["tags"] |= _attached("tags")
CALLS["policies"] |= _attached("policies")
CALLS["schemas"]["exclusive"] = lambda m, target: m.exclusive(target, timeout=1.0).__enter__()
CALLS["jobs"]["cancel"] = lambda m, target: m.cancel(target)
CALLS["users"]["groups"] = lambda m, target: m.groups(target)
CALLS["groups"] |= {
    "add": lambda m, target: m.add(target, ("lake", "eve")),
    "remove": lambda m, target: m.remove(target, BOB),
    "members": lambda m, target: m.members(target),
}
CALLS["roles"] |= {
    "grant": lambda m, target: m.grant(target, "select_table", TABLE, kind="table"),
    "revoke": lambda m, target: m.revoke(target, "select_table", TABLE, kind="table"),
    "grants": lambda m, target: m.grants(target),
    "assign": lambda m, target: m.assign(target, ("lake", "eve")),
    "unassign": lambda m, target: m.unassign(target, BOB),
    "of": lambda m, _: m.of(BOB),
    "members": lambda m, target: m.members(target),
}
CALLS["models"] |= {
    "add_version": lambda m, target: m.add_version(target, uris={"a": "b"}),
    "alter_version": lambda m, target: m.alter_version(target, 1, ms.SetComment("x")),
    "load_version": lambda m, target: m.load_version(target, 1),
    "versions": lambda m, target: m.versions(target),
    "versions_page": lambda m, target: m.versions_page(target),
    "set_alias": lambda m, target: m.set_alias(target, "x", 1),
    "drop_alias": lambda m, target: m.drop_alias(target, MARK),
    "drop_version": lambda m, target: m.drop_version(target, 1),
}
OF_TOOLS = {"sources", "crawls"}
"""Their calls take what only the crawler has in hand; their rows are read below."""
OF_THE_PROCESS = {"cache", "counters", "leases"}
"""Figures without names; leases are refused, see test_user_calls_contract, and so are the cache's members."""
PURE = {"event", "place", "row"}
"""Methods that make values, or that managers share; they ask nothing by themselves."""


def _managers(store: Store) -> dict[str, set[str]]:
    """Return the public methods of each manager of a store, by introspection."""
    names = [name for name in dir(store) if not name.startswith("_")]
    found = {name: getattr(store, name) for name in names if name not in OF_TOOLS | OF_THE_PROCESS}
    return {
        name: {m for m in dir(manager) if not m.startswith("_")} - PURE
        for name, manager in found.items()
        if not callable(manager) and not isinstance(manager, str)
    }


OWN = ("lake", "lake.eve", "eve")
"""What eve sees: her metalake, and herself."""
REFUSED = ("consumers",)
"""A user's view has none."""


def test_every_method_has_a_call() -> None:
    with ms.open("memory://") as store:
        methods = _managers(store)
    fewer = {name: {m for m in calls if name not in HIDDEN or m in methods[name]} for name, calls in CALLS.items()}
    assert fewer == methods


def _nothing(found: Any) -> bool:
    """Whether a result shows nothing."""
    if isinstance(found, Iterator):
        found = list(found)
    elif isinstance(found, Page):
        found = found.items
    values = found if isinstance(found, list | tuple) else [found]
    others = [one for one in values if one and getattr(one, "path", one) not in OWN]
    return MARK not in repr(found) and not others


def _shows_nothing(name: str, call: Callable[[], Any]) -> bool:
    """Whether a call shows nothing, and its error tells nothing but what was asked."""
    try:
        return _nothing(call())
    except ms.InvalidArgument:
        return name in REFUSED
    except (ms.EntityNotFound, ms.PermissionDenied) as error:
        told = f"{error} {error.to_dict()}"
        for asked in (str(HIDDEN.get(name)), BOB, HIDDEN["job_templates"]):
            told = told.replace(asked, "")
        return MARK not in told


def _targets(world: World, name: str) -> list[Any]:
    return [HIDDEN[name], world.held[name]] if name in HIDDEN else [None]


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_user_without_rights_sees_and_changes_nothing(world: World, name: str) -> None:
    before = dump(behind(world.store))
    manager = getattr(world.eve, name)
    for method, call in CALLS[name].items():
        if not hasattr(manager, method):
            continue
        for target in _targets(world, name):
            assert _shows_nothing(name, lambda: call(manager, target)), (name, method, target)  # noqa: B023
    assert dump(behind(world.store)) == before


READS = {
    **dict.fromkeys(HIDDEN, ("load", "load_many", "exists", "list", "names", "page", "names_page", "history")),
    "partitions": ("load", "exists", "list", "names", "page", "names_page"),
    "statistics": ("load", "exists", "list", "names", "page", "names_page", "of", "of_partitions"),
    "owners": ("of", "owned_by"),
}


def test_the_same_reads_of_the_library_show_something(world: World) -> None:
    """The negative control: none of these calls shows nothing by itself."""
    more: dict[str, tuple[str, ...]] = {
        "tags": ("on", "targets"),
        "policies": ("on", "targets"),
        "models": ("versions", "load_version"),
    }
    more |= {"groups": ("members",), "roles": ("grants", "members", "of"), "users": ("groups",), "tables": ("dropped",)}
    for name, methods in READS.items():
        for method in (*methods, *more.get(name, ())):
            for target in _targets(world, name):
                found = CALLS[name][method](getattr(world.store, name), target)
                assert not _nothing(found), (name, method, target)


def test_rows_of_the_crawler(world: World) -> None:
    """Sources and crawls are rows of a catalog: they are not there where the catalog is not."""
    for name in OF_TOOLS:
        manager = getattr(world.eve, name)
        for target in (HIDDEN["catalogs"], world.held["catalogs"]):
            for read in (manager.list, manager.names, manager.page, manager.names_page):
                with pytest.raises(ms.EntityNotFound):
                    list(read(target))
            assert not manager.exists(target, "x")
            with pytest.raises((ms.EntityNotFound, ms.PermissionDenied)):
                manager.put_many(target, [], ["x"])
