"""Every kind: a file of fields each. :data:`KINDS` and :data:`OWNED_KINDS` find one by its name."""

from __future__ import annotations

from metastore.kinds.catalog import CATALOG
from metastore.kinds.fileset import FILESET
from metastore.kinds.kind import Kind, OwnedKind
from metastore.kinds.metalake import METALAKE
from metastore.kinds.partition import PARTITION
from metastore.kinds.schema import SCHEMA
from metastore.kinds.statistic import STATISTIC
from metastore.kinds.table import TABLE

__all__ = ["KINDS", "OWNED_KINDS"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (METALAKE, CATALOG, SCHEMA, TABLE, FILESET)}
OWNED_KINDS: dict[str, OwnedKind] = {kind.name: kind for kind in (PARTITION, STATISTIC)}
