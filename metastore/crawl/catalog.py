"""The only part of the crawler that calls the store: what it needs of it, and nothing else.

:class:`StoreCatalog` loads many tables in few round trips, and writes a plan in one transaction: the table, its
partitions, and the statistic ``crawl``. The transaction validates what was read, so that a plan never overwrites what
it did not see: it is made anew on what is there then.

``open_catalog`` keeps one store open per worker process and crawl: Spark uses a worker for many tasks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import metastore
from metastore.crawl.commit import Applied, Decide
from metastore.crawl.datasets import Dataset
from metastore.crawl.figures import STATISTIC
from metastore.crawl.places import location_of
from metastore.crawl.plan import Plan, StoredPart, StoredTable, partitioning_of, properties_of
from metastore.entity import Entity
from metastore.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument, VersionConflict
from metastore.kinds.table import Table
from metastore.urls import parse_url

__all__ = ["StoreCatalog", "open_catalog", "prepare", "reachable_url"]

Names = tuple[str, ...]
_TRIES: Final = 10
"""How often a table is planned anew because others changed it, before it is given up."""

_open: dict[tuple[int, str], StoreCatalog] = {}


def reachable_url(url: str | None) -> str:
    """Return the database's URL as other processes, in other folders, must write it."""
    parsed = parse_url(url)
    if parsed.drivername == "memory" or (parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:")):
        raise InvalidArgument("a crawl runs in several processes; give a database that they share, not one in memory")
    if parsed.drivername == "sqlite" and parsed.database is not None:
        parsed = parsed.set(database=str(Path(parsed.database).absolute()))
    return parsed.render_as_string(hide_password=False)


def prepare(url: str, target: Names, principal: str | None) -> None:
    """Create the metalake, catalog and schema of ``target``, as far as they are missing."""
    with metastore.open(url, principal=principal) as store:
        if not store.metalakes.exists(target[:1]):
            store.metalakes.create(target[:1], if_exists="return")
        if not store.catalogs.exists(target[:2]):
            store.catalogs.create(target[:2], type="relational", if_exists="return")
        if len(target) > 2 and not store.schemas.exists(target):
            store.schemas.create(target, parents=True, if_exists="return")


def open_catalog(url: str, principal: str | None, crawl_id: str) -> StoreCatalog:
    """Return this process's catalog on ``url`` for one crawl; close that of the crawl before it."""
    key = (os.getpid(), crawl_id)
    if key not in _open:
        for old in [old for old in _open if old[0] == key[0]]:
            _open.pop(old).close()
        _open[key] = StoreCatalog(metastore.open(url, principal=principal))
    return _open[key]


class StoreCatalog:
    """The catalog behind an open store."""

    def __init__(self, store: metastore.Store) -> None:
        self.store = store

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def load(self, paths: Sequence[Names]) -> list[StoredTable | None]:
        """Load tables, with their partitions and what was seen of them."""
        found = self.store.tables.load_many(paths) if paths else []
        return [t if t is None else _stored(self.store, t, _parts(self.store, t)) for t in found]

    def schemas(self, paths: Sequence[Names]) -> set[Names]:
        """Return which of these schemas there are."""
        found = self.store.schemas.load_many(paths) if paths else []
        return {path for path, schema in zip(paths, found, strict=True) if schema is not None}

    def ensure_schemas(self, paths: Iterable[Names]) -> None:
        """Create the schemas that are missing."""
        wanted = sorted(paths)
        for path in sorted(set(wanted) - self.schemas(wanted)):
            self.store.schemas.create(path, parents=True, if_exists="return")

    def apply(self, found: Dataset, decide: Decide, *, is_new: bool) -> Applied:
        """Decide, and write the plan, in one transaction; again when a race is lost. ``is_new``: there was no table."""
        before = Counter(self.store.counters)
        for left in reversed(range(_TRIES)):
            try:
                plan, version = self._attempt(found, decide, is_new)
                break
            except (EntityAlreadyExists, EntityNotFound, VersionConflict):
                if not left:
                    raise
                is_new = False  # others were faster: what they did is read, and planned with
        after = Counter(self.store.counters)
        after.subtract(before)
        lost = sum(count for cause, count in after.items() if cause.startswith("conflicts_"))
        return Applied(plan, version, after["attempts"], lost)

    def _attempt(self, found: Dataset, decide: Decide, is_new: bool) -> tuple[Plan, int]:
        """Read what is there, and write the plan if it is still so."""
        (known,) = [None] if is_new else self.store.tables.load_many([found.path])
        parts = {} if known is None else _parts(self.store, known)
        return self.store.run(lambda tx: _write(tx, found, known, parts, decide))


Parts = dict[str, StoredPart]


def _parts(managers: Any, table: Table) -> Parts:
    found = managers.partitions.list(table) if table.partitioning else ()
    return {part.name: StoredPart(dict(part.values), dict(part.properties)) for part in found}


def _stored(managers: Any, table: Table, parts: Parts) -> StoredTable:
    """Return what the crawler compares with."""
    return StoredTable(
        columns=table.columns,
        partitioning=table.partitioning,
        location=table.location,
        format=table.format,
        properties=table.properties,
        parts=parts,
        seen=_seen(managers, table),
        version=table.version,
    )


def _seen(managers: Any, table: Table) -> dict[str, Any] | None:
    try:
        return dict(managers.statistics.load(table, STATISTIC).values)
    except EntityNotFound:
        return None


def _write(tx: Any, found: Dataset, known: Table | None, parts: Parts, decide: Decide) -> tuple[Plan, int]:
    """Plan on what the transaction reads, and write that.

    What is read here is validated when it commits. So an absent table is not read but created, and partitions were
    listed before: validating a missing name or a listing would keep others out of the schema for that time.
    """
    table = None if known is None else tx.tables.load(known)
    plan = decide(None if table is None else _stored(tx, table, parts))
    if table is None:
        table = _create(tx, found)
    elif plan.changes:
        table = tx.tables.alter(table, *plan.changes)
    if plan.parts or plan.removed:
        rows = [tx.partitions.row(name, part.values, part.properties) for name, part in plan.parts.items()]
        tx.partitions.put_many(table, rows, plan.removed)
    if plan.seen is not None:
        tx.statistics.put_many(table, [tx.statistics.row(STATISTIC, plan.seen)])
    return plan, table.version


def _create(tx: Any, found: Dataset) -> Entity:
    table: Entity = tx.tables.create(
        found.path,
        columns=found.columns,
        partitioning=partitioning_of(found),
        location=location_of(found.location),
        format=found.format,
        properties=properties_of(found),
        parents=True,
    )
    return table
