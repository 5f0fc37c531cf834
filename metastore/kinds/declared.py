"""Kinds that other catalog managers declare; the store has a manager for each.

    ms.Kind("dashboard", parent="schema", fields={"panels": ms.Field(list, default=[])}, changes=(AddPanel, DropPanel))
    store.manager("dashboard").create("lake.sales.eu.revenue")

docs/kinds.md has the whole example. Every program that works on one database should declare the same kinds. A program
that does not know a kind does not change its entities. It sees them in the feed and in ``verify``, and does not treat a
schema that has some as empty.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from metastore.arguments import boolean, items, shown
from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds import handlers
from metastore.kinds import kind as built_in
from metastore.kinds.change import Doc, EntityChange, UnknownChange, decode, encode
from metastore.kinds.entity import Entity
from metastore.kinds.field import REQUIRED, DocField, doc_field
from metastore.kinds.handlers import Handler
from metastore.kinds.kind import base_doc, to_json
from metastore.kinds.registry import KINDS, OWNED_KINDS, RELATIONSHIPS, kind_named
from metastore.names import clean_text
from metastore.plain import ReadOnly, plain
from metastore.port.intents import FORMAT
from metastore.port.records import Origin, Record

__all__ = ["DeclaredEntity", "Field", "Kind"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_OPTIONS: Final = "deadline expected_version if_exists lease operation_id parent parents principal"
_TAKEN: Final = {*dir(Entity), *_OPTIONS.split(), "record", "self", *keyword.kwlist}
_AS_GOOD: Final[Mapping[type, tuple[type, ...]]] = {float: (int, float), list: (list, tuple), dict: (Mapping,)}
_DEEPEST: Final = 64
_UPPER: Final = ("metalake", "catalog", "schema")


@dataclass(frozen=True)
class Field:
    """A field of a kind.

    ``check`` is a type, or a function that turns the caller's value into a JSON value and raises InvalidArgument for a
    wrong one. A field without a ``default`` must be given. An ``optional`` field may be None, and its default is None
    unless another is declared; a field whose default is None is optional, too. Entities show the stored value, with
    tuples for lists, or the result of ``decode`` for it. Entities older than the declaration of the field show the
    default.

    The value that a change leaves in a field is checked, too. So if ``check`` is a function, it must accept its own
    result, or the result of ``decode`` for it, and return the same JSON value.
    """

    check: type | Callable[[Any], Any]
    default: Any = REQUIRED
    decode: Callable[[Any], Any] | None = None
    _: KW_ONLY
    optional: bool = False

    def __post_init__(self) -> None:
        if not callable(self.check) or not (self.decode is None or callable(self.decode)):
            raise InvalidArgument("a field's check is a type or a function, and so is its decode")
        boolean(self.optional, "optional")
        if self.default is None:
            object.__setattr__(self, "optional", True)
        elif self.optional and self.default is REQUIRED:
            object.__setattr__(self, "default", None)

    def value(self, given: Any, what: str) -> Any:
        """Return the JSON value that is stored, or raise InvalidArgument."""
        return None if given is None and self.optional else self._checked(self._stored, given, what)

    def check_left(self, left: Any, what: str) -> None:
        """Raise InvalidArgument if this field cannot store ``left``, the JSON value that a change left in it."""
        if left is not None or not self.optional:
            self._checked(self._left, left, what)

    def _checked(self, check: Callable[[Any, str], Any], given: Any, what: str) -> Any:
        """Return the result of ``check`` for ``given``, if ``decode`` accepts it. Any error becomes InvalidArgument."""
        try:
            stored = check(given, what)
            (self.decode or frozen)(stored)
        except MetastoreError:
            raise
        except Exception as error:
            raise InvalidArgument(f"{what} cannot be {shown(given)}: {type(error).__name__}: {error}") from error
        return stored

    def _stored(self, given: Any, what: str) -> Any:
        if isinstance(self.check, type):
            _check_type(given, self.check, what)
            return _json(given, what)
        return _json(self.check(given), what)

    def _left(self, left: Any, what: str) -> Any:
        if isinstance(self.check, type):
            _check_type(left, _json_type(self.check), what)
            return left
        try:
            again = self._stored(left, what)
        except Exception:
            if self.decode is None:
                raise
            again = None
        if again != left and self.decode is not None:
            # a check takes the values that entities show, so give it the decoded value
            again = self._stored(self.decode(left), what)
        if again != left:
            raise InvalidArgument(f"{what} cannot be {shown(left)}: its check makes {shown(again)} of it")
        return left


class Kind(built_in.Kind):
    """Declare a kind, and register it under its name.

    ``parent``: ``"schema"``, ``"catalog"``, ``("catalog", "schema")``, ``"metalake"``, or another declared kind that is
    a ``container``. ``fields``: for each name a :class:`Field`, a type, or a function that checks. ``changes``: frozen
    dataclasses derived from ``ms.EntityChange``, which ``alter`` takes besides the changes that all kinds have.
    ``family``: the kind with which it shares its names, such as ``"table"``; None: it shares them with no kind.
    ``on_drop``: the handler of drops in steps, as ``ms.on_drop(name, handler)`` registers it. Raises InvalidArgument.
    """

    fields: Mapping[str, Field]

    def __init__(
        self,
        name: str,
        *,
        parent: str | tuple[str, ...] = "schema",
        fields: Mapping[str, Field | type | Callable[[Any], Any]] = MappingProxyType({}),
        changes: Iterable[type[EntityChange]] = (),
        family: str | None = None,
        container: bool = False,
        on_drop: Handler | None = None,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (*_UPPER, "root"):
            raise InvalidArgument(f"a kind is named by a word of a-z, 0-9 and _, such as dashboard; not {shown(name)}")
        boolean(container, "container")
        if not isinstance(fields, Mapping):
            raise InvalidArgument(f"fields map names to Field(…) or a type, not {shown(fields)}")
        own = {key: _field(key, value) for key, value in fields.items()}
        more = items(changes, "changes")
        for change in more:
            if not (isinstance(change, type) and issubclass(change, EntityChange) and is_dataclass(change)):
                raise InvalidArgument(f"a change is a dataclass derived from ms.EntityChange, not {shown(change)}")
            if any(field.name == "change" for field in dataclass_fields(change)):
                raise InvalidArgument(f"{change.__name__} has a field called change, a reserved name; rename the field")

        super().__init__(
            name,
            name if family is None else _family(family, container),
            _parents(name, parent),
            _class(name, own),
            changes=(*built_in.COMMON_CHANGES, *more),
            container=container,
            since=FORMAT,
            check_doc=lambda doc, before: _check_doc(name, own, doc, before),
        )
        vars(self)["fields"] = MappingProxyType(own)
        _register(self)
        if on_drop is not None:
            handlers.on_drop(name, on_drop)

    def check_changes(self, changes: Iterable[EntityChange]) -> None:
        """Raise InvalidArgument for a change that is not one of this kind, or that cannot be read back from history."""
        changes = tuple(changes)
        super().check_changes(changes)
        try:
            written = to_json(encode(changes))
            read = to_json(encode(decode(json.loads(written))))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{shown(changes)}: a change's fields are JSON values: {error}") from error
        if read != written or any(isinstance(c, UnknownChange) for c in decode(json.loads(written))):
            raise InvalidArgument(f"{shown(changes)}: from_json does not return what to_json was given")


class DeclaredEntity(Entity):
    """An entity of a declared kind. A program can unpickle it without the declaration of the kind."""

    if TYPE_CHECKING:  # the fields are known only when the program runs

        def __getattr__(self, name: str) -> Any: ...

    def _own_fields(self) -> dict[str, Any]:
        """Return the stored values: a decoded value may have no JSON form."""
        return {
            name: plain(self.doc[name] if name in self.doc else field.absent())
            for name, field in self.doc_fields.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _entity, (self.record, self.origin)


def _class(name: str, fields: Mapping[str, Field]) -> type[Entity]:
    members = {key: _doc_field(field, key, name) for key, field in fields.items()}
    return type(name.title().replace("_", ""), (DeclaredEntity,), {**members, "__module__": __name__})


def _doc_field(field: Field, key: str, kind: str) -> DocField:
    """Return the attribute of the entity class for ``field``. Raises InvalidArgument for a wrong default."""
    if field.default is not REQUIRED:
        field.value(field.default, f"the default of {key!r}")
    check = partial(field.value, what=f"the field {key!r} of a {kind}")
    made: DocField = doc_field(check, default=field.default, decode=field.decode or frozen, later=True)
    return made


def _entity(record: Record, origin: Origin | None = None) -> Entity:
    return kind_named(record.chain[-1].kind).entity(record, origin)


def _field(name: object, value: object) -> Field:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
        raise InvalidArgument(
            f"a field's name must be a word of a-z, 0-9 and _ that entities do not use already; not {shown(name)}"
        )
    if isinstance(value, Field):
        return value
    if not callable(value):
        raise InvalidArgument(f"the field {name!r} is given as Field(…), a type or a function, not {shown(value)}")
    return Field(value)


def _check_doc(name: str, fields: Mapping[str, Field], doc: Doc, before: Doc) -> None:
    """Raise InvalidArgument if changes removed a required field, or left a field with a wrong value.

    A field that they did not change is not checked: its value may be older than the declaration.
    """
    needed = {"comment", "properties", *(key for key, field in fields.items() if field.default is REQUIRED)}
    if not needed <= doc.keys():
        lost = ", ".join(sorted(needed - doc.keys()))
        raise InvalidArgument(f"a change of a {name} must keep its fields, but it removed {lost}")
    base_doc(doc["comment"], doc["properties"])
    left = _json({key: value for key, value in doc.items() if key not in ("comment", "properties")}, f"a {name}")
    for key in fields.keys() & left.keys():
        # compared as texts: in Python, True equals 1
        if key not in before or to_json(left[key]) != to_json(before[key]):
            fields[key].check_left(left[key], f"the field {key!r} of a {name}")


def _check_type(given: Any, wanted: type, what: str) -> None:
    fits = isinstance(given, _AS_GOOD.get(wanted, wanted))
    # True is an int in Python
    if not fits or (isinstance(given, bool) and wanted is not bool):
        raise InvalidArgument(f"{what} is of the type {wanted.__name__}, not {shown(given)}")


def _json_type(wanted: type) -> type:
    """Return the type of a value of the type ``wanted`` after it was read back from JSON: a tuple becomes a list."""
    if issubclass(wanted, tuple):
        return list
    return next((base for base in (bool, int, float, str, list, dict) if issubclass(wanted, base)), wanted)


def _family(family: object, container: bool) -> str:
    if container:
        raise InvalidArgument("a container cannot share names with another kind; leave family out")
    if not isinstance(family, str) or family not in KINDS or KINDS[family].container:
        raise InvalidArgument(
            f"a kind can share its names with another that is not a container, such as table, not with {shown(family)}"
        )
    return KINDS[family].family


def _parents(name: str, parent: object) -> tuple[str, ...]:
    parents = (parent,) if isinstance(parent, str) else items(parent, "parents")
    if parents in (("catalog", "schema"), ("schema", "catalog")):
        return "catalog", "schema"
    if len(parents) != 1 or not isinstance(parents[0], str) or parents[0] not in KINDS or parents[0] == name:
        raise InvalidArgument(
            f"a kind must be below a metalake, a catalog, a schema, or a kind declared before; not {shown(parent)}"
        )
    if not KINDS[parents[0]].container:
        raise InvalidArgument(
            f"a {parents[0]} is not a container; declare it with container=True, or choose another parent"
        )
    return parents


def _register(kind: Kind) -> None:
    there = KINDS.get(kind.name)
    if kind.name in OWNED_KINDS or kind.name in RELATIONSHIPS or (there is not None and _shape(there) != _shape(kind)):
        raise InvalidArgument(f"the kind {kind.name} is already declared differently; choose another name")
    KINDS[kind.name] = kind


def _shape(kind: built_in.Kind) -> tuple[object, ...]:
    """Return the parts of a kind in which all its declarations must agree."""
    changes = [(change.__module__, change.__qualname__) for change in kind.changes]
    # types by their names, because reloading a module makes its types and functions again
    fields = [(name, _type(field)) for name, field in kind.fields.items()] if isinstance(kind, Kind) else None
    return kind.family, kind.parents, kind.container, fields, changes


def _type(field: Field) -> str | None:
    return field.check.__qualname__ if isinstance(field.check, type) else None


def _json(value: Any, what: str, depth: int = 0) -> Any:
    """Return a copy of ``value`` made of JSON types, or raise InvalidArgument."""
    if depth > _DEEPEST:
        raise InvalidArgument(f"{what} nests lists and objects more than {_DEEPEST} deep")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean_text(value, what)
    if isinstance(value, float) and value - value == 0:  # true only if it is neither infinite nor NaN
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
        return ReadOnly({key: frozen(below) for key, below in value.items()})
    return value
