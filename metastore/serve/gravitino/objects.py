"""The endpoints of tags, policies and owners of any object, and of a table's statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from metastore.errors import EntityNotFound
from metastore.names import format_path, parse_path
from metastore.serve.gravitino import reading, shapes
from metastore.serve.gravitino.errors import NotSupported, Refused
from metastore.serve.principals import ANONYMOUS
from metastore.serve.web import Answer, BadRequest, Call

if TYPE_CHECKING:
    from metastore.kinds.attached import Attached
    from metastore.store import Store

__all__ = [
    "STATISTICS",
    "Target",
    "check_custom",
    "endpoints",
    "measured_table",
    "metadata_object",
    "statistic",
    "target_of",
]

_DEPTHS: Final = {
    "metalake": 1,
    "catalog": 2,
    "schema": 3,
    "role": 2,
    "tag": 2,
    "policy": 2,
    **dict.fromkeys(("table", "view", "fileset", "topic", "model", "function"), 4),
}

_CUSTOM: Final = "custom-"


@dataclass(frozen=True)
class Target:
    """An object that a path names by its type and full name; ``column``: a column of that table."""

    kind: str
    names: tuple[str, ...]
    column: str | None = None


def target_of(metalake: str, kind: str, full_name: str) -> Target:
    """Return the object; a full name has dots between its names, and begins below the metalake."""
    kind, parts = kind.lower(), tuple(full_name.split("."))
    if kind == "column" and len(parts) > 3:
        return Target("table", (metalake, *parts[:3]), format_path(parts[3:]))
    names = parts if kind == "metalake" else (metalake, *parts)
    if _DEPTHS.get(kind) != len(names) or "" in names:
        raise BadRequest(f"{full_name[:80]!r} is not the full name of a {kind[:20]}")
    if names[0] != metalake:
        raise BadRequest(f"{full_name[:80]!r} is not the metalake {metalake!r}")
    return Target(kind, names)


def metadata_object(kind: str, names: tuple[str, ...], column: str | None = None) -> dict[str, str]:
    """Return the type and full name of an object; clients read the type in lower case."""
    if column is not None:
        return {"type": "column", "fullName": ".".join([*names[1:], column])}
    return {"type": kind, "fullName": ".".join(names[1:] or names)}


def _target(call: Call) -> Target:
    return target_of(call.names["metalake"], call.names["type"], call.names["object"])


class _Owner(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str = Field(min_length=1)
    type: Literal["USER", "GROUP", "user", "group"]


class _Values(BaseModel):
    model_config = ConfigDict(strict=True)
    updates: dict[str, Any] = Field(min_length=1)


class _Names(BaseModel):
    model_config = ConfigDict(strict=True)
    names: list[str] = Field(min_length=1)


_OWNER: Final = TypeAdapter(_Owner)
_VALUES: Final = TypeAdapter(_Values)
_NAMES: Final = TypeAdapter(_Names)


# --- tags and policies


@dataclass(frozen=True)
class _Attachable:
    """Tags or policies that are attached to objects."""

    kind: str
    many: str
    shape: Callable[[Any], dict[str, Any]]

    def on(self, store: Any, target: Target) -> dict[str, Attached]:
        """Return the attachments of an object by name. An own attachment replaces an inherited one of the same name."""
        attached = store.manager(self.kind).on(target.names, column=target.column, kind=target.kind)
        return {one.name: one for one in sorted(attached, key=lambda one: one.inherited_from is None)}

    def page(self, store: Store, call: Call) -> Answer:
        attached = self.on(store, _target(call))
        if not reading.flag(call, "details"):
            return Answer({"code": 0, "names": sorted(attached)})
        return Answer({"code": 0, self.many: [self._shown(store, attached[name]) for name in sorted(attached)]})

    def load(self, store: Store, call: Call) -> Answer:
        attached, name = self.on(store, _target(call)), call.names[self.kind]
        if name not in attached:
            message = f"the {self.kind} {name} is not on {call.names['object']}"
            raise Refused(1003, 404, f"NoSuch{self.kind.capitalize()}Exception", message)
        return Answer({"code": 0, self.kind: self._shown(store, attached[name])})

    def _shown(self, store: Store, one: Attached) -> dict[str, Any]:
        return {**self.shape(store.manager(self.kind).load(one.path)), "inherited": one.inherited_from is not None}

    def associate(self, store: Store, call: Call) -> Answer:
        """Attach and detach in one commit. Like Gravitino, refuse to attach a tag or policy a second time."""
        body, target = reading.mapping(call.body, "the body"), _target(call)
        add, remove = (self._list(body.get(f"{self.many}To{word}")) for word in ("Add", "Remove"))

        def apply(tx: Any) -> list[str]:
            manager, own = tx.manager(self.kind), self.on(tx, target)
            for name in add:
                if name in own and own[name].inherited_from is None:
                    raise Refused(
                        1004,
                        409,
                        f"{self.kind.capitalize()}AlreadyAssociatedException",
                        f"the {self.kind} {name} is on {call.names['object']} already",
                    )
                path = (call.names["metalake"], name)
                manager.attach(target.names, path, column=target.column, kind=target.kind)
            for name in remove:
                path = (call.names["metalake"], name)
                manager.detach(target.names, path, column=target.column, kind=target.kind)
            return sorted(self.on(tx, target))

        return Answer({"code": 0, "names": store.run(apply)})

    def _list(self, value: Any) -> list[str]:
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            raise BadRequest(f"the fields for adding and removing must be lists of names of {self.many}")
        return value

    def objects(self, store: Store, call: Call) -> Answer:
        names = (call.names["metalake"], call.names[self.kind])
        targets = [_attached_to(one) for one in store.manager(self.kind).targets(names)]  # type: ignore[attr-defined]
        return Answer({"code": 0, "metadataObjects": targets})


def _attached_to(one: Attached) -> dict[str, str]:
    return metadata_object(one.target_kind, parse_path(one.target_path), one.column)


# --- owners


def _owner(store: Store, call: Call, *, checked: bool) -> Answer:
    """Answer with an object's owner. If it has none and no right is ``checked``, answer with its creator."""
    target = _target(call)
    entity = store.owners.of(target.names, kind=target.kind)
    if entity is not None:
        return Answer({"code": 0, "owner": {"name": entity.name, "type": entity.kind}})
    if checked:
        return Answer({"code": 0, "owner": None})
    made: Any = store.manager(target.kind).load(target.names)
    return Answer({"code": 0, "owner": {"name": made.created_by or ANONYMOUS, "type": "user"}})


def _set_owner(store: Store, call: Call) -> Answer:
    wanted, target = reading.body(call, _OWNER), _target(call)
    kind, names = wanted.type.lower(), (call.names["metalake"], wanted.name)

    def apply(tx: Any) -> None:
        try:
            owner = tx.manager(kind).load(names)
        except EntityNotFound as error:
            raise Refused(1003, 404, "NotFoundException", str(error)) from None
        tx.owners.set(target.names, owner, kind=target.kind)

    store.run(apply)
    return Answer({"code": 0, "set": True})


# --- statistics


def measured_table(call: Call) -> tuple[str, ...]:
    """Return the table whose statistics a request is about."""
    target = _target(call)
    if target.kind != "table" or target.column is not None:
        raise NotSupported("only tables have statistics here")
    return target.names


def statistic(name: str, value: Any, row: Any) -> dict[str, Any]:
    """Return a statistic; ``row`` has its audit."""
    custom = name.startswith(_CUSTOM)
    return {"name": name, "value": value, "reserved": not custom, "modifiable": custom, "audit": shapes.audit(row)}


def check_custom(values: Mapping[str, Any]) -> None:
    """Raise the error that Gravitino's clients expect if a name is not that of a user's statistic."""
    for name in values:
        if not name.startswith(_CUSTOM):
            message = f"the name of a statistic must begin with {_CUSTOM}; {name[:80]!r} does not"
            raise Refused(1001, 400, "IllegalStatisticNameException", message)


def _statistics(store: Store, call: Call) -> Answer:
    table = measured_table(call)
    values = store.statistics.of(table)
    statistics = [
        statistic(row.name, values[row.name], row) for row in store.statistics.list(table) if row.name in values
    ]
    return Answer({"code": 0, "statistics": statistics})


def _set_statistics(store: Store, call: Call) -> Answer:
    table, values = measured_table(call), reading.body(call, _VALUES).updates
    check_custom(values)
    store.statistics.set(table, values)
    return Answer({"code": 0})


def _drop_statistics(store: Store, call: Call) -> Answer:
    return Answer(
        {"code": 0, "dropped": store.statistics.remove(measured_table(call), reading.body(call, _NAMES).names) > 0}
    )


_LAKE: Final = "/metalakes/{metalake}"
_OBJECT: Final = f"{_LAKE}/objects/{{type}}/{{object}}"
STATISTICS: Final = f"{_OBJECT}/statistics"
_OWNERS: Final = f"{_LAKE}/owners/{{type}}/{{object}}"


def _of(one: _Attachable) -> tuple[tuple[str, str, str, Callable[[Store, Call], Answer]], ...]:
    return (
        ("GET", f"{_OBJECT}/{one.many}", one.kind, one.page),
        ("POST", f"{_OBJECT}/{one.many}", one.kind, one.associate),
        ("GET", f"{_OBJECT}/{one.many}/{{{one.kind}}}", one.kind, one.load),
        ("GET", f"{_LAKE}/{one.many}/{{{one.kind}}}/objects", one.kind, one.objects),
    )


_ENDPOINTS: Final = (
    *_of(_Attachable("tag", "tags", shapes.named)),
    *_of(_Attachable("policy", "policies", shapes.policy)),
    ("PUT", _OWNERS, "object", _set_owner),
    ("GET", STATISTICS, "table", _statistics),
    ("PUT", STATISTICS, "table", _set_statistics),
    ("POST", STATISTICS, "table", _drop_statistics),
)


def endpoints(*, checked: bool) -> list[tuple[str, str, str, Callable[[Store, Call], Answer]]]:
    """Return the endpoints. ``checked``: each request has only the rights of its user."""
    return [*_ENDPOINTS, ("GET", _OWNERS, "object", partial(_owner, checked=checked))]
