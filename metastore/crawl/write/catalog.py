"""The crawler's access to the store: the only part that reads and writes tables.

:class:`StoreCatalog` finds many data sets in few round trips and creates many new tables in one commit. It writes
any other plan in one transaction: the table, its partitions, the statistic ``crawl`` and the row of the data set. The
transaction validates what it read, so a plan never overwrites a change that it did not see; after a lost race the
crawler plans again. The row's unique name keeps two crawls from creating two tables for one location.

``open_catalog`` keeps one store open for each worker process and crawl, for Spark uses a worker for many tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

import metastore
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.dataset.figures import STATISTIC
from metastore.crawl.files.places import location_of
from metastore.crawl.policies import OnTypeChange
from metastore.crawl.read.signatures import location_row, row_name
from metastore.crawl.write.commit import Applied, CatalogState, Decide, NewDataset, Overtaken, Request
from metastore.crawl.write.plan import StoredPart, StoredTable, TablePlan, partitioning_of, properties_of
from metastore.crawl.write.sources import is_newer, is_same, source_fields, unused_fields
from metastore.errors import EntityAlreadyExists, EntityNotFound, NotInUse, VersionConflict
from metastore.kinds.catalog import Catalog
from metastore.kinds.entity import Entity
from metastore.kinds.source import Source
from metastore.kinds.table.kind import Table
from metastore.managers.sources import NewTable
from metastore.names import format_path

__all__ = ["StoreCatalog", "check_target", "open_catalog", "prepare"]

Names = tuple[str, ...]
_TRIES: Final = 10
"""How often a table is planned again because another process changed it, before the crawler gives up."""

_open: dict[tuple[int, str], StoreCatalog] = {}


def check_target(store: metastore.Store, target: Names) -> None:
    """Raise NotInUse if the metalake or the catalog is disabled. Runs before any file is read."""
    metalake, catalog = store.metalakes.load_many([target[:1]])[0], store.catalogs.load_many([target[:2]])[0]
    for above in (metalake, catalog):
        if above is not None and not above.in_use:
            message = f"the {above.kind} {above.path} is disabled; enable it before it is crawled into"
            raise NotInUse(message, kind=above.kind)


def prepare(store: metastore.Store, target: Names) -> None:
    """Create the metalake, catalog and schema of ``target`` if they are missing."""
    if not store.metalakes.exists(target[:1]):
        store.metalakes.create(target[:1], if_exists="return")
    if not store.catalogs.exists(target[:2]):
        store.catalogs.create(target[:2], type="relational", if_exists="return")
    if len(target) > 2 and not store.schemas.exists(target):
        store.schemas.create(target, parents=True, if_exists="return")


def open_catalog(
    url: str,
    principal: str | None,
    crawl_id: str,
    policy: OnTypeChange = "report",
    run: str | None = None,
    listed: int = 0,
) -> StoreCatalog:
    """Return this process's catalog on ``url`` for one crawl; close the previous crawl's catalog."""
    key = (os.getpid(), crawl_id)
    if key not in _open:
        for old in [old for old in _open if old[0] == key[0]]:
            _open.pop(old).close()
        _open[key] = StoreCatalog(metastore.open(url, principal=principal), policy, run, listed)
    return _open[key]


class StoreCatalog:
    """The catalog in an open store. ``run`` is the name of the crawl's record, ``listed`` when it began to list."""

    def __init__(
        self, store: metastore.Store, policy: OnTypeChange = "report", run: str | None = None, listed: int = 0
    ) -> None:
        self.store = store
        self.policy: OnTypeChange = policy
        self.run, self.listed = run, listed
        self._catalogs: dict[Names, Catalog] = {}
        self._schemas: dict[Names, Entity] = {}

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # --- reading

    def locations(self, paths: Sequence[Names]) -> dict[Names, str | None]:
        """Return the location of each table that exists at one of these paths."""
        tables = self.store.tables.load_many(paths) if paths else []
        return {path: table.location for path, table in zip(paths, tables, strict=True) if table is not None}

    def schemas(self, paths: Sequence[Names]) -> set[Names]:
        """Return which of these schemas exist."""
        schemas = self.store.schemas.load_many(paths) if paths else []
        there = {path: schema for path, schema in zip(paths, schemas, strict=True) if schema is not None}
        self._schemas |= there
        return set(there)

    def catalog(self, names: Names) -> Catalog | None:
        """Return the catalog at ``names``, as it was at the first call; None if it does not exist."""
        if names not in self._catalogs:
            (catalog,) = self.store.catalogs.load_many([names])
            if catalog is None:
                return None
            self._catalogs[names] = catalog
        return self._catalogs[names]

    def find(self, datasets: Sequence[Dataset], unseen: AbstractSet[str] = frozenset()) -> list[CatalogState]:
        """Return the state of each data set. Find it by location, else by path unless its location is ``unseen``."""
        catalog = self.catalog(datasets[0].path[:2]) if datasets else None
        if catalog is None:
            return [CatalogState()] * len(datasets)
        rows = self.store.sources.load_many(catalog, [row_name(dataset.location) for dataset in datasets])
        tables, drops = self._tables(datasets, rows, unseen)
        figures = self._figures([table for table in tables if table is not None])
        dropping = [row is not None and row.own_table in drops for row in rows]
        stored = [None if t is None else _stored(t, _parts(self.store, t), figures.get(t.id)) for t in tables]
        return [CatalogState(*state) for state in zip(stored, rows, dropping, strict=True)]

    def _tables(
        self, datasets: Sequence[Dataset], rows: Sequence[Source | None], unseen: AbstractSet[str]
    ) -> tuple[list[Table | None], set[int]]:
        """Return each row's table if its location fits, else the table at its path; and the ids of tables in drops."""
        ids = [row.own_table for row in rows if row is not None and row.own_table is not None]
        live, drops = self.store.sources.tables_and_drops(ids)
        by_id = {table.id: table for table in live if table is not None}
        tables = [None if row is None else by_id.get(row.own_table or 0) for row in rows]
        for at, (dataset, row) in enumerate(zip(datasets, rows, strict=True)):
            table = tables[at]
            if table is None or row is None:
                continue
            if table.location != location_of(dataset.location) or not row.leads_to(table):
                tables[at] = None
        missing = [at for at, dataset in enumerate(datasets) if tables[at] is None and dataset.location not in unseen]
        there = self.store.tables.load_many([datasets[at].path for at in missing]) if missing else []
        for at, table in zip(missing, there, strict=True):
            tables[at] = table
        return tables, drops

    def _figures(self, tables: Sequence[Table]) -> dict[int, Mapping[str, Any]]:
        statistics = self.store.sources.figures([table.id for table in tables], STATISTIC)
        return {t.id: dict(s.values) for t, s in zip(tables, statistics, strict=True) if s is not None}

    # --- writing

    def is_overtaken(self, state: CatalogState) -> bool:
        """Return whether a crawl that listed later has written the row."""
        return is_newer(state.source, self.listed)

    def _wrote(self, catalog: Catalog) -> dict[str, Any]:
        """Return the fields of a row that say which crawl wrote it, and for which catalog."""
        return {"run": self.run, "listed": self.listed, "catalog": catalog.id}

    def is_settled(self, dataset: Dataset, state: CatalogState, plan: TablePlan) -> bool:
        """Return whether the plan would change neither the table nor its row."""
        if not plan.is_empty or state.table is None:
            return False
        fields = source_fields(dataset, plan, state.table, state.source, self.policy)
        return is_same({**fields, "table": state.table.id, "table_version": state.table.version}, state.source)

    def create(self, new: Sequence[NewDataset]) -> bool:
        """Create new tables in one commit. Return False, and write nothing, if another process was faster."""
        catalog = self.catalog(new[0][0].path[:2])
        if catalog is None:
            return False
        parents = self._ensure_schemas({dataset.path[:-1] for dataset, _, _ in new})
        rows = [self._new_table(catalog, one, parents[one[0].path[:-1]]) for one in new]
        try:
            self.store.sources.register(catalog, rows)
        except (EntityAlreadyExists, EntityNotFound, VersionConflict):
            self._catalogs.clear()
            self._schemas.clear()
            return False
        return True

    def _ensure_schemas(self, paths: Iterable[Names]) -> dict[Names, Entity]:
        """Return the schemas; create those that are missing."""
        wanted = [path for path in sorted(paths) if path not in self._schemas]
        for path in sorted(set(wanted) - self.schemas(wanted)):
            self._schemas[path] = self.store.schemas.create(path, parents=True, if_exists="return")
        return self._schemas

    def _new_table(self, catalog: Catalog, new: NewDataset, parent: Entity) -> NewTable:
        dataset, state, plan = new
        fields = source_fields(dataset, plan, None, state.source, self.policy) | self._wrote(catalog)
        return NewTable(
            parent=parent,
            name=dataset.path[-1],
            fields=_fields(dataset),
            properties=properties_of(dataset),
            partitions={name: (part.values, part.properties) for name, part in plan.parts.items()},
            statistics={} if plan.seen is None else {STATISTIC: plan.seen},
            source=row_name(dataset.location),
            source_id=0 if state.source is None else state.source.id,
            source_version=0 if state.source is None else state.source.version,
            source_of=lambda table_id: {**fields, "table": table_id, "table_version": 1},
        )

    def note_unused(self, path: Names, unused: Sequence[tuple[str, str | None]]) -> None:
        """Record the files that could not be used, by location and signature."""
        catalog = self.catalog(path[:2])
        if catalog is None:
            return
        names = [row_name(location) for location, _ in unused]

        def differing(rows: Sequence[Source | None]) -> dict[str, dict[str, Any]]:
            fields = [unused_fields(*one, row) for one, row in zip(unused, rows, strict=True)]
            return {
                name: {**own, **self._wrote(catalog)}
                for name, own, row in zip(names, fields, rows, strict=True)
                if not (is_newer(row, self.listed) or is_same(own, row))
            }

        def note(tx: Any) -> None:
            put = differing(tx.sources.load_many(catalog, names))
            tx.sources.put_many(catalog, [tx.sources.row(name, **fields) for name, fields in put.items()])

        if differing(self.store.sources.load_many(catalog, names)):
            self.store.run(note)

    def apply(self, dataset: Dataset, state: CatalogState, decide: Decide) -> Applied:
        """Plan and write one data set in a transaction; plan again when a race is lost.

        Raises VersionConflict, EntityAlreadyExists or EntityNotFound when other processes win the race ten times, and
        Overtaken when one of them is a crawl that listed later.
        """
        attempts = 0

        def write(tx: Any) -> Applied:
            nonlocal attempts
            attempts += 1  # the store calls this once for each attempt: so this data set counts its own attempts
            (written,) = self._write_all(tx, [(dataset, state, decide)])
            return written

        left = _TRIES
        while True:
            try:
                done = self.store.run(write)
                return replace(done, attempts=done.attempts + attempts - 1, conflicts=attempts - 1)
            except (EntityAlreadyExists, EntityNotFound, VersionConflict):
                left -= 1
                if not left:
                    raise
            self._catalogs.clear()
            (state,) = self.find([dataset])  # another process was faster: read its state, and try again

    def apply_together(self, requests: Sequence[Request]) -> list[Applied] | None:
        """Plan and write several data sets in one transaction. Return None if a race is lost: nothing is written."""
        try:
            with self.store.transaction() as tx:
                done = self._write_all(tx, requests)
        except (EntityAlreadyExists, EntityNotFound, VersionConflict):
            self._catalogs.clear()
            return None
        wrote = any(one.attempts for one in done)
        return [replace(one, attempts=int(wrote and at == 0)) for at, one in enumerate(done)]

    def _write_all(self, tx: Any, requests: Sequence[Request]) -> list[Applied]:
        """Plan against the rows that the transaction reads, and write the plans.

        A plan that writes nothing has 0 attempts.

        The commit validates the reads that are made here. So an absent table is created without a read: to validate a
        missing name would block other writers of the schema. Partitions come from an earlier listing, and are listed
        again if the plan writes any: people may have changed them since.
        """
        first = requests[0][0].path
        catalog = self.catalog(first[:2])
        if catalog is None:
            raise EntityNotFound(format_path(first[:2]))
        sources = tx.sources.load_many(catalog, [row_name(dataset.location) for dataset, _, _ in requests])
        ids = [state.table.id for _, state, _ in requests if state.table is not None]
        tables = {table.id: table for table in tx.sources.tables(ids) if table is not None}
        figures = dict(zip(ids, tx.sources.figures(ids, STATISTIC), strict=True))
        done, rows, drop = list[Applied](), [], list[str]()
        for (dataset, state, decide), source in zip(requests, sources, strict=True):
            state.check()
            if is_newer(source, self.listed):
                raise Overtaken(dataset.location)
            if _version(source) != _version(state.source):
                raise _changed(dataset, "its row has changed")
            table, stored = None, None
            if state.table is not None:
                table, seen = tables.get(state.table.id), figures[state.table.id]
                if table is None:
                    raise _changed(dataset, "its table was dropped")
                stored = _stored(table, state.table.parts, None if seen is None else dict(seen.values))
            stored, plan = _planned(tx, table, stored, decide)
            table = _write_table(tx, dataset, table, plan)
            fields = source_fields(dataset, plan, stored, source, self.policy)
            fields |= {"table": table.id, "table_version": table.version}
            differs = not is_same(fields, source)
            done.append(Applied(plan, table.names, table.version, attempts=int(differs or not plan.is_empty)))
            if differs:
                rows.append(tx.sources.row(row_name(dataset.location), **fields, **self._wrote(catalog)))
                drop += _left_behind(dataset, stored)
        if rows:
            tx.sources.put_many(catalog, rows, drop)
        return done


def _planned(
    tx: Any, table: Table | None, stored: StoredTable | None, decide: Decide
) -> tuple[StoredTable | None, TablePlan]:
    """Return the plan, and the table that it was made against, with the partitions that it changes."""
    plan = decide(stored)
    if table is None or stored is None or not (plan.parts or plan.removed):
        return stored, plan
    stored = replace(stored, parts=_parts(tx, table))
    plan = decide(stored)
    if plan.removed:
        stored = replace(stored, parts=_measured(tx, table, stored.parts, plan.removed))
        plan = decide(stored)
    return stored, plan


def _left_behind(dataset: Dataset, stored: StoredTable | None) -> list[str]:
    """Return the row name of the table's previous location, if it has moved."""
    there = None if stored is None else stored.location
    return [] if there in (None, location_of(dataset.location)) else [location_row(str(there))]


def _write_table(tx: Any, dataset: Dataset, table: Table | None, plan: TablePlan) -> Table:
    """Write the table, its partitions and its statistic; return it."""
    if table is None:
        table = tx.tables.create(dataset.path, properties=properties_of(dataset), parents=True, **_fields(dataset))
    elif plan.changes:
        table = tx.tables.alter(table, *plan.changes)
    _write_owned(tx, table, plan)
    return table


def _write_owned(tx: Any, table: Table, plan: TablePlan) -> None:
    if plan.parts or plan.removed:
        rows = [tx.partitions.row(name, part.values, part.properties) for name, part in plan.parts.items()]
        tx.partitions.put_many(table, rows, plan.removed)
    if plan.seen is not None:
        tx.statistics.put_many(table, [tx.statistics.row(STATISTIC, plan.seen)])


def _version(row: Source | None) -> int:
    return 0 if row is None else row.version


def _changed(dataset: Dataset, why: str) -> VersionConflict:
    return VersionConflict(
        dataset.location, None, None, f"{dataset.location}: {why}: another process was faster; crawl again"
    )


def _fields(dataset: Dataset) -> dict[str, Any]:
    return {
        "columns": dataset.columns,
        "partitioning": partitioning_of(dataset),
        "location": location_of(dataset.location),
        "format": dataset.format,
    }


def _parts(managers: Any, table: Table) -> dict[str, StoredPart]:
    parts = managers.partitions.list(table) if table.partitioning else ()
    return {part.name: StoredPart(dict(part.values), dict(part.properties)) for part in parts}


def _measured(
    managers: Any, table: Table, parts: Mapping[str, StoredPart], names: Sequence[str]
) -> dict[str, StoredPart]:
    """Return the partitions; those of ``names`` say whether they have statistics."""
    statistics = managers.statistics.of_partitions(table, names)
    return {**parts, **{name: replace(parts[name], measured=True) for name in names if statistics.get(name)}}


def _stored(table: Table, parts: Mapping[str, StoredPart], seen: Mapping[str, Any] | None) -> StoredTable:
    """Return the table as the plan compares it."""
    return StoredTable(
        columns=table.columns,
        partitioning=table.partitioning,
        location=table.location,
        format=table.format,
        properties=table.properties,
        parts=parts,
        seen=seen,
        version=table.version,
        id=table.id,
        names=table.names,
    )
