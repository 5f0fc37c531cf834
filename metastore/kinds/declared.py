"""Kinds that catalog managers of other systems bring: declared once, and the store has a manager for them.

    ms.Kind("dashboard", parent="schema", fields={"panels": ms.Field(list, default=[])}, changes=(AddPanel, DropPanel))
    store.manager("dashboard").create("lake.sales.eu.revenue")

docs/kinds.md has the whole example. Every program that works on one database should declare the same kinds: one that
does not know a kind leaves it alone, but sees it in the feed, in ``verify``, and as what makes a schema not empty.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any, ClassVar, Final

from metastore.arguments import items, shown
from metastore.changes import FORMAT, Doc, EntityChange, UnknownChange, decode, encode
from metastore.entity import Entity, Origin, Record
from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds import KINDS, OWNED_KINDS, kind_named
from metastore.kinds import kind as built_in
from metastore.kinds.kind import base_doc, to_json
from metastore.names import clean_text

__all__ = ["Field", "Kind"]

_REQUIRED: Final = object()
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_OPTIONS: Final = "deadline expected_version if_exists lease operation_id parent parents principal"
_TAKEN: Final = {*dir(Entity), *_OPTIONS.split(), "record", "self", *keyword.kwlist}
_AS_GOOD: Final[Mapping[type, tuple[type, ...]]] = {float: (int, float), list: (list, tuple), dict: (Mapping,)}
_DEEPEST: Final = 64
_UPPER: Final = ("metalake", "catalog", "schema")


@dataclass(frozen=True)
class Field:
    """A field of a kind.

    ``check`` is a type, or a function from what the caller gives to a JSON value, which raises InvalidArgument for
    what does not fit. Without a ``default`` the field must be given; where that is None, it may be None. Entities show
    it as it is stored, with tuples for lists, or as ``decode`` makes it of that; those that were made before the field
    was declared show the default.
    """

    check: type | Callable[[Any], Any]
    default: Any = _REQUIRED
    decode: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.check) or not (self.decode is None or callable(self.decode)):
            raise InvalidArgument("a field's check is a type or a function, and so is its decode")

    def value(self, given: Any, what: str) -> Any:
        """Return the JSON value that is stored, or raise InvalidArgument."""
        if given is None and self.default is None:
            return None
        try:
            stored = self._stored(given, what)
            (self.decode or frozen)(stored)
        except MetastoreError:
            raise
        except Exception as error:
            raise InvalidArgument(f"{what} cannot be {shown(given)}: {type(error).__name__}: {error}") from error
        return stored

    def _stored(self, given: Any, what: str) -> Any:
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
            if not (isinstance(change, type) and issubclass(change, EntityChange) and is_dataclass(change)):
                raise InvalidArgument(f"a change is a dataclass derived from ms.EntityChange, not {shown(change)}")
            if any(field.name == "change" for field in dataclass_fields(change)):
                raise InvalidArgument(f"a field of {change.__name__} is called change, which is where its name stands")

        def new_doc(**given: Any) -> Doc:
            return {k: f.value(given.get(k, f.default), f"the field {k!r} of a {name}") for k, f in own.items()}

        vars(new_doc)["__signature__"] = Signature([_parameter(key, field) for key, field in own.items()])
        super().__init__(
            name,
            name if family is None else _family(family, container),
            _parents(name, parent),
            _class(name, own),
            new_doc=new_doc,
            changes=(*built_in.COMMON_CHANGES, *more),
            container=container,
            since=FORMAT,
            check_doc=lambda doc: _check_doc(name, own, doc),
        )
        _register(self)

    def check_changes(self, changes: Iterable[EntityChange]) -> None:
        """Raise InvalidArgument for what is no change of this kind, or would not be the same for who reads it."""
        changes = tuple(changes)
        super().check_changes(changes)
        try:
            written = to_json(encode(changes))
            read = to_json(encode(decode(json.loads(written))))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{shown(changes)}: a change's fields are JSON values: {error}") from error
        if read != written or any(isinstance(c, UnknownChange) for c in decode(json.loads(written))):
            raise InvalidArgument(f"{shown(changes)}: from_json does not give back what to_json wrote")


class _Declared(Entity):
    """An entity of a declared kind; a program that unpickles it may have declared the kind itself, or not."""

    defaults: ClassVar[Mapping[str, Any]]

    def __getattr__(self, name: str) -> Any:
        if name in self.defaults and name not in self.doc:
            return self.doc_fields[name](self.defaults[name])
        return super().__getattr__(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _entity, (self.record, self.origin)


def _class(name: str, fields: Mapping[str, Field]) -> type[Entity]:
    decoders = {key: field.decode or frozen for key, field in fields.items()}
    defaults = {
        key: field.value(field.default, f"the default of {key!r}")
        for key, field in fields.items()
        if field.default is not _REQUIRED
    }
    members = {"doc_fields": decoders, "defaults": defaults, "__module__": __name__}
    return type(name.title().replace("_", ""), (_Declared,), members)


def _entity(record: Record, origin: Origin | None = None) -> Entity:
    return kind_named(record.chain[-1].kind).entity(record, origin)


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


def _check_doc(name: str, fields: Mapping[str, Field], doc: Doc) -> None:
    """Raise InvalidArgument if a change has destroyed what others rely on."""
    needed = {"comment", "properties", *(key for key, field in fields.items() if field.default is _REQUIRED)}
    if not needed <= doc.keys():
        lost = ", ".join(sorted(needed - doc.keys()))
        raise InvalidArgument(f"a change of a {name} must leave its fields, and there is no {lost} any more")
    base_doc(doc["comment"], doc["properties"])
    _json({key: value for key, value in doc.items() if key not in ("comment", "properties")}, f"a {name}")


def _family(family: object, container: bool) -> str:
    if container:
        raise InvalidArgument("a container has its names for itself; leave family out")
    if not isinstance(family, str) or family not in KINDS or KINDS[family].container:
        raise InvalidArgument(
            f"a kind can share its names with another that is no container, such as table, not with {shown(family)}"
        )
    return KINDS[family].family


def _parents(name: str, parent: object) -> tuple[str, ...]:
    parents = (parent,) if isinstance(parent, str) else items(parent, "parents")
    if parents in (("catalog", "schema"), ("schema", "catalog")):
        return "catalog", "schema"
    if len(parents) != 1 or not isinstance(parents[0], str) or parents[0] not in KINDS or parents[0] == name:
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


def _json(value: Any, what: str, depth: int = 0) -> Any:
    """Return ``value`` as JSON has it, or raise InvalidArgument."""
    if depth > _DEEPEST:
        raise InvalidArgument(f"{what} holds lists and objects in each other, more than {_DEEPEST} deep")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean_text(value, what)
    if isinstance(value, float) and value - value == 0:  # neither infinite nor NaN
        return value
    if isinstance(value, Mapping):
        return {clean_text(key, f"a key of {what}"): _json(below, what, depth + 1) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_json(below, what, depth + 1) for below in value]
    raise InvalidArgument(f"{what} holds what JSON does not have: {shown(value)}")


def frozen(value: Any) -> Any:
    """Return a JSON value that cannot be changed: lists as tuples, objects as read-only mappings."""
    if isinstance(value, list):
        return tuple([frozen(below) for below in value])
    if isinstance(value, dict):
        return MappingProxyType({key: frozen(below) for key, below in value.items()})
    return value
