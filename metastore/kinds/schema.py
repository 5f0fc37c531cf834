"""The schema: a container below a catalog, nested to any depth."""

from __future__ import annotations

from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind

__all__ = ["SCHEMA", "Schema"]


class Schema(Entity):
    """A schema."""


SCHEMA = Kind("schema", "schema", ("catalog", "schema"), Schema, container=True)
