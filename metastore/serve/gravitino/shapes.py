"""Show entities in the JSON of Gravitino's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from metastore.columns.column import Column
from metastore.kinds.catalog import Catalog
from metastore.kinds.entity import Entity
from metastore.kinds.fileset import Fileset
from metastore.kinds.metalake import Metalake
from metastore.kinds.model.kind import Model
from metastore.kinds.policy import Policy
from metastore.kinds.table.kind import Table
from metastore.kinds.view.document import SQL
from metastore.kinds.view.kind import View
from metastore.plain import plain
from metastore.secrets.names import hiding_secrets
from metastore.serve.gravitino import expressions
from metastore.serve.gravitino.types import type_json
from metastore.serve.principals import ANONYMOUS

__all__ = [
    "IN_USE",
    "audit",
    "catalog",
    "column",
    "fileset",
    "identifier",
    "metalake",
    "model",
    "named",
    "policy",
    "representation",
    "schema",
    "table",
    "view",
]

IN_USE: Final = "in-use"
"""The property that says whether a metalake or catalog is enabled; only the server sets it."""


def audit(entity: Any) -> dict[str, Any]:
    """Return who made an entity and who changed it last, with the times in ISO 8601."""
    body = {"creator": entity.created_by or ANONYMOUS, "createTime": entity.created_at.isoformat()}
    if entity.modified_at == entity.created_at:
        return body
    modifier = entity.modified_by or ANONYMOUS
    return {**body, "lastModifier": modifier, "lastModifiedTime": entity.modified_at.isoformat()}


def identifier(above: Sequence[str], name: str) -> dict[str, Any]:
    """Return the identifier of an entity."""
    return {"namespace": list(above), "name": name}


def named(entity: Entity) -> dict[str, Any]:
    """Return the fields that all entities have."""
    return {
        "name": entity.name,
        "comment": entity.comment,
        "properties": hiding_secrets(entity.properties),
        "audit": audit(entity),
    }


def metalake(entity: Metalake) -> dict[str, Any]:
    """Return a metalake."""
    return _with_use(entity, entity.in_use)


def catalog(entity: Catalog) -> dict[str, Any]:
    """Return a catalog. If another program made it without a provider, its type is shown as the provider."""
    return {**_with_use(entity, entity.in_use), "type": entity.type, "provider": entity.provider or entity.type}


def schema(entity: Entity) -> dict[str, Any]:
    """Return a schema."""
    return named(entity)


def fileset(entity: Fileset) -> dict[str, Any]:
    """Return a fileset; ``storageLocation`` is the location with the name ``unknown``, which old clients read."""
    locations = dict(entity.locations)
    return {
        **named(entity),
        "type": entity.type,
        "storageLocation": locations.get("unknown"),
        "storageLocations": locations,
    }


def model(entity: Model) -> dict[str, Any]:
    """Return a model. Gravitino counts versions from 0, so ``latestVersion`` is the number of versions made so far."""
    return {**named(entity), "latestVersion": entity.latest_version or 0}


def column(one: Column) -> dict[str, Any]:
    """Return a column."""
    body = {
        "name": one.name,
        "type": type_json(one),
        "comment": one.comment,
        "nullable": one.nullable,
        "autoIncrement": one.auto_increment,
    }
    default = expressions.default_json(one.default)
    return body if default is None else {**body, "defaultValue": default}


def table(entity: Table) -> dict[str, Any]:
    """Return a table."""
    return {
        **named(entity),
        "columns": [column(one) for one in entity.columns],
        "partitioning": [expressions.partitioning_json(one) for one in entity.partitioning],
        "distribution": expressions.distribution_json(entity.distribution),
        "sortOrders": [expressions.order_json(one) for one in entity.sort_orders],
        "indexes": [expressions.index_json(one) for one in entity.indexes],
    }


def view(entity: View) -> dict[str, Any]:
    """Return a view."""
    return {
        **named(entity),
        "columns": [column(one) for one in entity.columns],
        "representations": [representation(one) for one in entity.representations],
        "defaultCatalog": entity.default_catalog,
        "defaultSchema": entity.default_schema,
    }


def representation(one: SQL) -> dict[str, Any]:
    """Return one SQL text of a view, with its dialect."""
    return {"type": "sql", "dialect": one.dialect, "sql": one.text}


def policy(entity: Policy) -> dict[str, Any]:
    """Return a policy."""
    body = named(entity)
    del body["properties"]
    content = {"supportedObjectTypes": list(entity.supports), **plain(entity.content)}
    return {**body, "policyType": entity.type, "enabled": entity.enabled, "content": content}


def _with_use(entity: Entity, in_use: bool) -> dict[str, Any]:
    body = named(entity)
    properties: Mapping[str, str] = body["properties"]
    return {**body, "properties": {**properties, IN_USE: str(in_use).lower()}}
