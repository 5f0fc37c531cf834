"""Values as JSON: any value of the public surface as plain values, and objects that cannot be changed.

A value with ``to_dict()`` becomes its result; another dataclass becomes an object with its fields. Times become ISO
8601 texts in UTC, tuples become lists, mappings become dicts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn
from uuid import UUID

__all__ = ["ReadOnly", "ReadOnlyList", "parsed", "plain", "read_only"]

_ATOMS = (str, int, float, bool, type(None))


_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # CPython has it


def parsed(text: str) -> Any:
    """Return the value of JSON text, as ``json.loads`` does; twice as fast for text without blanks around it."""
    try:
        value, end = _scan(text, 0)
    except (StopIteration, TypeError):
        end = -1
    return value if end == len(text) else json.loads(text)  # json.loads skips blanks, and reports what is wrong


def plain(value: Any) -> Any:
    """Return ``value`` as JSON values. Raises TypeError for a value without a JSON form."""
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, Mapping):
        return {key: plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [plain(below) for below in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


class ReadOnly(dict[str, Any]):
    """A JSON object that cannot be changed. A ``dict``, so that ``json``, ``msgspec`` and the like encode it."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this mapping cannot be changed; dict(…) of it is a copy that can")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnly, (dict(self),)


class ReadOnlyList(list[Any]):
    """A JSON list that cannot be changed. A ``list``, so that it compares and is encoded like one."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this list cannot be changed; list(…) of it is a copy that can")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnlyList, (list(self),)


def read_only(value: Any) -> ReadOnly:
    """Return a JSON object that cannot be changed at any depth. Raises TypeError for another value.

    A cache gives the same entity to all its readers, so a change by one reader would reach all others.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object, not {type(value).__name__}")
    return ReadOnly({key: _frozen(below) for key, below in value.items()})


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return ReadOnly({key: _frozen(below) for key, below in value.items()})
    if isinstance(value, list):
        return ReadOnlyList([_frozen(below) for below in value])
    return value
