"""Turn updates of the API into steps of the store: changes, renames, and changes of fields that may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from metastore.kinds.change import EntityChange, RemoveProperty, SetComment, SetProperty
from metastore.kinds.table import changes as of_table
from metastore.names import format_path
from metastore.serve.gravitino.expressions import default_text, index_of
from metastore.serve.gravitino.reading import field_path, mapping, new_name, optional, text
from metastore.serve.gravitino.shapes import IN_USE
from metastore.serve.gravitino.types import type_text
from metastore.serve.masks import without_masks
from metastore.serve.web import BadRequest

__all__ = [
    "COMMON",
    "DESCRIBED",
    "NAMED",
    "TABLE",
    "Decide",
    "IfThere",
    "Readers",
    "Rename",
    "Replace",
    "Step",
    "clean_properties",
    "steps",
]


@dataclass(frozen=True)
class Rename:
    """A new name; ``schema``: in another schema of the same catalog."""

    name: str
    schema: str | None = None


@dataclass(frozen=True)
class IfThere:
    """A change that is skipped if the part that it drops does not exist."""

    change: EntityChange


@dataclass(frozen=True)
class Replace:
    """Everything but name and properties is replaced."""

    comment: str | None
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Decide:
    """Changes that are computed from the current entity."""

    changes: Callable[[Any], list[EntityChange]]


Update = Mapping[str, Any]
Step = EntityChange | Rename | IfThere | Replace | Decide
Readers = Mapping[str, Callable[[Update], Step | list[Step]]]


def steps(update: Update, readers: Readers) -> list[Step]:
    """Return the steps of one update."""
    reader = readers.get(update["@type"])
    if reader is None:
        raise BadRequest(f"there is no update {update['@type'][:40]!r} here; there are: {', '.join(readers)}")
    step = reader(update)
    return step if isinstance(step, list) else [step]


_POINTERS: Final = ("metadata_location", "previous_metadata_location")
"""Properties that name the metadata file of an Iceberg table or view. With another file it would show other data."""


def clean_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return the properties of a request; refuse those that the server itself writes."""
    if properties and IN_USE in properties:
        raise BadRequest(f"the property {IN_USE} is reserved; enable or disable it by PATCH")
    for key in _POINTERS:
        if properties and key in properties:
            raise BadRequest(f"the property {key} is reserved: only commits of the Iceberg server write it")
    return without_masks(properties)


def _set_property(update: Update) -> Step:
    key, value = text(update, "property"), optional(update, "value", str)
    if value is None:
        raise BadRequest("setProperty needs a value")
    clean_properties({key: value})
    return SetProperty(key, value)


def _remove_property(update: Update) -> Step:
    key = text(update, "property")
    clean_properties({key: ""})
    return RemoveProperty(key)


def _rename(update: Update) -> Step:
    return Rename(new_name(text(update, "newName")))


def _move(update: Update) -> Step:
    """Return the new name of a table, perhaps in another schema; nothing else moves in Gravitino's API."""
    return Rename(new_name(text(update, "newName")), optional(update, "newSchemaName", str) or None)


COMMON: Final[Readers] = {"setProperty": _set_property, "removeProperty": _remove_property}
DESCRIBED: Final[Readers] = {
    **COMMON,
    "updateComment": lambda update: SetComment(optional(update, "newComment", str)),
    "removeComment": lambda _: SetComment(None),
}
NAMED: Final[Readers] = {**DESCRIBED, "rename": _rename}


def _add_column(update: Update) -> Step:
    return of_table.AddColumn(
        _column(update),
        type_text(update.get("type")),
        nullable=_flag(update, "nullable", True),
        default=default_text(update.get("defaultValue")),
        comment=optional(update, "comment", str),
        after=_position(update.get("position")),
        auto_increment=_flag(update, "autoIncrement", False),
    )


def _move_column(update: Update) -> Step:
    after = _position(update.get("newPosition"))
    if after is None:
        raise BadRequest("newPosition is 'first', or {'after': a column}")
    return of_table.MoveColumn(_column(update), after)


def _drop_column(update: Update) -> Step:
    return _lenient(update, of_table.DropColumn(_column(update)))


def _add_index(update: Update) -> Step:
    index = index_of(mapping(update.get("index", update), "index"))
    return of_table.AddIndex(index.name, index.columns, type=index.type)


def _lenient(update: Update, change: EntityChange) -> Step:
    return IfThere(change) if _flag(update, "ifExists", False) else change


def _column(update: Update, key: str = "fieldName") -> str:
    return format_path(field_path(update.get(key)))


def _flag(update: Update, key: str, default: bool) -> bool:
    return bool(optional(update, key, bool, default))


def _position(value: Any) -> str | None:
    """Return the name of the column before the moved one; None: the store chooses the place, which is the last one."""
    if value is None or value == "default":
        return None
    if value == "first":
        return of_table.FIRST
    return text(mapping(value, "a position"), "after")


TABLE: Final[Readers] = {
    **NAMED,
    "rename": _move,
    "addColumn": _add_column,
    "renameColumn": lambda update: of_table.RenameColumn(_column(update, "oldFieldName"), text(update, "newFieldName")),
    "updateColumnDefaultValue": lambda update: of_table.SetColumnDefault(
        _column(update), default_text(update.get("newDefaultValue"))
    ),
    "updateColumnType": lambda update: of_table.RetypeColumn(_column(update), type_text(update.get("newType"))),
    "updateColumnComment": lambda update: of_table.SetColumnComment(
        _column(update), optional(update, "newComment", str)
    ),
    "updateColumnPosition": _move_column,
    "updateColumnNullability": lambda update: of_table.SetColumnNullable(
        _column(update), _flag(update, "nullable", True)
    ),
    "updateColumnAutoIncrement": lambda update: of_table.SetAutoIncrement(
        _column(update), _flag(update, "autoIncrement", False)
    ),
    "deleteColumn": _drop_column,
    "addTableIndex": _add_index,
    "deleteTableIndex": lambda update: _lenient(update, of_table.DropIndex(text(update, "name"))),
}
