"""The managers of the crawler's own rows: the table of each data set, and the results of each crawl.

Both are owned rows of the catalog that the crawler writes to. :meth:`Sources.register` creates many tables in one
commit, with their partitions, statistics and sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Unpack, cast

from metastore.arguments import integer, items, positive_integer, shown
from metastore.errors import InvalidArgument, VersionConflict
from metastore.kinds.catalog import CATALOG, Catalog
from metastore.kinds.crawl import CRAWL, Crawl
from metastore.kinds.entity import Entity
from metastore.kinds.kind import OwnedKind, dump
from metastore.kinds.partition import PARTITION
from metastore.kinds.registry import OWNED_KINDS, RELATIONSHIPS
from metastore.kinds.relation import relation_named
from metastore.kinds.source import SOURCE, Source
from metastore.kinds.statistic import STATISTIC, Statistic
from metastore.kinds.table.kind import TABLE, Table
from metastore.managers.attempts.create import new_entity
from metastore.managers.options import CallOptions, call_of, shows_options
from metastore.managers.owned import OwnedManager
from metastore.managers.pages.listing import owner_pages
from metastore.managers.pages.page import just_before
from metastore.managers.relations.ends import end_of
from metastore.managers.relations.reads import live_relating
from metastore.managers.secrets.sealing import seal_in_hand
from metastore.managers.target import in_hand
from metastore.names import clean_text, format_path
from metastore.operation.guards import both, check_in_use
from metastore.operation.perform import perform
from metastore.operation.request import Proposal, Request, View
from metastore.operation.seals import Seal
from metastore.operation.session import ManagerSession
from metastore.port.records import Node, OwnedRecord
from metastore.port.relations import End, RelationRecord, in_one_metalake
from metastore.port.writes import Event, Put, Write
from metastore.secrets.sealer import bound

_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table to create below ``parent``, with its partitions, statistics and source.

    ``source`` is the name of its source. ``source_id`` and ``source_version`` are the id and version of the source's
    row (0: it does not exist yet). ``source_of`` returns the source's fields for the table's id.
    """

    parent: Entity
    name: str
    fields: Mapping[str, Any]
    properties: Mapping[str, str]
    partitions: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]
    statistics: Mapping[str, Mapping[str, Any]]
    source: str
    source_id: int
    source_version: int
    source_of: Callable[[int], Mapping[str, Any]]


class Sources(OwnedManager[Source]):
    """The table of each data set, by the name of its location."""

    def __init__(self, session: ManagerSession) -> None:
        super().__init__(session, SOURCE, CATALOG)

    def now(self) -> int:
        """Return the database's time, in microseconds since 1970."""
        return self._session.of_store().backend.now()

    def row(self, name: str, **fields: Any) -> Any:
        """Return a source for ``put_many``."""
        return self._document(name, None, {}, fields)

    def load_many(self, catalog: Catalog, names: Sequence[str]) -> list[Source | None]:
        """Return the row of each name (None: no row), in one round trip."""
        backend, names = (
            self._session.backend,
            [clean_text(name, "the name of a source") for name in items(names, "names")],
        )
        ids = [_in_hand(catalog).id] * len(names)
        rows = in_hand(backend, catalog, lambda: backend.owned_by_name(ids, SOURCE.name, names)) if names else []
        return [record and Source(record) for record in rows]

    def below(self, catalog: Catalog, prefix: str) -> Iterator[Source]:
        """Yield the rows whose names begin with ``prefix``, by name."""
        prefix = clean_text(prefix, "a prefix")
        before = just_before(prefix.rstrip("\x00"))
        backend = self._session.backend

        def read(above: Node, last: OwnedRecord | None, guards: Any) -> Any:
            return backend.owned(above.id, SOURCE.name, before if last is None else last.name, _PAGE, guards), _PAGE

        for _, record in owner_pages(backend, self._owner, catalog, read):
            if record.name >= prefix and not record.name.startswith(prefix):
                return
            if record.name.startswith(prefix):
                yield Source(record)

    def tables(self, ids: Sequence[int]) -> list[Table | None]:
        """Return the live table of each id, or None, in one round trip."""
        return self.tables_and_drops(ids)[0]

    def tables_and_drops(self, ids: Sequence[int]) -> tuple[list[Table | None], set[int]]:
        """Return the live table of each id, or None, and the ids of those that are being dropped in steps."""
        ids = _ids(ids)
        rows = self._session.backend.by_id(ids) if ids else []
        alive = [known.record if known is not None and known.live else None for known in rows]
        origin = self._session.backend.origin
        tables = [Table(r, origin) if r is not None and r.chain[-1].kind == TABLE.name else None for r in alive]
        return tables, {id_ for id_, known in zip(ids, rows, strict=True) if known is not None and known.dropping}

    def figures(self, tables: Sequence[int], name: str) -> list[Statistic | None]:
        """Return the statistic ``name`` of each table, or None, in one round trip."""
        tables, name = _ids(tables), clean_text(name, "the name of a statistic")
        rows = self._session.backend.owned_by_name(tables, STATISTIC.name, [name] * len(tables)) if tables else []
        return [record and Statistic(record) for record in rows]

    def relations(self, table: Table) -> Iterator[tuple[RelationRecord, End]]:
        """Yield each live relation that goes from a table or leads to it, with its other end."""
        backend, kind = self._session.backend, TABLE.name
        entity_id = _table_in_hand(table).id
        for name in RELATIONSHIPS:
            relation = relation_named(name)
            if not relation.from_kinds or kind in relation.from_kinds:
                read = partial(backend.related, entity_id, name, above=False, doc=False)
                related = in_hand(backend, table, read)
                if related is not None:
                    yield from ((row, far) for row, far in related.rows if in_one_metalake(related.end, far))
            if not relation.to_kinds or kind in relation.to_kinds:
                yield from ((row, far) for row, far, _, _ in live_relating(backend, relation, end_of(table, (kind,))))

    def rows(self, table: Table) -> Iterator[OwnedRecord]:
        """Yield each row that a table owns, whatever its kind."""
        backend = self._session.backend
        entity_id = _table_in_hand(table).id
        for kind in OWNED_KINDS:
            last = ""
            while page := in_hand(backend, table, partial(backend.owned, entity_id, kind, last, _PAGE, ())).rows:
                yield from page
                last = page[-1].name

    @shows_options(CallOptions)
    def register(self, catalog: Catalog, tables: Sequence[NewTable], **options: Unpack[CallOptions]) -> list[int]:
        """Create all of ``tables`` in one commit; return their ids.

        If one of them cannot be created, the call writes nothing, and raises VersionConflict.
        """
        tables = items(tables, "tables")
        if not all(isinstance(new, NewTable) for new in tables):
            raise InvalidArgument("tables are values of NewTable, one for each table that is created")
        call = call_of(options)
        seal = seal_in_hand(self._session, _in_hand(catalog))  # the call trusts and guards the caller's catalog
        ids = self._session.of_store().backend.reserve_ids(len(tables))
        writes: list[Write] = [write for id_, new in zip(ids, tables, strict=True) for write in _writes(id_, new, seal)]
        writes += [
            self._source(catalog, id_, new)
            for id_, new in sorted(zip(ids, tables, strict=True), key=lambda one: one[1].source)
        ]
        entities = (catalog, *{new.parent.id: new.parent for new in tables}.values())
        chains = [entity.record.chain for entity in entities]
        guards = both(*chains)  # the older scope version of each: the entities may have been loaded at different times

        def attempt(view: View) -> Proposal[list[int]]:
            for chain in chains:
                check_in_use(chain)
            if not all(view.trusts(entity) for entity in entities):
                message = f"others were at work below {catalog.path} meanwhile; look again"
                raise VersionConflict(catalog.path, None, None, message)
            return Proposal(guards, tuple(writes), lambda _: ids)

        request = Request[list[int]](
            verb="register",
            what=lambda: f"register {len(tables)} tables",
            attempt=attempt,
            replay=lambda _: ids,
            arguments=lambda: [catalog.id, ids],
        )
        return perform(self._session, request, call)

    def _source(self, catalog: Catalog, table_id: int, new: NewTable) -> Put:
        text = dump(SOURCE.document(None, {}, new.source_of(table_id)), (new.source,))
        path = format_path((*catalog.names, new.source))
        event = Event(SOURCE.name, "alter", path, path) if new.source_version else self.event("create", None, path)
        return Put(catalog.id, SOURCE.name, new.source, new.source_version, text, event, new.source_id)


def _table_in_hand(table: Any) -> Table:
    if not isinstance(table, Table):
        raise InvalidArgument(f"a table is an entity that was loaded, not {shown(table)}")
    return table


def _in_hand(catalog: object) -> Catalog:
    """Return ``catalog`` if it is a loaded catalog. Raises InvalidArgument."""
    if not isinstance(catalog, Catalog):
        raise InvalidArgument(f"a catalog is given as store.catalogs.load() returns it, not as {shown(catalog)}")
    return catalog


def _ids(given: Sequence[int]) -> list[int]:
    return [integer(one, "the id of a table") for one in items(given, "ids of tables")]


def _writes(table_id: int, new: NewTable, seal: Seal) -> Iterator[Write]:
    parent = new.parent.record.chain[-1]
    names = (*new.parent.names, new.name)
    text = dump(TABLE.document(None, _properties(table_id, seal, new.properties), new.fields), names)
    yield replace(new_entity(TABLE, parent, names, text, parent.fold), id=table_id)
    for name, (values, properties) in new.partitions.items():
        doc = PARTITION.document(None, _properties(table_id, seal, properties), {"values": values})
        yield _owned(table_id, PARTITION, names, name, doc)
    for name, figures in new.statistics.items():
        yield _owned(table_id, STATISTIC, names, name, STATISTIC.document(None, {}, {"values": figures}))


def _properties(table_id: int, seal: Seal, given: Mapping[str, str]) -> Mapping[str, str]:
    sealed = seal.properties(given)
    return {**sealed, **bound(sealed, table_id, {})}


def _owned(owner_id: int, kind: OwnedKind, names: tuple[str, ...], name: str, doc: Mapping[str, Any]) -> Put:
    path = (*names, name)
    return Put(owner_id, kind.name, name, 0, dump(doc, path), Event(kind.name, "create", None, format_path(path)))


class Crawls(OwnedManager[Crawl]):
    """The results of each crawl into a catalog, each named by the time at which the crawl began."""

    def __init__(self, session: ManagerSession) -> None:
        super().__init__(session, CRAWL, CATALOG)

    def row(self, name: str, state: str, values: Mapping[str, Any]) -> Any:
        """Return a run for ``put_many``."""
        return self._document(name, None, {}, {"state": state, "values": values})

    def newest(self, catalog: Catalog | str, limit: int) -> list[Crawl]:
        """Return the newest runs, the newest first."""
        limit = positive_integer(limit, "a limit")
        rows = cast(list[Crawl], list(self.list(catalog)))
        return rows[: -limit - 1 : -1]
