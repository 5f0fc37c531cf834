"""Give a schema the id that its client chose, even if the table has another schema of that id.

A client of PyIceberg's catalog class holds the table's metadata. If it adds a schema under an id that is taken in that
metadata, the new schema gets the id, as with PyIceberg's own catalogs. Their tables then have two schemas with one id,
which Iceberg's Java library cannot read. Here the old schema moves to the next free id, also in the snapshots that name
it. So the ids of a table's schemas are always different.

If the id was taken after the client read the table, `numbered` gives the new schema the next id instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, TableRequirement, TableUpdate

__all__ = ["require_known_schema", "with_room"]


def with_room(metadata: TableMetadata, updates: Sequence[TableUpdate], held: TableMetadata | None) -> TableMetadata:
    """Return metadata in which the ids of added schemas are free, if the client knew that they were taken.

    ``held``: the table's metadata as the client has it. None: unknown; then no schema moves.
    """
    added = [update.schema_ for update in updates if isinstance(update, AddSchemaUpdate)]
    if held is None or not added:
        return metadata
    seen = {schema.schema_id for schema in held.schemas}
    wanted = {schema.schema_id for schema in added if schema not in metadata.schemas}
    for number in sorted(wanted & seen & {schema.schema_id for schema in metadata.schemas}):
        others = {schema.schema_id for schema in (*metadata.schemas, *added)}
        metadata = _moved(metadata, number, max(others) + 1)
    return metadata


def _moved(metadata: TableMetadata, old: int, new: int) -> TableMetadata:
    """Return metadata in which the schema ``old`` has the id ``new``, also where a snapshot names it."""
    schemas = [
        schema.model_copy(update={"schema_id": new}) if schema.schema_id == old else schema
        for schema in metadata.schemas
    ]
    snapshots = [
        snapshot.model_copy(update={"schema_id": new}) if snapshot.schema_id == old else snapshot
        for snapshot in metadata.snapshots
    ]
    current = new if metadata.current_schema_id == old else metadata.current_schema_id
    fields = {"schemas": schemas, "snapshots": snapshots, "current_schema_id": current}
    return metadata.model_copy(update=fields)


def require_known_schema(
    metadata: TableMetadata, requirements: Sequence[TableRequirement], held: TableMetadata | None
) -> None:
    """Raise CommitFailedException if a required schema id names another schema here than in the client's metadata."""
    if held is None:
        return
    for requirement in requirements:
        if isinstance(requirement, AssertCurrentSchemaId):
            number = requirement.current_schema_id
            known, now = held.schema_by_id(number), metadata.schema_by_id(number)
            if known is not None and now is not None and known != now:
                raise CommitFailedException(
                    f"Requirement failed: current schema has changed: the id {number} is another schema's now"
                )
