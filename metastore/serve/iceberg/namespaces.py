"""Answer Iceberg's requests about namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pyiceberg.typedef import Identifier

from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.naming import no_namespace
from metastore.secrets.names import hiding_secrets
from metastore.serve.iceberg import reading
from metastore.serve.iceberg.errors import Overlap
from metastore.serve.masks import without_masks
from metastore.serve.web import Answer, BadRequest, Call

__all__ = ["create", "drop", "exists", "load", "page", "update"]


_DEEPEST: Final = 100
"""How many levels a new namespace may have: each missing one is made by a commit that guards all those above it."""


class _Create(BaseModel):
    model_config = ConfigDict(strict=True)
    namespace: list[str] = Field(min_length=1)
    properties: dict[str, str] = Field(default_factory=dict)


class _Update(BaseModel):
    model_config = ConfigDict(strict=True)
    removals: list[str] = Field(default_factory=list)
    updates: dict[str, str] = Field(default_factory=dict)


_CREATE: Final = TypeAdapter(_Create)
_UPDATE: Final = TypeAdapter(_Update)


def page(catalog: MetastoreCatalog, call: Call) -> Answer:
    """List the namespaces below ``parent``, or at the top; with ``pageSize``, one page of them."""
    above = reading.namespace(call.query["parent"]) if call.query.get("parent") else ()
    size = reading.page_size(call)
    names, following = catalog.namespaces_page(above, size, reading.token(call))
    return Answer(reading.with_token({"namespaces": [list(name) for name in names]}, following))


def create(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Create a namespace."""
    wanted = reading.body(call, _CREATE)
    names = tuple(wanted.namespace)
    if len(names) > _DEEPEST:
        raise BadRequest(f"namespace: it has {len(names)} levels; at most {_DEEPEST} are allowed")
    if not all(name.strip() for name in names):
        raise BadRequest("namespace: a name is empty, or has only white space")
    catalog.create_namespace(names, without_masks(wanted.properties))
    return Answer(_shown(names, wanted.properties))


def load(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Return a namespace's properties."""
    names = reading.namespace(call.names["namespace"])
    return Answer(_shown(names, catalog.load_namespace_properties(names)))


def exists(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Say whether a namespace exists."""
    if not catalog.namespace_exists(names := reading.namespace(call.names["namespace"])):
        raise no_namespace(names)
    return Answer(status=204)


def drop(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Drop an empty namespace."""
    catalog.drop_namespace(reading.namespace(call.names["namespace"]))
    return Answer(status=204)


def update(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Remove and set properties."""
    wanted = reading.body(call, _UPDATE)
    both = sorted(set(wanted.removals) & set(wanted.updates))
    if both:
        raise Overlap(f"these keys are removed and updated at once: {', '.join(both)}")
    names = reading.namespace(call.names["namespace"])
    summary = catalog.update_namespace_properties(names, set(wanted.removals), without_masks(wanted.updates))
    return Answer({"removed": summary.removed, "updated": summary.updated, "missing": summary.missing})


def _shown(names: Identifier, properties: Mapping[str, str]) -> dict[str, Any]:
    return {"namespace": list(names), "properties": hiding_secrets(properties)}
