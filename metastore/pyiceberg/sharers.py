"""Find out whether another table has the same files: a copy that an import made, or one that was registered twice.

Such tables have the same UUID. Dropped tables count, because they can be restored. The search reads the documents of
all entities: a second for 50,000 tables. Only a purge does it.

A user who stages or registers a table chooses its UUID, too. It may be that of a table that the user can only read. The
server chose the folder of such a table, and the purged table has nothing there, so such a table does not count. The end
of the folder's name identifies it, because the part before it has several spellings, as in ``s3://`` and ``s3a://``. A
table counts if an operator moved it into a folder that was chosen at another time: it may have files in its first
folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyiceberg.table.metadata import TableMetadata

from metastore.errors import MetastoreError
from metastore.kinds.table.kind import Table
from metastore.port.conditions import PURGING
from metastore.pyiceberg.entities import POINTER, UUID_OF
from metastore.pyiceberg.places import chosen_in, is_first
from metastore.store import Store

__all__ = ["may_have_sharers"]


def may_have_sharers(store: Store, purged: Table, metadata: TableMetadata, files: Iterable[str]) -> bool:
    """Whether another table of the store, at any place, has some of the ``files`` of ``purged``, which is gone.

    Returns True too if the database does not answer: the files stay then.
    """
    try:
        return _has_sharers(store, purged, metadata, files)
    except (MetastoreError, ValueError):  # the database does not answer, or a row of another table is damaged
        return True


def _has_sharers(store: Store, purged: Table, metadata: TableMetadata, files: Iterable[str]) -> bool:
    session, uuid = store._session, str(metadata.table_uuid)  # noqa: SLF001  (the same package)
    ends = {end for place in (metadata.location, *files) for end in chosen_in(place)}
    whole = session.backend if session.access is None else session.access.backend  # users do not see all tables
    with whole.snapshot() as snapshot:
        rows = snapshot.rows("entity", ("id", "doc", "created_at"), ("id",))
        others = [id for id, doc, made in rows if uuid in doc and id != purged.id and _has(doc, made, uuid, ends)]
        states = snapshot.rows("guard", ("id", "kind", "state"), ("id",), others)
        return any(kind == purged.kind and state != PURGING for _, kind, state in states)


def _has(doc: str, made: int, uuid: str, ends: set[str]) -> bool:
    """Whether a document is that of an Iceberg table with this UUID, and its folder may have the files.

    The UUID alone is not enough, because a user may write any text elsewhere, as in a comment.
    """
    fields = json.loads(doc)
    properties = fields.get("properties", {})
    is_same = POINTER in properties and properties.get(UUID_OF) == uuid
    own = {end for end in chosen_in(fields.get("location") or "") if is_first(end, made)}
    return is_same and own <= ends
