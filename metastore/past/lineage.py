"""What OpenLineage says of a table: the dataset that a change leaves behind, as its facets.

https://openlineage.io/spec/2-0-2/OpenLineage.json and the facets that ``_FACETS`` names.
"""

from __future__ import annotations

from typing import Any, Final

from metastore.kinds.entity import Change
from metastore.kinds.table.kind import Table

__all__ = ["dataset"]

_PRODUCER: Final = "https://pypi.org/project/versioned-metastore"
_FACETS: Final = {
    "schema": "https://openlineage.io/spec/facets/1-1-1/SchemaDatasetFacet.json",
    "documentation": "https://openlineage.io/spec/facets/1-0-1/DocumentationDatasetFacet.json",
    "version": "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json",
    "lifecycleStateChange": "https://openlineage.io/spec/facets/1-0-1/LifecycleStateChangeDatasetFacet.json",
}
_STATES: Final = {
    "create": "CREATE",
    "restore": "CREATE",
    "drop": "DROP",
    "purge": "DROP",
    "rename": "RENAME",
    "move": "RENAME",
}
"""What happened to the dataset; everything else is ALTER."""


def dataset(change: Change, namespace: str) -> dict[str, Any] | None:
    """Return the dataset with its facets; None: the change is not of a table."""
    if change.kind != "table":
        return None
    name = change.path_after or change.path_before or str(change.entity_id)
    state: dict[str, Any] = {"lifecycleStateChange": _STATES.get(change.action, "ALTER")}
    if state["lifecycleStateChange"] == "RENAME":
        state["previousIdentifier"] = {"namespace": namespace, "name": change.path_before}
    facets = {
        "lifecycleStateChange": _facet("lifecycleStateChange", state),
        "version": _facet("version", {"datasetVersion": str(change.version)}),
    }
    if isinstance(change.entity, Table):
        facets |= _content(change.entity)
    return {"namespace": namespace, "name": name, "facets": facets}


def _content(table: Table) -> dict[str, Any]:
    fields = [
        {"name": column.name, "type": str(column.type)}
        | ({} if not column.comment else {"description": column.comment})
        for column in table.columns
    ]
    found = {"schema": _facet("schema", {"fields": fields})}
    if table.comment:
        found["documentation"] = _facet("documentation", {"description": table.comment})
    return found


def _facet(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": _FACETS[name], **fields}
