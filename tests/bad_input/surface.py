"""The public surface, found by looking: every public method of a store and of its managers, and its parameters.

A method that somebody adds is found by itself. If it needs an argument that is not known here, its test says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import metastore as ms
from metastore.aio.derive import INTERNAL
from tests.bad_input.conftest import TABLE

__all__ = ["EVERY", "METHODS", "TABLE", "WHERE", "Method", "good", "grow", "of_another_database"]

_LAKE, _CATALOG, _SCHEMA = "m", "m.c", "m.c.s"


_NUMBERS: Final[Iterator[int]] = count()
_FOLDER: Final = TemporaryDirectory()
"""For new files; it goes with the process."""
THINGS: Final[Mapping[str, Callable[[ms.Store], Any]]] = {
    "store": lambda store: store,
    "past": lambda store: store.at(store.position()),
    "transaction": lambda store: store.transaction(),
    "consumer": lambda store: store.consumers.get("x"),
    "lease": lambda store: store.leases.acquire(f"x{next(_NUMBERS)}"),
}
"""What has public methods besides the managers, which are found by looking."""
_NOT_CALLED: Final = INTERNAL | {"again", "lose"}
"""Methods that the library calls on itself. Of a lease: its keeper takes it again, and says that it is lost."""


@dataclass(frozen=True)
class Method:
    """One public method, and what has it: one of the THINGS, or an attribute of the store."""

    owner: str
    name: str
    parameters: tuple[inspect.Parameter, ...]

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"

    def on(self, store: ms.Store) -> Callable[..., Any]:
        """Return the method, bound."""
        thing = THINGS[self.owner](store) if self.owner in THINGS else getattr(store, self.owner)
        found: Callable[..., Any] = getattr(thing, self.name)
        return found


def grow(store: ms.Store) -> None:
    """Make one of everything that the good arguments name; what is there already stays."""
    new: dict[str, Any] = {"if_exists": "return"}
    store.metalakes.create(_LAKE, **new)
    store.catalogs.create(_CATALOG, type="relational", **new)
    store.schemas.create(_SCHEMA, **new)
    store.tables.create(TABLE, columns=[ms.Column("id", "long"), ms.Column("name", "string")], **new)
    for kind, fields in _FIELDS.items():
        store.manager(kind).create(WHERE[kind], **fields, **new)
    if not list(store.models.versions(WHERE["model"])):
        store.models.add_version(WHERE["model"], uris={"u": "x"}, aliases=["al"])
    store.schemas.create("m.c.gone", **new)
    store.schemas.drop("m.c.gone")


_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "view": {"representations": [ms.SQL("spark", "SELECT 1")]},
    "function": {"definitions": [ms.Definition((), "int", (ms.Implementation("sql", "1"),))]},
    "fileset": {"locations": {"default": "s3://bucket/x"}},
    "topic": {},
    "model": {},
    "tag": {},
    "policy": {},
    "user": {},
    "group": {},
    "role": {},
    "job_template": {"type": "shell", "executable": "x"},
    "job": {"template": "job_template1"},
}
WHERE: Final[Mapping[str, str]] = {
    **{kind: f"{_SCHEMA}.{kind}1" for kind in ("view", "function", "fileset", "topic", "model")},
    **{kind: f"m.{kind}1" for kind in ("tag", "policy", "user", "group", "role", "job_template", "job")},
    "metalake": _LAKE,
    "catalog": _CATALOG,
    "schema": _SCHEMA,
    "table": TABLE,
}
_KINDS: Final = {
    **{f"{kind}s": kind for kind in WHERE},
    "policies": "policy",
    "partitions": "table",
    "statistics": "table",
    "crawls": "catalog",
    "owners": "table",
}
_NEEDED: Final[Mapping[str, Any]] = {
    "type": "relational",
    "executable": "x",
    "template": "job_template1",
    "uris": {"u": "x"},
    "values": {"k": "v"},
    "names": ["x"],
    "rows": [],
    "tables": [],
    "ids": [1],
    "lease": None,
    "privilege": "use_catalog",
    "number_or_alias": 1,
    "alias": "al",
    "number": 1,
    "state": "x",
    "limit": 1,
    "prefix": "x",
    "key": "k",
    "when": "2030-01-01T00:00:00+00:00",
    "a": "2030-01-01T00:00:00+00:00",
    "fn": lambda *_: None,
    "token": 1,
    "member": 1,
    "operation_id": ms.new_operation_id(),
    "handler": None,
    "value": "x",
    "to": "2030-01-01T00:00:00+00:00",
    "user": "m.user1",
    "group": "m.group1",
    "role": "m.role1",
    "table": TABLE,
    "model": WHERE["model"],
    "on": TABLE,
    "path": TABLE,
    "paths": [TABLE],
    "name": "x",
    "kind": "table",
    "target": TABLE,
    "owner": TABLE,
    "parent": _SCHEMA,
    "under": _SCHEMA,
    "catalog": _CATALOG,
    "frm": "m.user1",
    "other": "m.tag1",
    "changes": ms.SetComment("x"),
    "incarnation": "x",
    "session": None,
    "properties": {},
    "before": None,
    "after": None,
    "action": "create",
    "start": "beginning",
    "on_lost": lambda: None,
    "refused": None,
}
"""A good argument for each parameter that a caller must give, by its name."""


def good(method: Method, parameter: str, store: ms.Store) -> Any:
    """Return an argument that a method takes. Raises KeyError for a parameter whose name is not known here."""
    kind = _KINDS.get(method.owner)
    own = method.owner == "roles" and parameter == "member"
    if kind is not None and not own and parameter in ("target", "path", "owner", "member"):
        parameter = "user" if (method.owner, parameter) == ("owners", "owner") else kind
    parameter = {"assign to": "user", "rename to": "name"}.get(f"{method.name} {parameter}", parameter)
    made = _MADE.get(f"{method.owner} {parameter}") or _MADE.get(f"{method.name} {parameter}") or _MADE.get(parameter)
    if made is not None:
        return made(store)
    return WHERE[parameter] if parameter in WHERE else _NEEDED[parameter]


def of_another_database(method: Method, parameter: inspect.Parameter, other: ms.Store) -> ms.Entity | None:
    """Return an entity of another store for a parameter that takes one; None: it takes none."""
    takes = str(parameter.annotation)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL or "Iterable" in takes or parameter.name in ("only", "lease"):
        return None
    if "Target" not in takes and "Entity" not in takes and "Catalog" not in takes:
        return None
    where = good(method, parameter.name, other)
    if not isinstance(where, str):
        return where if isinstance(where, ms.Entity) else None
    return other.manager(next(kind for kind, path in WHERE.items() if path == where)).load(where)


def _export(store: ms.Store) -> BytesIO:
    store.export_to(export := BytesIO())
    export.seek(0)
    return export


_MADE: Final[Mapping[str, Callable[[ms.Store], Any]]] = {
    "sources catalog": lambda store: store.catalogs.load(_CATALOG),
    "export_to to": lambda _: BytesIO(),
    "backup file": lambda _: Path(_FOLDER.name) / f"backup{next(_NUMBERS)}",
    "source": _export,
    "entity": lambda store: store.tables.load(TABLE),
    "diff a": lambda store: store.position(),
    "revert to": lambda store: store.position(),
    "create_many rows": lambda _: [{"name": "x"}],
    "catalogs rows": lambda _: [{"name": "x", "type": "relational"}],
    "attach_many rows": lambda _: [{"target": TABLE}],
    "statistics values": lambda _: {"custom-x": "1"},
    "statistics names": lambda _: ["custom-x"],
    "job_templates type": lambda _: "shell",
    "roles member": lambda _: WHERE["user"],
    "metalakes parent": lambda _: None,
    "catalogs parent": lambda _: _LAKE,
    "policies other": lambda _: WHERE["policy"],
    **{
        f"{owner} parent": lambda _: _LAKE
        for owner in ("groups", "job_templates", "jobs", "policies", "roles", "tags", "users")
    },
    "position": lambda store: store.position(),
    "operation_id": lambda _: ms.new_operation_id(),
}
"""Arguments that are made for each call."""


def methods(store: ms.Store) -> Iterator[Method]:
    """Yield each public method once, however many managers have inherited it."""
    seen: set[Any] = set()
    things = [(name, make(store)) for name, make in THINGS.items()]
    for owner, thing in [*things, *_managers(store)]:
        for name in dir(thing):
            if name.startswith("_") or name in _NOT_CALLED:
                continue
            found = getattr(thing, name)
            if inspect.ismethod(found) and found.__func__ not in seen:
                seen.add(found.__func__)
                yield Method(owner, name, tuple(inspect.signature(found).parameters.values()))


def _managers(store: ms.Store) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(store)):
        thing = None if name.startswith("_") else getattr(store, name)
        if not callable(thing) and type(thing).__module__.startswith("metastore."):
            yield name, thing


def _all() -> list[Method]:
    with ms.open("memory://") as store:
        grow(store)
        return list(methods(store))


EVERY: Final = _all()
METHODS: Final = [method for method in EVERY if method.parameters]
