"""Take plain values of secret properties out of history. Nothing else changes rows of history.

``secret:redacted`` replaces the value in the documents, changes and results of all steps of an entity. Before that, the
entity's present document must no longer contain the plain value. The other fields of a step stay, so history and feed
stay complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from metastore.kinds.kind import to_json
from metastore.kinds.secret import REDACTED
from metastore.names import format_path, parse_path
from metastore.operation.seals import settings_of
from metastore.operation.session import Session
from metastore.port.intents import PENDING
from metastore.port.records import Known, OwnedRecord
from metastore.port.secret_keys import Redaction
from metastore.port.unreadable import naming
from metastore.secrets.declared import Declared, is_plain

_SOME: Final = 500
_PROPERTY: Final = re.compile(r"property '([^']*)' was expected")


class _Step(NamedTuple):
    """A row of history, with the columns' names in the table."""

    operation_id: UUID
    ordinal: int
    entity_id: int | None
    owner_id: int | None
    action: str
    path_before: str | None
    path_after: str | None
    doc: str | None
    changes: str | None
    result: str | None


def candidates(session: Session, table: str) -> Iterator[tuple[Known, OwnedRecord | None]]:
    """Yield the present entities that may have secret properties, and owned rows that may, with their owners."""
    columns = ("id", "doc") if table == "entity" else ("id", "doc", "owner_id", "kind", "name")
    with session.backend.snapshot() as snapshot:
        records = [
            (row_id, *owned)
            for row_id, doc, *owned in snapshot.rows(table, columns, ("id",))
            # keep a text that is not UTF-8: reading it later raises the error
            if not isinstance(doc, str) or '"properties":{}' not in doc
        ]
    rows = iter(records)
    while some := list(islice(rows, _SOME)):
        owners = [owned[0] if owned else row_id for row_id, *owned in some]
        for (_, *owned), known in zip(some, session.backend.by_id(owners), strict=True):
            if known is None:
                continue
            if not owned:
                yield known, None
                continue
            owner_id, kind, name = owned
            (there,) = session.backend.owned_by_name([owner_id], kind, [name])
            if there is not None:
                yield known, there


def redact(session: Session, left: set[int]) -> int:
    """Take plain values out of history; ``left``: ids that still have plain values.

    Return how many rows were changed.
    """
    places = _Places(session)
    with session.backend.snapshot() as snapshot:
        rows = map(_Step._make, snapshot.rows("operation", _Step._fields, ("operation_id", "ordinal")))
        wanted: list[Redaction] = []
        done = 0
        for row in rows:
            texts = row.doc, row.changes, row.result
            if row.action == PENDING or row.entity_id in left:
                continue
            if not any(text and (not isinstance(text, str) or "propert" in text.lower()) for text in texts):
                continue
            declared = places.of(row)
            if declared is None:
                continue
            doc, changes, result = [
                naming(partial(_redacted, text, declared), None, row.entity_id, None) for text in texts
            ]
            if (doc, changes, result) != texts:
                wanted.append(Redaction(row.operation_id, row.ordinal, doc, changes, result, texts))
    for begin in range(0, len(wanted), _SOME):
        done += session.backend.secret_keys.redact(wanted[begin : begin + _SOME])
    return done


class _Places:
    """The settings of the catalogs, and for each entity of history the catalog above it, now or earlier."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._declared: dict[int, Declared] = {}
        self._by_path: dict[str, Declared] = {}
        self._of: dict[int, Declared | None] = {}
        for known in catalogs(session):
            declared = settings_of(known.record)[1]
            if declared.patterns:
                self._declared[known.record.chain[-1].id] = declared
                self._by_path[known.record.path] = declared

    def of(self, row: _Step) -> Declared | None:
        """Return the secret declaration for a row of history; if the entity is gone, use the row's path."""
        entity_id = row.owner_id or row.entity_id
        if not self._declared:
            return None
        if entity_id is not None and entity_id not in self._of:
            (known,) = self._session.backend.by_id([entity_id])
            chain = () if known is None else known.record.chain
            self._of[entity_id] = self._declared.get(chain[1].id) if len(chain) > 1 else None
            if known is None:
                del self._of[entity_id]
        if entity_id in self._of:
            return self._of[entity_id]
        path = row.path_after or row.path_before or _path_of_error(row.result)
        return None if path is None else self._by_path.get(format_path(parse_path(path)[:2]))


def _path_of_error(result: str | None) -> str | None:
    """Return the path of a failed operation; its row has the path only in the error."""
    if result is None or '"attributes"' not in result:
        return None
    path = json.loads(result)["attributes"].get("path")
    return path if isinstance(path, str) else None


def catalogs(session: Session) -> list[Known]:
    """Return all catalogs, in any state."""
    with session.backend.snapshot() as snapshot:
        ids = [row[0] for row in snapshot.rows("guard", ("id", "kind"), ("id",)) if row[1] == "catalog"]
    return [known for known in (session.backend.by_id(ids) if ids else ()) if known is not None]


def _redacted(text: str | None, declared: Declared) -> str | None:
    """Return the JSON text without plain values of secret properties."""
    if text is None:
        return None
    value = json.loads(text)
    changed = _Redactor(declared.covers)
    new = changed.walk(value)
    return to_json(new) if changed.found else text


class _Redactor:
    """A walk over a document, a list of changes or a result."""

    def __init__(self, covers: Callable[[str], bool]) -> None:
        self._covers = covers
        self.found = False

    def walk(self, value: Any) -> Any:
        """Return the JSON value without the plain values in ``properties``, in SetProperty, and in JSON within JSON."""
        if isinstance(value, list):
            return [self.walk(below) for below in value]
        if isinstance(value, str) and value.startswith('{"') and '"properties":' in value:
            return to_json(self.walk(json.loads(value)))
        if not isinstance(value, dict):
            return value
        if value.get("change") == "SetProperty":
            return {**value, **{k: self._hide(value["key"], value[k]) for k in ("value", "expected") if k in value}}
        if value.get("error") == "VersionConflict":
            return self._conflict(value)
        return {
            key: self._properties(below) if key == "properties" else self.walk(below) for key, below in value.items()
        }

    def _properties(self, properties: Any) -> Any:
        if not isinstance(properties, Mapping):
            return properties
        return {key: self._hide(key, value) for key, value in properties.items()}

    def _hide(self, key: str, value: Any) -> Any:
        if not self._covers(key) or not is_plain(value):
            return value
        self.found = True
        return REDACTED

    def _conflict(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the error of a failed expectation, without the values in it."""
        named = _PROPERTY.search(value["message"])
        if named is None or not self._covers(named[1]):
            return value
        self.found = True
        attributes = {k: REDACTED if k in ("expected", "found") and v else v for k, v in value["attributes"].items()}
        message = f"{attributes.get('path')}: property {named[1]!r} was not what was expected; load and decide again"
        return {**value, "message": message, "attributes": attributes}
