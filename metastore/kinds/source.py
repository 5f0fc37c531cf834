"""The source: an owned row of a catalog that maps the location of a data set to its table.

The crawler keeps one for each location that it has read. The row's name is unique: if two crawls find one location at
once, one of them creates the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity, Owned
from metastore.kinds.field import doc_field
from metastore.kinds.kind import OwnedKind
from metastore.names import clean_text
from metastore.plain import read_only

__all__ = ["SOURCE", "Source"]


def _clean_location(location: Any) -> str:
    if not clean_text(location, "a source's location"):
        raise InvalidArgument("a source's location must not be empty")
    return str(location)


class Source(Owned):
    """A data set.

    ``table`` is the id of its table (None: the crawler could read nothing). ``signature`` names the state of its files.
    ``table_version`` is the table's version after the crawler's last write. ``edited`` says whether another writer had
    changed the table before. ``again``: some files could not be read, so the next crawl reads the data set even if its
    signature is unchanged. ``policy`` is the policy for changed types, if the crawl left some types unchanged.
    ``missing`` is the time at which the files were first found missing. ``counts`` are files, rows, bytes and
    partitions. ``run`` is the crawl that wrote the row. ``listed`` is the database's time, in microseconds, when that
    crawl began to list. ``catalog`` is the id of the catalog for which it wrote the row (None: an older release did).
    """

    location: str = doc_field(_clean_location, decode=str)
    table: int | None = doc_field(default=None)
    table_version: int | None = doc_field(default=None)
    signature: str | None = doc_field(default=None)
    again: bool = doc_field(default=False, decode=bool)
    edited: bool = doc_field(default=False, decode=bool)
    policy: str | None = doc_field(default=None)
    missing: str | None = doc_field(default=None)
    notes: tuple[str, ...] = doc_field(list, default=(), decode=tuple)
    counts: Mapping[str, int] = doc_field(dict, default=MappingProxyType({}), decode=read_only)
    run: str | None = doc_field(default=None)
    listed: int = doc_field(default=0, decode=int)
    catalog: int | None = doc_field(default=None)

    @property
    def own_table(self) -> int | None:
        """The id of the row's own table.

        None in a copy of another catalog's row, whose id belongs to the other catalog's table.
        """
        return self.table if self.catalog in (None, self.record.owner_id) else None

    def leads_to(self, table: Entity) -> bool:
        """Whether ``table``, which has the row's table id, belongs to the row.

        A row of an older release may be a copy of another catalog's.
        """
        return self.catalog is not None or table.record.chain[1].id == self.record.owner_id


SOURCE = OwnedKind("source", Source)
