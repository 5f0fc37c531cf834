"""The source: an owned row of a catalog that says which table a data set is, by the data set's location.

The crawler keeps one for each location that it has read. Two crawls that find one location at once race for the
row's name, which is unique: one of them creates the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from metastore.errors import InvalidArgument
from metastore.kinds.entity import Owned
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
    ``table_version`` is the table's version after the crawler's last write. ``edited`` says whether somebody else had
    changed the table before. ``again``: some files could not be read, so the next crawl reads the data set whatever its
    signature is. ``policy`` is what the crawl should have done with types that changed, if it left some as they were.
    ``missing`` is the time since when the files are gone. ``counts`` are files, rows, bytes and partitions. ``run`` is
    the crawl that wrote the row. ``listed`` is the database's time, in microseconds, when that crawl began to list.
    ``catalog`` is the id of the catalog for which it wrote the row (None: an older release did).
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
        """The id of its table, but not in a copy of another catalog's row: such an id is that of the other's table."""
        return self.table if self.catalog in (None, self.record.owner_id) else None


SOURCE = OwnedKind("source", Source)
