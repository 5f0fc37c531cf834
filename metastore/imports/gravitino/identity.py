"""The ids that Gravitino gets for entities that were made here: exports derive them, and imports recognize them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from metastore.errors import MetastoreError
from metastore.imports.gravitino.columns import Columns
from metastore.imports.gravitino.values import Key
from metastore.kinds.entity import Entity

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["came_back", "columns_that_came_back", "made_id"]

_FIRST: Final = 1 << 62
"""The least id that is made here; Gravitino's Java code takes ids below 1 << 63."""


def made_id(*parts: object) -> int:
    """Return an id that is computed from ``parts``; two different entities get the same one with a chance of 2**-61."""
    text = " ".join(map(str, parts))
    return _FIRST | int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 3


def came_back(store: Store, key: Key, names: tuple[str, ...]) -> Entity | None:
    """Return the entity at a place in the store if it was made here, and exported as this entity of Gravitino."""
    manager: Any = store.manager(key[0])
    try:
        entity = manager.load(names)
    except MetastoreError:
        return None
    return entity if key[1] == made_id(key[0], entity.id, entity.record.created_at) else None


def columns_that_came_back(key: Key, table: Entity) -> Columns:
    """Return the columns of a table that was made here, by the ids that an export derived for them."""
    columns = {column["id"]: column for column in table.doc["columns"]}
    nested = {number: column for number, column in columns.items() if "fields" in column}
    return Columns({made_id("column", key[1], one): one for one in columns}, nested, table.doc["last_column_id"])
