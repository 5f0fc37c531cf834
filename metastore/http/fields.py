"""The fields of a new entity, from a JSON object: the arguments of its kind's ``create``, except the call's options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from metastore.columns.column import Column
from metastore.errors import InvalidArgument
from metastore.kinds.declared import Kind
from metastore.kinds.function.document import Definition, Implementation
from metastore.kinds.registry import KINDS
from metastore.kinds.table.layout import Index
from metastore.kinds.view.document import SQL
from metastore.managers.options import CREATE_OPTIONS

__all__ = ["fields_of"]

_COMMON: Final = frozenset({"comment", "properties"})


def fields_of(kind: str, create: Callable[..., Any], body: object) -> dict[str, Any]:
    """Return the arguments of ``create`` that a JSON object names. Raises InvalidArgument."""
    if not isinstance(body, Mapping):
        raise InvalidArgument(f"a new {kind} is a JSON object with its fields")
    known = _COMMON | _own(kind, create)
    if unknown := sorted(set(body) - known):
        raise InvalidArgument(f"unknown fields: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    if missing := sorted(_required(create) - set(body)):
        raise InvalidArgument(f"missing fields: {', '.join(missing)}; a new {kind} needs them")
    return {name: _value(name, value) for name, value in body.items()}


def _own(kind: str, create: Callable[..., Any]) -> frozenset[str]:
    if isinstance(KINDS[kind], Kind):  # the create of a declared kind takes any field, so ask the kind
        return frozenset(KINDS[kind].entity.doc_fields)
    parameters = inspect.signature(create).parameters.values()
    return frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY) - CREATE_OPTIONS


def _required(create: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(create).parameters.values()
    return frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty)


def _value(name: str, value: object) -> object:
    make = _OBJECTS.get(name)
    if make is None or not isinstance(value, list):
        return value
    try:
        return [make(**one) if isinstance(one, Mapping) else one for one in value]
    except TypeError as error:
        raise InvalidArgument(f"{name}: {error}") from None


def _definition(parameters: Any = (), returns: Any = "string", implementations: Any = ()) -> Definition:
    returned = tuple([Column(**one) for one in returns]) if isinstance(returns, list) else returns
    made = [Implementation(**one) for one in implementations]
    return Definition(tuple([Column(**one) for one in parameters]), returned, tuple(made))


_OBJECTS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {"columns": Column, "representations": SQL, "indexes": Index, "definitions": _definition}
)
