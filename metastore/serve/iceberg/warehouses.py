"""The warehouses of a server: catalogs of the store, by their path ``metalake.catalog``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyiceberg.exceptions import ServiceUnavailableError

from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.names import format_path, parse_path
from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.entities import pointer_of
from metastore.pyiceberg.neighbours import Neighbours
from metastore.pyiceberg.once import Once
from metastore.serve import audit
from metastore.serve.actors import Actors
from metastore.serve.iceberg.credentials import CannotVend, Vended, Vendor, is_below
from metastore.serve.iceberg.renewal import renewed
from metastore.serve.iceberg.rights import RIGHTS
from metastore.serve.iceberg.sources import Source, source_of
from metastore.serve.principals import Principal
from metastore.serve.web import BadRequest, Call

if TYPE_CHECKING:
    from pyiceberg.typedef import Identifier

    from metastore.store import Store

__all__ = ["Warehouses"]

_LOG: Final = logging.getLogger("metastore.serve")
_WAITS: Final = 1.0
"""How long a request for a key waits for another one that reads the folders of all tables (seconds)."""
_MERGE: Final = "x-metastore-merge"
"""The header by which a client that only appends asks the server to merge."""


class Warehouses:
    """The catalogs of a store that clients may name, with the folder of each, and the credentials for its files."""

    def __init__(
        self,
        store: Store,
        actors: Actors,
        places: Mapping[str, str],
        properties: Mapping[str, str],
        credentials: Mapping[str, Mapping[str, str] | Vendor] | None = None,
        allowed: Sequence[str] = (),
    ) -> None:
        self._allowed = tuple(allowed)
        self._store = store
        self._actors = actors
        self._neighbours = Neighbours(store)
        self._properties = dict(properties)
        self._places = {_root(name): place for name, place in places.items()}
        self._sources = {_root(name): self._source(_root(name), one) for name, one in (credentials or {}).items()}
        if any(source.per_table for source in self._sources.values()):
            self._neighbours.look()  # at the start, because it may take seconds, and later requests for keys would wait
        for root in self._places:
            store.metalakes.create((root[0],), if_exists="return")
            store.catalogs.create(root, type="relational", if_exists="return")

    def _source(self, root: tuple[str, str], given: Mapping[str, str] | Vendor) -> Source:
        if root not in self._places:
            raise InvalidArgument(f"credentials need the folder of their warehouse; add it: {format_path(root)}=s3://…")
        return source_of(self._places[root], given)

    def vends(self, call: Call) -> bool:
        """Whether the warehouse of a request has credentials for clients."""
        return _root(call.names["prefix"]) in self._sources

    def vended(self, call: Call, names: Identifier, location: str, *, staged: bool = False) -> Vended | None:
        """Return the credentials for a table's files; None: no credentials.

        A table outside the warehouse's folder has none, because clients choose the locations of tables. A table with
        another table in its folder has none either, because a key would open that table too. ``staged``: the table does
        not exist yet; its creator will own it. Raises ServiceUnavailableError if the credentials cannot be made, except
        for a table that the request has created.
        """
        root = _root(call.names["prefix"])
        source = self._sources.get(root)
        if source is None or not is_below(location, self._places[root]):
            return None
        rights: tuple[str, ...] | None = None
        if source.by_rights:
            rights = RIGHTS if staged else self._rights(call, (*root, *names), location)
        try:
            if source.per_table and self._neighbours.are_more_than(0 if staged else 1, location, _WAITS):
                _LOG.warning("another table lies in %.200r: no client gets a key for that folder", location)
                return None
            made = source.vend(location, call.principal, rights or ())
        except Exception as error:  # noqa: BLE001  (a deployment's code)
            # the message may contain a secret, because the error may come from any library
            said = error if isinstance(error, CannotVend) else type(error).__name__
            _LOG.warning("credentials for %s cannot be made: %s", format_path(root), said)
            if call.is_read:
                message = "the credentials for the table's files cannot be made now; the server's log says why"
                raise ServiceUnavailableError(message) from None
            return None
        if made is None:
            return None
        audit.vended(call.principal.name, call.operation, call.id, made.prefix, rights)
        return renewed(made, call.names["prefix"], names)

    def _rights(self, call: Call, path: tuple[str, ...], location: str) -> tuple[str, ...]:
        """Return the rights that the user has now on a table's files. They are checked again for each request."""
        if not self._actors.authorization:
            return RIGHTS
        store, user = self._actors.of(call.principal, swaps=True), (call.principal.name,)
        if store._session.access is None:  # noqa: SLF001  (the same package)
            return RIGHTS  # the rights of an admin
        try:
            table = store.tables.load(path)
            # since the location was read, the user may have made another table of this name, and would own that one
            if pointer_of(table) is None or (table.location or location).rstrip("/") != location.rstrip("/"):
                raise ServiceUnavailableError("the table or its folder was replaced meanwhile; ask again")
            return tuple(right for right in RIGHTS if store.allowed(user, right, table))
        except (MetastoreError, ServiceUnavailableError):
            if call.is_read:
                raise
            return ()  # the table has been created, so an error would be wrong

    @property
    def checked(self) -> bool:
        """Whether each request is limited to the rights of its user."""
        return self._actors.authorization

    def prefixes(self) -> list[str]:
        """Return the prefixes of the paths of all warehouses that have a folder."""
        return [format_path(root) for root in self._places]

    def prefix(self, warehouse: str | None, principal: Principal) -> str:
        """Return the prefix of a warehouse's paths; without a name, of the first warehouse that the client sees.

        Raises EntityNotFound if the client sees no such catalog, InvalidArgument without a name and without
        warehouses.
        """
        if not warehouse:
            if not self._places:
                raise InvalidArgument("name a warehouse: ?warehouse=metalake.catalog")
            seen = next((root for root in self._places if self._actors.sees(principal, root)), None)
            if seen is None:
                raise EntityNotFound("warehouse", "you see no warehouse of this server; ask for rights on its catalog")
            return format_path(seen)
        root = _root(warehouse)
        if not self._actors.sees(principal, root):
            raise EntityNotFound(warehouse, f"there is no warehouse {warehouse}; create the catalog first")
        return format_path(root)

    def once(self, call: Call) -> Once:
        """Return the attempts of a request under its idempotency key. A request that only reads has no key."""
        text = None if call.is_read else _idempotency_key(call)
        return Once(self._store, text, call.principal.key, call.operation)

    def catalog(self, call: Call, once: Once | None = None) -> MetastoreCatalog:
        """Return the catalog that the request's path names, for this one request."""
        root = _root(call.names["prefix"])
        properties = dict(self._properties)
        if place := self._places.get(root):
            properties["warehouse"] = place
        if source := self._sources.get(root):
            properties |= source.properties()
        store = self._actors.of(call.principal, swaps=True)
        merging = call.headers.get(_MERGE, "").strip().lower() == "true"
        return MetastoreCatalog.of_store(
            *(store, root, properties, once),
            leases=self._store.leases,
            neighbours=self._neighbours,
            allowed=self._allowed,
            merging=merging,
            of_users=self.checked,
        )


def _idempotency_key(call: Call) -> str | None:
    """Return the idempotency key of a request; None without one."""
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
