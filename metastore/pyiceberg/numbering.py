"""Number the schemas, partition specs and sort orders that a commit adds, as Iceberg's own catalogs do.

A client may give an id. A part that the table has already is not added again. A new part with a taken id gets the next
id, because other readers cannot load a table with two parts of one id. A later update of the same commit may name the
part, by its id or as "the last one added". It then means the part with its new id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

__all__ = ["numbered"]

_LAST_ADDED: Final = -1
_ADDING: Final = (AddSchemaUpdate, AddPartitionSpecUpdate, AddSortOrderUpdate)


class _Parts:
    """The schemas, specs or orders of a table by id, and the new ids of those that this commit adds."""

    def __init__(self, known: Iterable[tuple[int, Any]]) -> None:
        self._known = dict(known)
        self._moved: dict[int, int] = {}
        self._last: int | None = None

    def place(self, wanted: int, content: Any) -> tuple[int, bool]:
        """Return the id of an added part, and whether the part is new to the table."""
        number = next((one for one, known in self._known.items() if known == content), None)
        is_new = number is None
        if number is None:
            number = wanted if wanted not in self._known else max(self._known) + 1
            self._known[number] = content
        self._moved[wanted] = self._last = number
        return number, is_new

    def meant(self, number: int) -> int:
        """Return the id that a later update means. "The last one added" stays unchanged if no part was added."""
        if number == _LAST_ADDED:
            return number if self._last is None else self._last
        return self._moved.get(number, number)


def numbered(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
    """Return the updates with the ids that their schemas, partition specs and sort orders get in ``metadata``."""
    if not any(isinstance(update, _ADDING) for update in updates):
        return updates
    schemas = _Parts((one.schema_id, one) for one in metadata.schemas)  # schemas are compared without their ids
    specs = _Parts((one.spec_id, one.fields) for one in metadata.partition_specs)
    orders = _Parts((one.order_id, one.fields) for one in metadata.sort_orders)
    placed = [_placed(update, schemas, specs, orders) for update in updates]
    return tuple(update for update in placed if update is not None)


def _placed(update: TableUpdate, schemas: _Parts, specs: _Parts, orders: _Parts) -> TableUpdate | None:
    """Return an update that adds a part, with the part's new id; None if the table has that part already."""
    if isinstance(update, AddSchemaUpdate):
        schema = update.schema_
        number, is_new = schemas.place(schema.schema_id, schema)
        return AddSchemaUpdate(schema=schema.model_copy(update={"schema_id": number})) if is_new else None
    if isinstance(update, AddPartitionSpecUpdate):
        spec = update.spec
        number, is_new = specs.place(spec.spec_id, spec.fields)
        return AddPartitionSpecUpdate(spec=spec.model_copy(update={"spec_id": number})) if is_new else None
    if isinstance(update, AddSortOrderUpdate):
        order = update.sort_order
        number, is_new = orders.place(order.order_id, order.fields)
        fresh: dict[str, Any] = {"sort-order": order.model_copy(update={"order_id": number})}
        return AddSortOrderUpdate(**fresh) if is_new else None
    return _meant(update, schemas, specs, orders)


def _meant(update: TableUpdate, schemas: _Parts, specs: _Parts, orders: _Parts) -> TableUpdate:
    """Return an update that names a part, with the part's id in this table; return any other update unchanged."""
    if isinstance(update, SetCurrentSchemaUpdate):
        return SetCurrentSchemaUpdate(**_field("schema-id", schemas.meant(update.schema_id)))
    if isinstance(update, SetDefaultSpecUpdate):
        return SetDefaultSpecUpdate(**_field("spec-id", specs.meant(update.spec_id)))
    if isinstance(update, SetDefaultSortOrderUpdate):
        return SetDefaultSortOrderUpdate(**_field("sort-order-id", orders.meant(update.sort_order_id)))
    return update


def _field(name: str, number: int) -> dict[str, Any]:
    return {name: number}
