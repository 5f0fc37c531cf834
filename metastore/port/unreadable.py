"""Damaged rows: how an error names such a row, and how a reader leaves it out.

A reader without ``unreadable=`` raises UnreadableRow. With it, the reader calls that function with the error, and
leaves the row out. It then decodes entities completely; otherwise each field is decoded at its first use.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from metastore.errors import InvalidArgument, UnreadableRow
from metastore.names import MAX_PATH
from metastore.port.records import OwnedRecord, Record

Unreadable = Callable[[UnreadableRow], object]
"""A function that a reader calls with the error of each row that it leaves out."""

DEEPEST = 2 * MAX_PATH
"""The most ancestors that an entity may have. A longer chain counts as a cycle, in which a walk would never end."""

MAX_TIME = 253_402_300_799_999_999
"""The last microsecond of the year 9999 (since 1970): Python's calendar ends there."""

R = TypeVar("R", bound="_Readable")
T = TypeVar("T")


class _Readable(Protocol):
    def read_all(self) -> None:
        """Decode everything. Raises UnreadableRow."""


def reason(error: Exception) -> str:
    """Return a line that says why a value cannot be read, made from the exception of the read."""
    if isinstance(error, UnreadableRow):
        return error.why
    text = " ".join(str(error).split())
    return text if isinstance(error, InvalidArgument) else f"{type(error).__name__}: {text}"


def damaged(
    error: Exception, kind: str | None, entity_id: int | None, version: int | None, position: str | None = None
) -> UnreadableRow:
    """Return the error that names the row whose reading raised ``error``."""
    at = "" if position is None else f", position {position}"
    row = f"version {version} of the {kind or 'entity'} with the id {entity_id}{at}"
    return UnreadableRow(row, reason(error), kind=kind, entity_id=entity_id, version=version, position=position)


def fails(read: Callable[[], object]) -> bool:
    """Whether reading a row fails again. If not, the row is sound, and a signal handler raised the first error."""
    try:
        read()
    except Exception:  # noqa: BLE001  (a broken document can raise anything in a decoder)
        return True
    return False


def naming(
    read: Callable[[], T], kind: str | None, entity_id: int | None, version: int | None, position: str | None = None
) -> T:
    """Return the result of ``read``; turn every exception of the row into an UnreadableRow that names it."""
    try:
        return read()
    except Exception as error:
        if not fails(read):
            raise
        raise damaged(error, kind, entity_id, version, position) from error


def document(row: Record | OwnedRecord) -> dict[str, Any]:
    """Return the document of an entity, or of an owned row. Raises UnreadableRow unless it is a JSON object."""
    return _of(row, lambda: {**json.loads(row.doc)})


def properties_of(row: Record | OwnedRecord) -> dict[str, Any]:
    """Return the properties in such a document. Raises UnreadableRow if they are damaged."""
    return _of(row, lambda: {**json.loads(row.doc)["properties"]})


def _of(row: Record | OwnedRecord, read: Callable[[], T]) -> T:
    here = row.chain[-1] if isinstance(row, Record) else row
    return naming(read, here.kind, here.id, row.version)


def too_deep(kind: str | None, entity_id: int) -> UnreadableRow:
    """Return the error for an entity whose chain of parents does not end at the root."""
    row = f"the path of the {kind or 'entity'} with the id {entity_id}"
    why = f"it is below itself, or below more than {DEEPEST} others"
    return UnreadableRow(row, why, kind=kind, entity_id=entity_id)


def check_unreadable(unreadable: object) -> None:
    """Raise InvalidArgument unless ``unreadable`` is None or a function."""
    if unreadable is not None and not callable(unreadable):
        raise InvalidArgument("unreadable is a function, which is called with the error of each row that is left out")


def told(make: Callable[[], T], unreadable: Unreadable | None) -> T | None:
    """Return the result of ``make`` for a row; None: it raised UnreadableRow, and ``unreadable`` got the error."""
    try:
        return make()
    except UnreadableRow as error:
        if unreadable is None:
            raise
        unreadable(error)
        return None


def kept(make: Callable[[], R], unreadable: Unreadable | None) -> R | None:
    """Return the result of ``make`` for a row; None: the row cannot be read, and ``unreadable`` got the error."""
    if unreadable is None:
        return make()

    def read() -> R:
        value = make()
        value.read_all()
        return value

    return told(read, unreadable)
