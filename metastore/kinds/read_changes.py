"""Read the changes that a client sends as plain JSON: the inverse of ``to_dict()``.

History is read leniently (:func:`metastore.kinds.change.decode`), because a newer program may have written it. A
client, in contrast, gets an error that names the wrong field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from metastore.arguments import shown
from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds.change import EntityChange, UnknownChange, change_class
from metastore.kinds.function.changes import AddDefinition, AddImplementation, SetImplementation
from metastore.kinds.hints import check_fields
from metastore.names import exact_text

__all__ = ["change_from_dict", "changes_from_list"]

_NESTED: Final = (AddDefinition, AddImplementation, SetImplementation)
"""Changes with their own JSON for a field, under the field's name."""


def change_from_dict(mapping: Mapping[str, Any]) -> EntityChange:
    """Return the change that ``mapping`` describes: ``{"change": "AddColumn", "path": "id", "type": "long"}``.

    Raises InvalidArgument, which names the field that is missing, unknown, or does not fit.
    """
    if not isinstance(mapping, Mapping):
        raise InvalidArgument(f'a change is an object such as {{"change": "SetComment", …}}, not {shown(mapping)}')
    try:
        fields = {exact_text(name, "a field's name"): _plain(value) for name, value in mapping.items()}
    except RecursionError:
        raise InvalidArgument("a change is nested too deep to be read; take lists and objects out of it") from None
    tag = fields.pop("change", None)
    cls = change_class(tag) if isinstance(tag, str) else None
    if cls is None or cls is UnknownChange:
        raise InvalidArgument(f"the field 'change' is the name of a change, such as 'AddColumn', not {shown(tag)}")
    try:
        if cls in _NESTED or _reads_its_fields(cls):
            check_fields(cls, fields, "")
        return cls.from_json(fields)
    except MetastoreError as error:
        raise InvalidArgument(f"{tag}: {error}") from None
    except Exception as error:
        raise InvalidArgument(f"{tag} cannot be read: {type(error).__name__}: {error}") from error


def changes_from_list(changes: Sequence[Mapping[str, Any]]) -> tuple[EntityChange, ...]:
    """Return the changes that a list of objects describes. Raises InvalidArgument, which says which one is wrong."""
    if not isinstance(changes, list | tuple):
        raise InvalidArgument(f"changes are a list of objects, not {shown(changes)}")
    return tuple([_numbered(at, one) for at, one in enumerate(changes)])


def _numbered(at: int, mapping: Mapping[str, Any]) -> EntityChange:
    try:
        return change_from_dict(mapping)
    except InvalidArgument as error:
        raise InvalidArgument(f"changes[{at}]: {error}") from error.__cause__


def _plain(value: Any) -> Any:
    """Return ``value`` with plain strings in place of strings of a subclass of ``str``."""
    if isinstance(value, str):
        return exact_text(value, "a text")
    if isinstance(value, Mapping):
        return {_plain(key): _plain(below) for key, below in value.items()}
    return [_plain(item) for item in value] if type(value) in (list, tuple) else value


def _reads_its_fields(cls: type[EntityChange]) -> bool:
    """Whether the class inherits ``from_json`` from the base class, which has one key for each field."""
    return cast(Any, cls.from_json).__func__ is cast(Any, EntityChange.from_json).__func__
