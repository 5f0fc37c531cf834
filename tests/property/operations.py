"""Operations as values, so that the same one can be performed on two stores and compared.

A universe of few names makes them meet. A target is a path, or the number of an entity that an
earlier operation returned, which may be stale by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

import metastore as ms
from metastore import Change, MetastoreError
from metastore.kinds.entity import Entity, Owned, Version
from metastore.managers.all import Managers

__all__ = [
    "Named",
    "Operation",
    "Outcome",
    "in_transaction",
    "managers_below",
    "meanwhile_of_repeats",
    "operations",
    "perform",
    "repeatable",
    "schema_of",
    "schemas_to_freeze",
    "shown",
]

Path = tuple[str, ...]
Outcome = tuple[Any, Any]
"""What was returned, None after an error; and what of it must be the same everywhere."""

NAMES = ("a", "a", "a", "A", "b", "ß", "SS", "\U0001f600")
LAKES, CATALOGS = ("m", "n"), ("c", "f")
MANAGERS = {
    "metalake": "metalakes",
    "catalog": "catalogs",
    "schema": "schemas",
    "table": "tables",
    "fileset": "filesets",
    "view": "views",
    "model": "models",
}


@dataclass(frozen=True)
class Operation:
    """``verb`` of the manager of ``kind``. An int as target is the number of an entity in hand."""

    verb: str
    kind: str
    target: Path | int
    more: dict[str, Any]


# --- what there is to do

names = st.sampled_from(NAMES)
_lakes = st.sampled_from(("m", "m", "m", "n"))
_catalogs = st.tuples(_lakes, st.sampled_from(("c", "c", "f")))
_below = st.lists(names, min_size=1, max_size=1) | st.lists(names, min_size=1, max_size=3)
_schemas = st.builds(lambda above, below: (*above, *below), _catalogs, _below)
_leaves = st.builds(lambda above, name: (*above, name), _schemas, names)
_PATHS: dict[str, st.SearchStrategy[Path]] = {
    "metalake": st.tuples(_lakes),
    "catalog": _catalogs,
    "schema": _schemas,
    "table": _leaves,
    "fileset": _leaves,
    "view": _leaves,
    "model": _leaves,
}
_kinds = st.sampled_from(("schema", "table", "schema", "table", "view", "fileset", "model", "catalog", "metalake"))
_hands = st.integers(0, 9)
_flags = st.booleans()
_expected = st.sampled_from((None, None, None, 1, 2))
_values = st.sampled_from("xyz")
_changes = st.lists(
    st.one_of(
        st.builds(ms.SetComment, _values),
        st.builds(ms.SetProperty, st.sampled_from("pq"), _values),
        st.builds(lambda k, v, e: ms.SetProperty(k, v, expected=e), st.just("p"), _values, st.none() | _values),
        st.builds(ms.RemoveProperty, st.sampled_from("pq")),
    ),
    max_size=2,
)
_if_exists = st.sampled_from(("error", "error", "return", "replace"))


_BY_PATH = ("create", "create_many", "load_many")
_KINDS = {
    "partition": st.just("table"),
    "statistic": st.just("table"),
    "model_version": st.just("model"),
    "set_in_use": st.sampled_from(("catalog", "metalake", "catalog", "schema")),
}


@st.composite
def _operation(draw: st.DrawFn, /, verb: str, **more: st.SearchStrategy[Any]) -> Operation:
    """An operation with a path or, two times of three, an entity in hand as its target."""
    kind = draw(_KINDS.get(verb, _kinds))
    target: Path | int = draw(_PATHS[kind])
    if verb not in _BY_PATH and draw(st.sampled_from((True, True, False))):
        target = draw(_hands)
    arguments = {name: draw(strategy) for name, strategy in more.items()}
    if "to" in arguments and arguments["to"] is not None and draw(_flags):
        arguments["to"] = draw(_PATHS[kind])
    return Operation(verb, kind, target, arguments)


operations: st.SearchStrategy[Operation] = st.one_of(
    _operation("create", if_exists=_if_exists, parents=_flags, comment=_values, hand=st.none() | _hands),
    _operation("create", if_exists=_if_exists, parents=st.just(True), comment=_values, hand=st.none()),
    _operation("create_many", names=st.lists(names, max_size=4), if_exists=_if_exists, hand=st.none() | _hands),
    _operation("alter", changes=_changes, expected_version=_expected),
    _operation("alter", changes=_changes, expected_version=st.none()),
    _operation("rename", to=names, expected_version=_expected),
    _operation("rename", to=names, expected_version=st.none()),
    _operation("drop", cascade=_flags, expected_version=_expected),
    _operation("drop", cascade=st.just(True), expected_version=st.none()),
    _operation("restore", to=st.none() | names, by_id=_flags),
    _operation("restore", to=st.none() | names, by_id=st.just(True)),
    _operation("purge"),
    _operation(
        "model_version",
        number=st.integers(1, 3),
        alias=st.sampled_from("pq"),
        by_alias=_flags,
        what=st.sampled_from(("add", "add", "alias", "alias", "drop", "drop alias", "alter", "load")),
    ),
    _operation("set_in_use", in_use=_flags),
    _operation("partition", name=st.sampled_from("pq"), drop=_flags),
    _operation("statistic", rows=st.dictionaries(st.sampled_from("st"), _values), drop=st.lists(st.sampled_from("st"))),
    _operation("look", page_size=st.integers(1, 3)),
    _operation("load", version=st.none() | st.integers(1, 4)),
    _operation("load_many", paths=st.lists(_leaves, max_size=3)),
    _operation("gc", keep_versions=st.integers(1, 3)),
)

in_transaction = operations.filter(lambda o: o.verb not in ("purge", "gc", "look", "load"))
"""What a transaction can do and sees as if it were done."""

_REPEATED = ("create", "alter", "rename", "drop", "restore", "purge", "set_in_use")
repeatable = operations.filter(lambda o: o.verb in _REPEATED and not o.more.get("parents"))
"""What takes an operation id, and is one operation."""

meanwhile_of_repeats = operations.filter(lambda o: o.verb not in ("gc", "purge"))
"""What may come between an operation and its repeat: nothing that is known of it is forgotten."""

schemas_to_freeze: st.SearchStrategy[Path | int] = st.one_of(_schemas, _hands)


# --- doing it


def perform(store: Managers | Named, hands: Sequence[Entity], operation: Operation) -> Outcome:
    """Perform ``operation``; ``hands`` are the entities in hand."""
    kind, more = operation.kind, dict(operation.more)
    target: Path | Entity | None
    if isinstance(operation.target, int):
        target = _in_hand(hands, operation.target, kind)
        if target is None:
            return None, "nothing in hand"
        kind = target.kind
    else:
        target = operation.target
    if "hand" in more:
        more["hand"] = None if more["hand"] is None else _in_hand(hands, more["hand"], _ABOVE[kind])
    try:
        result = _VERBS[operation.verb](store, getattr(store, MANAGERS[kind]), target, more)
    except MetastoreError as error:
        return None, (type(error).__name__, getattr(error, "expected", None), getattr(error, "found", None))
    return result, shown(result)


class _NamedManager:
    """A manager whose mutations all have one operation id."""

    def __init__(self, manager: Any, operation_id: UUID) -> None:
        self._manager = manager
        self._id = operation_id

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._manager, name)
        return partial(method, operation_id=self._id) if name in (*_REPEATED, "enable", "disable") else method


class Named:
    """A store whose mutations all have one operation id: it performs one operation, any number of times."""

    def __init__(self, store: Managers, operation_id: UUID) -> None:
        for name in MANAGERS.values():
            setattr(self, name, _NamedManager(getattr(store, name), operation_id))


def schema_of(hands: Sequence[Entity], target: Path | int) -> Path | Entity | None:
    """Return the schema that a path or the number of an entity in hand means; None: there is none in hand."""
    if not isinstance(target, int):
        return target
    found = _in_hand(hands, target, "schema")
    return found if found is not None and found.kind == "schema" else None


_ABOVE = {
    "metalake": "",
    "catalog": "metalake",
    "schema": "schema",
    "table": "schema",
    "fileset": "schema",
    "view": "schema",
    "model": "schema",
}


def _in_hand(hands: Sequence[Entity], number: int, kind: str) -> Entity | None:
    """Return an entity in hand, counted from the newest, of this kind if there is one."""
    found = [h for h in hands if h.kind == kind] or hands
    return found[-1 - number % len(found)] if found else None


def _create(store: Managers, manager: Any, target: Path, more: dict[str, Any]) -> Any:
    hand = more.pop("hand")
    fields = {"type": "model"} if manager is store.catalogs else {}
    if hand is not None:
        return manager.create(target[-1], parent=hand, **fields, **more)
    return manager.create(target, **fields, **more)


def _create_many(store: Managers, manager: Any, target: Path, more: dict[str, Any]) -> Any:
    fields = {"type": "model"} if manager is store.catalogs else {}
    rows = [{"name": name, "comment": str(n), **fields} for n, name in enumerate(more["names"])]
    parent = more["hand"] or (None if manager is store.metalakes else target[:-1])
    return manager.create_many(parent, rows, if_exists=more["if_exists"])


def _restore(store: Managers, manager: Any, target: Any, more: dict[str, Any]) -> Any:
    if isinstance(target, Entity):
        return manager.restore(target.names, to=more["to"], id=target.id if more["by_id"] else None)
    return manager.restore(target, to=more["to"])


def _set_in_use(store: Managers, manager: Any, target: Any, more: dict[str, Any]) -> Any:
    if manager not in (store.catalogs, store.metalakes):
        return None
    return (manager.enable if more["in_use"] else manager.disable)(target)


def _partition(store: Managers, manager: Any, target: Any, more: dict[str, Any]) -> Any:
    if more["drop"]:
        return store.partitions.drop(target, more["name"])
    store.partitions.create(target, more["name"], values={"k": "v"})
    return list(store.partitions.list(target))


def _statistic(store: Managers, manager: Any, target: Any, more: dict[str, Any]) -> Any:
    rows = [store.statistics.row(name, {"v": value}) for name, value in more["rows"].items()]
    return store.statistics.put_many(target, rows, drop=more["drop"]), list(store.statistics.list(target))


def _model_version(store: Managers, manager: Any, target: Any, more: dict[str, Any]) -> Any:
    number, alias, what = more["number"], more["alias"], more["what"]
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: store.models.add_version(target, uris={"u": "s3://b"}, aliases=[alias]),
        "alias": lambda: store.models.set_alias(target, alias, number),
        "drop": lambda: store.models.drop_version(target, alias if more["by_alias"] else number),
        "drop alias": lambda: store.models.drop_alias(target, alias),
        "alter": lambda: store.models.alter_version(target, number, ms.SetUri("u", "s3://c"), ms.SetComment(alias)),
        "load": lambda: store.models.load_version(target, alias if more["by_alias"] else number),
    }
    return calls[what](), list(store.models.versions(target)), store.models.load(target)


def _look(store: Managers, manager: Any, target: Any, more: dict[str, Any]) -> Any:
    history = list(manager.history(target))
    below = [list(m.names(target, page_size=more["page_size"])) for m in managers_below(store, manager)]
    return history, below


def managers_below(store: Managers, manager: Any) -> list[Any]:
    """Return the managers of the kinds that can be below an entity of ``manager``."""
    if manager is store.schemas:
        return [store.schemas, store.tables, store.views, store.filesets, store.models]
    upper: dict[Any, list[Any]] = {store.metalakes: [store.catalogs], store.catalogs: [store.schemas]}
    return upper.get(manager, [])


_VERBS: dict[str, Callable[[Any, Any, Any, dict[str, Any]], Any]] = {
    "create": _create,
    "create_many": _create_many,
    "alter": lambda s, m, t, more: m.alter(t, *more["changes"], expected_version=more["expected_version"]),
    "rename": lambda s, m, t, more: m.rename(t, more["to"], expected_version=more["expected_version"]),
    "drop": lambda s, m, t, more: m.drop(t, cascade=more["cascade"], expected_version=more["expected_version"]),
    "restore": _restore,
    "purge": lambda s, m, t, more: m.purge(t),
    "set_in_use": _set_in_use,
    "partition": _partition,
    "statistic": _statistic,
    "model_version": _model_version,
    "look": _look,
    "load": lambda s, m, t, more: m.load(t, version=more["version"]),
    "load_many": lambda s, m, t, more: s.tables.load_many(more["paths"]),
    "gc": lambda s, m, t, more: s.gc(retention=timedelta(0), keep_versions=more["keep_versions"]),
}


# --- what must be the same


def shown(value: Any) -> Any:
    """Return ``value`` without what may differ between databases: ids, times, positions."""
    if isinstance(value, Entity):
        audit = (value.created_by, value.modified_by)
        return (value.kind, value.path, value.version, value.scope_version, value.record.doc, audit)
    if isinstance(value, Owned):
        return (value.kind, value.name, value.version, value.record.doc, value.created_by, value.modified_by)
    if isinstance(value, Version):
        kind = value.kind if isinstance(value, Change) else None
        paths = (value.path_before, value.path_after)
        return (kind, value.action, paths, value.version, value.principal, value.changes, shown(value.entity))
    if isinstance(value, list | tuple | Iterator):
        return [shown(v) for v in value]
    return value
