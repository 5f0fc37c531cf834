"""The warehouses of a server: catalogs of the store, by their path ``metalake.catalog``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.names import format_path, parse_path
from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.once import Once
from metastore.serve.web import BadRequest, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Warehouses"]


class Warehouses:
    """The catalogs of a store that clients may name, with the folder of each."""

    def __init__(self, store: Store, places: Mapping[str, str], properties: Mapping[str, str]) -> None:
        self._store = store
        self._properties = dict(properties)
        self._places = {_root(name): place for name, place in places.items()}
        for root in self._places:
            store.metalakes.create((root[0],), if_exists="return")
            store.catalogs.create(root, type="relational", if_exists="return")

    def prefix(self, warehouse: str | None) -> str:
        """Return the prefix of a warehouse's paths; None: that of the first one.

        Raises EntityNotFound if the store has no such catalog, InvalidArgument if none is named and there is none.
        """
        if not warehouse:
            if not self._places:
                raise InvalidArgument("name a warehouse: ?warehouse=metalake.catalog")
            return format_path(next(iter(self._places)))
        root = _root(warehouse)
        if root not in self._places and not self._store.catalogs.exists(root):
            raise EntityNotFound(warehouse, f"there is no warehouse {warehouse}; create the catalog first")
        return format_path(root)

    def catalog(self, call: Call) -> MetastoreCatalog:
        """Return the catalog that the request's path names, for this one request."""
        root = _root(call.names["prefix"])
        properties = dict(self._properties)
        if place := self._places.get(root):
            properties["warehouse"] = place
        store = self._store.bind(principal=call.principal)
        once = Once(store, _idempotency_key(call), f"{call.principal} {call.operation}")
        return MetastoreCatalog.of_store(store, root, properties, once)


def _idempotency_key(call: Call) -> str | None:
    """Return the key of a request that may be repeated; None: it has none."""
    text = call.headers.get("idempotency-key")
    if text is None:
        return None
    try:
        return str(UUID(text))
    except ValueError:
        raise BadRequest(f"the header Idempotency-Key is a UUID, not {text[:40]!r}") from None


def _root(warehouse: str) -> tuple[str, str]:
    names = parse_path(warehouse)
    if len(names) != 2:
        raise InvalidArgument(f"a warehouse is a path metalake.catalog, not {warehouse!r}")
    return (names[0], names[1])
