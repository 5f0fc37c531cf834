"""The whole tree that managers show, as one value: what two views of the same instant must agree on."""

from __future__ import annotations

from typing import Any

from metastore.managers.all import Managers

__all__ = ["tree", "without_makers"]

_BELOW = ("tables", "views", "filesets", "models")


def tree(managers: Managers) -> dict[tuple[str, str], Any]:
    """Return (kind, path) of everything that is live, with its id, version, document and owned rows."""
    found: dict[tuple[str, str], Any] = {}
    for lake in managers.metalakes.list():
        found[lake.kind, lake.path] = _content(lake)
        for catalog in managers.catalogs.list(lake):
            found[catalog.kind, catalog.path] = _content(catalog)
            _schemas(managers, catalog, found)
    return found


def _schemas(managers: Managers, parent: Any, found: dict[tuple[str, str], Any]) -> None:
    for schema in managers.schemas.list(parent):
        found[schema.kind, schema.path] = _content(schema)
        _schemas(managers, schema, found)
        for kind in _BELOW:
            for entity in getattr(managers, kind).list(schema):
                found[entity.kind, entity.path] = _content(entity)
                if kind == "tables":
                    rows = [*managers.partitions.list(entity), *managers.statistics.list(entity)]
                    found[entity.kind, entity.path] += tuple((r.id, r.name, r.version, dict(r.doc)) for r in rows)


def _content(entity: Any) -> tuple[Any, ...]:
    record = entity.record
    audit = (record.created_by, record.created_at, record.modified_by, record.modified_at)
    return entity.id, entity.version, dict(entity.doc), audit, entity.record.chain[-1].in_use


def without_makers(tree: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Return a tree without who made each entity, and when: unknown of what is purged and lost its first step."""
    return {key: (*row[:3], row[3][2:], *row[4:]) for key, row in tree.items()}
