"""Describe a changed table as an OpenLineage dataset with its facets.

The formats are https://openlineage.io/spec/2-0-2/OpenLineage.json and those of the facets in ``_FACETS``. A test lets
OpenLineage's own client read them (``make openlineage-client``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from metastore.columns.column import Column
from metastore.kinds.entity import Change
from metastore.kinds.table.kind import Table

__all__ = ["dataset"]

_PRODUCER: Final = "https://pypi.org/project/versioned-metastore"
_SPEC: Final = "https://openlineage.io/spec/facets"
_FACETS: Final = {
    "schema": f"{_SPEC}/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "documentation": f"{_SPEC}/1-1-0/DocumentationDatasetFacet.json#/$defs/DocumentationDatasetFacet",
    "version": f"{_SPEC}/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
    "lifecycleStateChange": (
        f"{_SPEC}/1-0-1/LifecycleStateChangeDatasetFacet.json#/$defs/LifecycleStateChangeDatasetFacet"
    ),
}
"""The schema of each facet, in the version that has the fields used here."""
_STATES: Final = {
    "create": "CREATE",
    "restore": "CREATE",
    "drop": "DROP",
    "purge": "DROP",
    "rename": "RENAME",
    "move": "RENAME",
}
"""The dataset's state change for each action; any other action is ALTER."""


def dataset(change: Change, namespace: str) -> dict[str, Any] | None:
    """Return the dataset with its facets; None: the change does not concern a table."""
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
    facets = {"schema": _facet("schema", {"fields": _fields(table.columns)})}
    if table.comment:
        facets["documentation"] = _facet("documentation", {"description": table.comment})
    return facets


def _fields(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return columns as fields, with the parts of nested types below them."""
    return [
        {"name": column.name, "type": str(column.type), "ordinal_position": at}
        | ({"description": column.comment} if column.comment else {})
        | ({"fields": _fields(column.fields)} if column.fields else {})
        for at, column in enumerate(columns, 1)
    ]


def _facet(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"_producer": _PRODUCER, "_schemaURL": _FACETS[name], **fields}
