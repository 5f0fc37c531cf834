"""The only part of the crawler that calls the store for tables: what it needs of it, and nothing else.

:class:`StoreCatalog` finds many data sets in few round trips, makes many new tables in one commit, and writes any
other plan in one transaction: the table, its partitions, the statistic ``crawl`` and the row of the data set. The
transaction validates what was read, so that a plan never overwrites what it did not see: it is made anew on what is
there then. The row's unique name keeps two crawls from making two tables for one location.

``open_catalog`` keeps one store open per worker process and crawl: Spark uses a worker for many tasks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import metastore
from metastore.crawl.dataset.dataset import Dataset
from metastore.crawl.dataset.figures import STATISTIC
from metastore.crawl.files.places import location_of
from metastore.crawl.policies import OnTypeChange
from metastore.crawl.read.signatures import location_row, row_name
from metastore.crawl.write.commit import Applied, Decide, Found
from metastore.crawl.write.plan import Plan, StoredPart, StoredTable, partitioning_of, properties_of
from metastore.crawl.write.sources import is_same, source_fields, unused_fields
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
"""How often a table is planned anew because others changed it, before it is given up."""

_open: dict[tuple[int, str], StoreCatalog] = {}


def check_target(store: metastore.Store, target: Names) -> None:
    """Raise NotInUse where nothing can be written, before anything is read."""
    metalake, catalog = store.metalakes.load_many([target[:1]])[0], store.catalogs.load_many([target[:2]])[0]
    for above in (metalake, catalog):
        if above is not None and not above.in_use:
            raise NotInUse(f"the {above.kind} {above.path} is disabled; enable it before it is crawled into")


def prepare(store: metastore.Store, target: Names) -> None:
    """Create the metalake, catalog and schema of ``target``, as far as they are missing."""
    if not store.metalakes.exists(target[:1]):
        store.metalakes.create(target[:1], if_exists="return")
    if not store.catalogs.exists(target[:2]):
        store.catalogs.create(target[:2], type="relational", if_exists="return")
    if len(target) > 2 and not store.schemas.exists(target):
        store.schemas.create(target, parents=True, if_exists="return")


def open_catalog(
    url: str, principal: str | None, crawl_id: str, policy: OnTypeChange = "report", run: str | None = None
) -> StoreCatalog:
    """Return this process's catalog on ``url`` for one crawl; close that of the crawl before it."""
    key = (os.getpid(), crawl_id)
    if key not in _open:
        for old in [old for old in _open if old[0] == key[0]]:
            _open.pop(old).close()
        _open[key] = StoreCatalog(metastore.open(url, principal=principal), policy, run)
    return _open[key]


class StoreCatalog:
    """The catalog behind an open store. ``run`` is the name of the crawl's record."""

    def __init__(self, store: metastore.Store, policy: OnTypeChange = "report", run: str | None = None) -> None:
        self.store = store
        self.policy: OnTypeChange = policy
        self.run = run
        self._catalogs: dict[Names, Catalog] = {}
        self._schemas: dict[Names, Entity] = {}

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # --- reading

    def locations(self, paths: Sequence[Names]) -> dict[Names, str | None]:
        """Return the locations of the tables that are at these paths."""
        found = self.store.tables.load_many(paths) if paths else []
        return {path: table.location for path, table in zip(paths, found, strict=True) if table is not None}

    def schemas(self, paths: Sequence[Names]) -> set[Names]:
        """Return which of these schemas there are."""
        found = self.store.schemas.load_many(paths) if paths else []
        there = {path: schema for path, schema in zip(paths, found, strict=True) if schema is not None}
        self._schemas |= there
        return set(there)

    def catalog(self, names: Names) -> Catalog | None:
        """Return the catalog at ``names``, as it was when it was first asked for."""
        if names not in self._catalogs:
            (found,) = self.store.catalogs.load_many([names])
            if found is None:
                return None
            self._catalogs[names] = found
        return self._catalogs[names]

    def find(self, wanted: Sequence[Dataset], unseen: AbstractSet[str] = frozenset()) -> list[Found]:
        """Return what there is of data sets: by location, else by path, but for the locations in ``unseen``."""
        catalog = self.catalog(wanted[0].path[:2]) if wanted else None
        if catalog is None:
            return [Found()] * len(wanted)
        rows = self.store.sources.load_many(catalog, [row_name(found.location) for found in wanted])
        tables = self._tables(wanted, rows, unseen)
        figures = self._figures([table for table in tables if table is not None])
        return [
            Found(None if t is None else _stored(t, _parts(self.store, t), figures.get(t.id)), row)
            for t, row in zip(tables, rows, strict=True)
        ]

    def _tables(
        self, wanted: Sequence[Dataset], rows: Sequence[Source | None], unseen: AbstractSet[str]
    ) -> list[Table | None]:
        """Return the table that each row leads to, if it is of that location still; else the one at the path."""
        ids = [row.table for row in rows if row is not None and row.table is not None]
        by_id = {table.id: table for table in self.store.sources.tables(ids) if table is not None}
        tables = [None if row is None or row.table is None else by_id.get(row.table) for row in rows]
        for at, found in enumerate(wanted):
            table = tables[at]
            if table is not None and table.location != location_of(found.location):
                tables[at] = None
        missing = [at for at, found in enumerate(wanted) if tables[at] is None and found.location not in unseen]
        there = self.store.tables.load_many([wanted[at].path for at in missing]) if missing else []
        for at, table in zip(missing, there, strict=True):
            tables[at] = table
        return tables

    def _figures(self, tables: Sequence[Table]) -> dict[int, Mapping[str, Any]]:
        found = self.store.sources.figures([table.id for table in tables], STATISTIC)
        return {t.id: dict(s.values) for t, s in zip(tables, found, strict=True) if s is not None}

    # --- writing

    def is_settled(self, found: Dataset, known: Found, made: Plan) -> bool:
        """Whether neither table nor row would be another with this plan."""
        if not made.is_empty or known.table is None:
            return False
        fields = source_fields(found, made, known.table, known.source, self.policy, self.run)
        return is_same({**fields, "table": known.table.id, "table_version": known.table.version}, known.source)

    def create(self, new: Sequence[tuple[Dataset, Found, Plan]]) -> bool:
        """Make new tables in one commit; False: something was in the way, and nothing was written."""
        catalog = self.catalog(new[0][0].path[:2])
        if catalog is None:
            return False
        parents = self._ensure_schemas({found.path[:-1] for found, _, _ in new})
        rows = [self._new_table(found, known, made, parents[found.path[:-1]]) for found, known, made in new]
        try:
            self.store.sources.register(catalog, rows)
        except (EntityAlreadyExists, EntityNotFound, VersionConflict):
            self._catalogs.clear()
            self._schemas.clear()
            return False
        return True

    def _ensure_schemas(self, paths: Iterable[Names]) -> dict[Names, Entity]:
        """Return the schemas, created where they are missing."""
        wanted = [path for path in sorted(paths) if path not in self._schemas]
        for path in sorted(set(wanted) - self.schemas(wanted)):
            self._schemas[path] = self.store.schemas.create(path, parents=True, if_exists="return")
        return self._schemas

    def _new_table(self, found: Dataset, known: Found, made: Plan, parent: Entity) -> NewTable:
        fields = source_fields(found, made, None, known.source, self.policy, self.run)
        return NewTable(
            parent=parent,
            name=found.path[-1],
            fields=_fields(found),
            properties=properties_of(found),
            partitions={name: (part.values, part.properties) for name, part in made.parts.items()},
            statistics={} if made.seen is None else {STATISTIC: made.seen},
            source=row_name(found.location),
            source_id=0 if known.source is None else known.source.id,
            source_version=0 if known.source is None else known.source.version,
            source_of=lambda table_id: {**fields, "table": table_id, "table_version": 1},
        )

    def note_unused(self, path: Names, unused: Sequence[tuple[str, str | None]]) -> None:
        """Write down which files could not be used, by location and signature."""
        catalog = self.catalog(path[:2])
        if catalog is None:
            return
        names = [row_name(location) for location, _ in unused]

        def differing(rows: Sequence[Source | None]) -> dict[str, dict[str, Any]]:
            fields = [unused_fields(*one, row, self.run) for one, row in zip(unused, rows, strict=True)]
            return {n: f for n, f, row in zip(names, fields, rows, strict=True) if not is_same(f, row)}

        def note(tx: Any) -> None:
            put = differing(tx.sources.load_many(catalog, names))
            tx.sources.put_many(catalog, [tx.sources.row(name, **fields) for name, fields in put.items()])

        if differing(self.store.sources.load_many(catalog, names)):
            self.store.run(note)

    def apply(self, found: Dataset, known: Found, decide: Decide) -> Applied:
        """Decide, and write the plan, in one transaction; again when a race is lost."""
        before = Counter(self.store.counters)
        for left in reversed(range(_TRIES)):
            try:
                ((plan, names, version),) = self.store.run(
                    lambda tx: self._write_all(tx, [(found, known, decide)])  # noqa: B023
                )
                break
            except (EntityAlreadyExists, EntityNotFound, VersionConflict):
                if not left:
                    raise
            self._catalogs.clear()
            (known,) = self.find([found])  # others were faster
        after = Counter(self.store.counters)
        after.subtract(before)
        lost = sum(count for cause, count in after.items() if cause.startswith("conflicts_"))
        return Applied(plan, names, version, after["attempts"], lost)

    def apply_together(self, wishes: Sequence[tuple[Dataset, Found, Decide]]) -> list[Applied] | None:
        """Decide, and write all plans in one transaction; None: something was in the way, and nothing was written."""
        try:
            with self.store.transaction() as tx:
                done = self._write_all(tx, wishes)
        except (EntityAlreadyExists, EntityNotFound, VersionConflict):
            self._catalogs.clear()
            return None
        return [Applied(*one, attempts=int(at == 0)) for at, one in enumerate(done)]

    def _write_all(self, tx: Any, wishes: Sequence[tuple[Dataset, Found, Decide]]) -> list[tuple[Plan, Names, int]]:
        """Plan on what the transaction reads, and write that.

        What is read here is validated when it commits. So an absent table is not read but created, and partitions
        were listed before: validating a missing name or a listing would keep others out of the schema for that time.
        """
        first = wishes[0][0].path
        catalog = self.catalog(first[:2])
        if catalog is None:
            raise EntityNotFound(format_path(first[:2]))
        sources = tx.sources.load_many(catalog, [row_name(found.location) for found, _, _ in wishes])
        ids = [known.table.id for _, known, _ in wishes if known.table is not None]
        tables = {table.id: table for table in tx.sources.tables(ids) if table is not None}
        figures = dict(zip(ids, tx.sources.figures(ids, STATISTIC), strict=True))
        done, rows, drop = list[tuple[Plan, Names, int]](), [], list[str]()
        for (found, known, decide), source in zip(wishes, sources, strict=True):
            if _version(source) != _version(known.source):
                raise _changed(found, "its row is another")
            table, stored = None, None
            if known.table is not None:
                table, seen = tables.get(known.table.id), figures[known.table.id]
                if table is None:
                    raise _changed(found, "its table was dropped")
                stored = _stored(table, known.table.parts, None if seen is None else dict(seen.values))
            plan = decide(stored)
            table = _write_table(tx, found, table, plan)
            done.append((plan, table.names, table.version))
            fields = source_fields(found, plan, stored, source, self.policy, self.run)
            fields |= {"table": table.id, "table_version": table.version}
            if not is_same(fields, source):
                rows.append(tx.sources.row(row_name(found.location), **fields))
                drop += _left_behind(found, stored)
        if rows:
            tx.sources.put_many(catalog, rows, drop)
        return done


def _left_behind(found: Dataset, stored: StoredTable | None) -> list[str]:
    """Return the name of the row of the location that the table had before."""
    there = None if stored is None else stored.location
    return [] if there in (None, location_of(found.location)) else [location_row(str(there))]


def _write_table(tx: Any, found: Dataset, table: Table | None, plan: Plan) -> Table:
    """Write the table, its partitions and its statistic; return it."""
    if table is None:
        table = tx.tables.create(found.path, properties=properties_of(found), parents=True, **_fields(found))
    elif plan.changes:
        table = tx.tables.alter(table, *plan.changes)
    _write_owned(tx, table, plan)
    return table


def _write_owned(tx: Any, table: Table, plan: Plan) -> None:
    if plan.parts or plan.removed:
        rows = [tx.partitions.row(name, part.values, part.properties) for name, part in plan.parts.items()]
        tx.partitions.put_many(table, rows, plan.removed)
    if plan.seen is not None:
        tx.statistics.put_many(table, [tx.statistics.row(STATISTIC, plan.seen)])


def _version(row: Source | None) -> int:
    return 0 if row is None else row.version


def _changed(found: Dataset, why: str) -> VersionConflict:
    return VersionConflict(found.location, None, None, f"{found.location}: {why}; somebody was faster")


def _fields(found: Dataset) -> dict[str, Any]:
    return {
        "columns": found.columns,
        "partitioning": partitioning_of(found),
        "location": location_of(found.location),
        "format": found.format,
    }


def _parts(managers: Any, table: Table) -> dict[str, StoredPart]:
    found = managers.partitions.list(table) if table.partitioning else ()
    return {part.name: StoredPart(dict(part.values), dict(part.properties)) for part in found}


def _stored(table: Table, parts: Mapping[str, StoredPart], seen: Mapping[str, Any] | None) -> StoredTable:
    """Return what the crawler compares with."""
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
