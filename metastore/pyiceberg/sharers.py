"""Find out whether another table has the same files: a copy that an import made, or one that was registered twice.

Such tables have the same UUID. Dropped tables count, because they can be restored. The search reads the documents of
all entities: a second for 50,000 tables. Only a purge does it.
"""

from __future__ import annotations

import json

from metastore.kinds.table.kind import Table
from metastore.port.conditions import PURGING
from metastore.pyiceberg.entities import POINTER, UUID_OF
from metastore.store import Store

__all__ = ["has_sharers"]


def has_sharers(store: Store, purged: Table, uuid: object) -> bool:
    """Whether another table of the store, at any place, has the files of ``purged``, which is gone."""
    session = store._session  # noqa: SLF001  (the same package)
    whole = session.backend if session.access is None else session.access.backend  # users do not see all tables
    with whole.snapshot() as snapshot:
        rows = snapshot.rows("entity", ("id", "doc"), ("id",))
        others = [row_id for row_id, doc in rows if str(uuid) in doc and row_id != purged.id and _has(doc, str(uuid))]
        states = snapshot.rows("guard", ("id", "kind", "state"), ("id",), others)
        return any(kind == purged.kind and state != PURGING for _, kind, state in states)


def _has(doc: str, uuid: str) -> bool:
    """Whether a document is an Iceberg table's with this UUID: a user may write any text elsewhere, as in a comment."""
    properties = json.loads(doc).get("properties", {})
    return POINTER in properties and properties.get(UUID_OF) == uuid
