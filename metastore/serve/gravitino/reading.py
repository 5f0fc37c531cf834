"""Read a request: its body, its flags, the names in its path, and the fields of one update."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from metastore.serve.web import BadRequest, Call

__all__ = ["body", "field_path", "flag", "mapping", "new_name", "optional", "text", "updates"]

T = TypeVar("T")
_NAME: Final = re.compile(r"\w[\w/=-]{0,63}", re.ASCII)


def body(call: Call, shape: TypeAdapter[T]) -> T:
    """Return the body as ``shape``. Raises pydantic's ValidationError, which names the field."""
    return shape.validate_python(mapping(call.body, "the body"))


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Return ``value`` if it is a JSON object. Raises BadRequest."""
    if not isinstance(value, Mapping):
        raise BadRequest(f"{what} must be a JSON object, not {type(value).__name__}")
    return value


def flag(call: Call, name: str, *, default: str = "false") -> bool:
    """Return a flag of the query. Case does not matter, because Python's client writes True."""
    word = call.query.get(name, default).lower()
    if word not in ("true", "false"):
        raise BadRequest(f"{name} is true or false, not {word[:20]!r}")
    return word == "true"


def new_name(name: str) -> str:
    """Return ``name`` if Gravitino allows it as a new name; it has no dot, because a dot separates names."""
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"the name {name[:80]!r} is not allowed: a name has 1 to 64 letters, digits, '_', '/', '=', '-', "
            "and begins with a letter, a digit or '_'"
        )
    return name


def updates(call: Call) -> Sequence[Mapping[str, Any]]:
    """Return the updates of a body, each with its ``@type``."""
    listed = mapping(call.body, "the body").get("updates")
    if not isinstance(listed, list) or not listed:
        raise BadRequest("updates must be a list of one or more updates")
    for one in listed:
        text(mapping(one, "an update"), "@type")
    return listed


def text(update: Mapping[str, Any], key: str) -> str:
    """Return a field that is a string and not empty."""
    value = update.get(key)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{key} must be a string that is not empty")
    return value


def optional(update: Mapping[str, Any], key: str, kind: type[T], default: T | None = None) -> T | None:
    """Return a field of the type ``kind``, or ``default`` if it is missing or null."""
    value = update.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise BadRequest(f"{key} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def field_path(value: Any) -> tuple[str, ...]:
    """Return the path of a column: a list of names."""
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise BadRequest("a column is named by a list of names, such as ['address', 'city']")
    return tuple(value)
