"""Prepare owned rows for writing, and encrypt properties in their documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore.arguments import shown as shown_value
from metastore.errors import InvalidArgument
from metastore.kinds.kind import dump, to_json
from metastore.kinds.secret import SEALED, kept_in, sealed_parts
from metastore.managers.attempts.create import with_properties
from metastore.operation.seals import Seal
from metastore.secrets.sealer import bound


@dataclass(frozen=True)
class Row:
    """An owned row to write."""

    name: str
    doc: str
    stood: bool = False
    """True: the document was stored before, so its encrypted values do not come from a caller."""


def has_properties(doc: str) -> bool:
    """Whether a document has properties, whose values may be secret."""
    return '"properties":{}' not in doc


def sealed_row(row: Row, seal: Seal) -> tuple[Row, Mapping[str, str]]:
    """Return a row that the call may write, and its properties whose secrets must still be bound to the owner."""
    doc = json.loads(row.doc)
    properties = {
        key: value if row.stood and sealed_parts(value) is not None else seal.value(key, value)
        for key, value in doc["properties"].items()
    }
    return Row(row.name, dump({**doc, "properties": properties}, (row.name,))), properties


def read_doc(doc: str) -> dict[str, Any]:
    """Return a document that has properties. Raises an error if the document is damaged."""
    read: dict[str, Any] = json.loads(doc)
    {**read["properties"]}
    return read


def bound_doc(doc: str, secrets: Mapping[str, str], owner_id: int, before: Mapping[str, Any] | None = None) -> str:
    """Return a document whose secrets are bound to the row's owner; ``before`` is the row's present document."""
    more = bound(secrets, owner_id, {} if before is None else before["properties"])
    return to_json(with_properties(json.loads(doc), more)) if more else doc


def kept_doc(doc: str, before: Mapping[str, Any]) -> str:
    """Return a document in which the present sealed value replaces each handle."""
    if SEALED not in doc:
        return doc
    new = json.loads(doc)
    return to_json({**new, "properties": kept_in(new["properties"], before["properties"])})


def checked_row(row: object) -> Row:
    """Return ``row`` if it is a Row. Raises InvalidArgument."""
    if not isinstance(row, Row):
        raise InvalidArgument(f"put_many takes what the manager's row() returns, not {shown_value(row)}")
    return row
