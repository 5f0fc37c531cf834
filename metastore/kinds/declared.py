"""Kinds that catalog managers of other systems bring: declared once, and the store has a manager for them.

    ms.Kind("dashboard", parent="schema", fields={"panels": ms.Field(list, default=[])}, changes=(AddPanel, DropPanel))
    store.manager("dashboard").create("lake.sales.eu.revenue")

docs/kinds.md has the whole example. Every program that works on one database should declare the same kinds: one that
does not know a kind leaves it alone, but sees it in the feed, in ``verify``, and as what makes a schema not empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any, Final

from metastore.arguments import items, shown
from metastore.changes import FORMAT, Doc, EntityChange
from metastore.entity import Entity, Record
from metastore.errors import InvalidArgument
from metastore.kinds import KINDS, OWNED_KINDS, kind_named
from metastore.kinds import kind as built_in
from metastore.names import clean_text

__all__ = ["Field", "Kind"]

_REQUIRED: Final = object()
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TAKEN: Final = {
    *dir(Entity),
    "deadline",
    "expected_version",
    "if_exists",
    "lease",
    "operation_id",
    "parent",
    "parents",
}
_AS_GOOD: Final[Mapping[type, tuple[type, ...]]] = {float: (int, float), list: (list, tuple), dict: (Mapping,)}
_UPPER: Final = ("metalake", "catalog", "schema")


@dataclass(frozen=True)
class Field:
    """A field of a kind.

    ``check`` is a type, or a function from what the caller gives to a JSON value, which raises InvalidArgument for
    what does not fit. Without a ``default`` the field must be given. Entities show it as it is stored, with tuples for
    lists, or as ``decode`` makes it of that.
    """

    check: type | Callable[[Any], Any]
    default: Any = _REQUIRED
    decode: Callable[[Any], Any] | None = None

    def value(self, given: Any, what: str) -> Any:
        """Return the JSON value that is stored, or raise InvalidArgument."""
        if not isinstance(self.check, type):
            return _json(self.check(given), what)
        # True is an int in Python
        fits = isinstance(given, _AS_GOOD.get(self.check, self.check))
        if not fits or (isinstance(given, bool) and self.check is not bool):
            raise InvalidArgument(f"{what} is of the type {self.check.__name__}, not {shown(given)}")
        return _json(given, what)


class Kind(built_in.Kind):
    """Declare a kind, and register it under its name.

    ``parent``: ``"schema"``, ``"catalog"``, ``("catalog", "schema")``, ``"metalake"``, or another declared kind that is
    a ``container``. ``fields``: a :class:`Field`, a type, or a check for each. ``changes``: frozen dataclasses derived
    from ``ms.EntityChange``, which ``alter`` takes beside those that all kinds take. ``family``: the kind with which
    it shares names, such as ``"table"``; none otherwise. Raises InvalidArgument.
    """

    def __init__(
        self,
        name: str,
        *,
        parent: str | tuple[str, ...] = "schema",
        fields: Mapping[str, Field | type | Callable[[Any], Any]] = MappingProxyType({}),
        changes: Iterable[type[EntityChange]] = (),
        family: str | None = None,
        container: bool = False,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (*_UPPER, "root"):
            raise InvalidArgument(f"a kind is named by a word of a-z, 0-9 and _, such as dashboard; not {shown(name)}")
        if not isinstance(fields, Mapping):
            raise InvalidArgument(f"fields map names to Field(…) or a type, not {shown(fields)}")
        own = {key: _field(key, value) for key, value in fields.items()}
        more = items(changes, "changes")
        for change in more:
            if not (isinstance(change, type) and issubclass(change, EntityChange) and "apply" in dir(change)):
                raise InvalidArgument(f"a change is a dataclass derived from ms.EntityChange, not {shown(change)}")

        def new_doc(**given: Any) -> Doc:
            return {k: f.value(given.get(k, f.default), f"the field {k!r} of a {name}") for k, f in own.items()}

        vars(new_doc)["__signature__"] = Signature([_parameter(key, field) for key, field in own.items()])
        super().__init__(
            name,
            name if family is None else _family(family),
            _parents(name, parent),
            type(
                name.title().replace("_", ""),
                (_Declared,),
                {"doc_fields": {k: f.decode or frozen for k, f in own.items()}},
            ),
            new_doc=new_doc,
            changes=(*built_in.COMMON_CHANGES, *more),
            container=container,
            since=FORMAT,
        )
        _register(self)


class _Declared(Entity):
    """An entity of a declared kind; a program that unpickles it may have declared the kind itself, or not."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _entity, (self.record,)


def _class(name: str, fields: Mapping[str, Field]) -> type[Entity]:
    decoders = {key: field.decode or frozen for key, field in fields.items()}
    return type(name.title().replace("_", ""), (_Declared,), {"doc_fields": decoders, "__module__": __name__})


def _entity(record: Record) -> Entity:
    return kind_named(record.chain[-1].kind).entity(record)


def _field(name: object, value: object) -> Field:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
        raise InvalidArgument(
            f"a field is named by a word of a-z, 0-9 and _ that no entity has already; not {shown(name)}"
        )
    if isinstance(value, Field):
        return value
    if not callable(value):
        raise InvalidArgument(f"the field {name!r} is given as Field(…), a type or a function, not {shown(value)}")
    return Field(value)


def _parameter(key: str, field: Field) -> Parameter:
    default = Parameter.empty if field.default is _REQUIRED else field.default
    return Parameter(key, Parameter.KEYWORD_ONLY, default=default)


def _family(family: str) -> str:
    if family not in KINDS or KINDS[family].family in _UPPER:
        raise InvalidArgument(
            f"a kind can share its names with one that is no metalake, catalog or schema, not {shown(family)}"
        )
    return KINDS[family].family


def _parents(name: str, parent: object) -> tuple[str, ...]:
    parents = (parent,) if isinstance(parent, str) else items(parent, "parents")
    if parents in (("catalog", "schema"), ("schema", "catalog")):
        return "catalog", "schema"
    if len(parents) != 1 or parents[0] not in KINDS or parents[0] == name:
        raise InvalidArgument(
            f"a kind stands below a metalake, a catalog, a schema, or a kind declared before; not {shown(parent)}"
        )
    if not KINDS[parents[0]].container:
        raise InvalidArgument(
            f"a {parents[0]} is no container; declare it with container=True, or choose another parent"
        )
    return parents


def _register(kind: Kind) -> None:
    there = KINDS.get(kind.name)
    if kind.name in OWNED_KINDS or (there is not None and _shape(there) != _shape(kind)):
        raise InvalidArgument(f"there is a kind {kind.name} already, which is another; choose another name")
    KINDS[kind.name] = kind


def _shape(kind: built_in.Kind) -> tuple[object, ...]:
    """Return what a kind must have in common with one of its name, to be the same declared again."""
    changes = [(change.__module__, change.__qualname__) for change in kind.changes]
    return isinstance(kind, Kind), kind.family, kind.parents, kind.container, list(kind.entity.doc_fields), changes


def _json(value: Any, what: str) -> Any:
    """Return ``value`` as JSON has it, or raise InvalidArgument."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean_text(value, what)
    if isinstance(value, float) and value - value == 0:  # neither infinite nor NaN
        return value
    if isinstance(value, Mapping):
        return {clean_text(key, f"a key of {what}"): _json(below, what) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_json(below, what) for below in value]
    raise InvalidArgument(f"{what} holds what JSON does not have: {shown(value)}")


def frozen(value: Any) -> Any:
    """Return a JSON value that cannot be changed: lists as tuples, objects as read-only mappings."""
    if isinstance(value, list):
        return tuple([frozen(below) for below in value])
    if isinstance(value, dict):
        return MappingProxyType({key: frozen(below) for key, below in value.items()})
    return value
