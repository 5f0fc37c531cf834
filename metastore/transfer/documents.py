"""Check that this program could have written the documents of a file without ids, because an import commits them.

A document that can be read may still be one that no client could write: a partitioning of numbers, say. Files with ids
hold the rows of another database as they were, perhaps by an older program, so they are not checked so strictly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

from metastore.arguments import shown as as_text
from metastore.columns.column import Column, check_columns, decode_columns
from metastore.errors import InvalidArgument
from metastore.kinds.kind import Kind, OwnedKind, base_doc
from metastore.kinds.model.kind import MODEL
from metastore.kinds.model.version import MODEL_VERSION
from metastore.kinds.registry import KINDS, OWNED_KINDS
from metastore.port.unreadable import reason
from metastore.transfer.lines import EntityLine, OwnedLine

__all__ = ["check_document", "check_versions"]


def check_document(line: EntityLine | OwnedLine, path: str) -> None:
    """Raise InvalidArgument for a document that a create with its values would refuse. It must be readable."""
    kind = KINDS.get(line.kind) if isinstance(line, EntityLine) else OWNED_KINDS.get(line.kind)
    if kind is None:
        return
    try:
        _write_again(kind, line.doc)
    except Exception as error:  # noqa: BLE001  (a check that a program declared can raise anything)
        raise InvalidArgument(f"{path}: its document cannot be written: {reason(error)}") from None


def _write_again(kind: Kind | OwnedKind, doc: Any) -> None:
    base_doc(doc["comment"], doc["properties"])
    for name, field in (kind.entity if isinstance(kind, Kind) else kind.row).doc_fields.items():
        stored = field.stored_in(doc)
        shown = field.decode(stored)
        if field.decode in (bool, int, str) and type(stored) is not type(shown):
            raise InvalidArgument(f"the {name} {as_text(stored)} is not a {type(shown).__name__}")
        if field.decode is decode_columns:
            _check_columns(shown)
        elif field.given:
            field.check(shown, doc, {})


def _check_columns(columns: Iterable[Column]) -> None:
    for one in check_columns(columns):
        _check_column(one.name, one.type, one.nullable, one.default, one.comment, one.auto_increment)
        _check_columns(one.fields)


@lru_cache(4096, typed=True)  # typed: 0 is not False
def _check_column(
    name: str, type: str, nullable: bool, default: str | None, comment: str | None, auto_increment: bool
) -> None:
    new = Column(name, type, nullable=nullable, default=default, comment=comment, auto_increment=auto_increment)
    if (new.name, new.type) != (name, type):
        raise InvalidArgument(f"the column {name!r} is not in its normal form, {new.name} {new.type}")


def check_versions(model: EntityLine, owned: Collection[tuple[object, ...]]) -> None:
    """Raise InvalidArgument unless the aliases of a model lead to its versions.

    ``owned``: its rows, each as (kind, name, …).
    """
    if model.kind != MODEL.name:
        return
    numbers = {str(name) for kind, name, *_ in owned if kind == MODEL_VERSION.name}
    last = model.doc["latest_version"]
    for number in numbers:
        if not number.isdecimal() or str(int(number)) != number or not 0 < int(number) <= last:
            raise InvalidArgument(f"{model.names[-1]}: {number!r} is not the number of a version from 1 to {last}")
    for alias, to in model.doc["aliases"].items():
        if type(to) is not int or str(to) not in numbers:
            raise InvalidArgument(
                f"{model.names[-1]}: the alias {alias!r} leads to {to!r}, which is not one of its versions"
            )
