"""PyIceberg's SqlCatalog on the same PostgreSQL: other rows, and a metadata file for each version; reported apart.

All five operations of the mix exist. Its namespaces neither lock nor guard anything; a commit swaps the pointer to the
metadata file by the old one, and who lost tries again at once. A drop, a rename and a create do not keep a history, and
nobody is told of them.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from metastore.checker.records import Lost
from tests.bench.core.setting import COLUMNS
from tests.bench.peers.contender import Did

__all__ = ["PyIceberg", "plant"]

_SCHEMA = Schema(*[NestedField(n, column.name, LongType()) for n, column in enumerate(COLUMNS, 1)])


def _catalog(url: str) -> Any:
    return SqlCatalog("bench", uri=url, pool_pre_ping="false")


def plant(url: str, warehouse: str, tables: dict[str, list[str]]) -> None:
    """Make the namespaces and tables of a lake; their files are below ``warehouse``, a URL."""
    catalog = _catalog(url)
    for namespace, names in tables.items():
        catalog.create_namespace(namespace, {"location": f"{warehouse}/{namespace}"})
        for name in names:
            catalog.create_table(f"{namespace}.{name}", _SCHEMA)
    catalog.close()


class PyIceberg:
    """One client, with an engine of its own."""

    def __init__(self, url: str, principal: str) -> None:
        self.principal = principal
        self.lost: list[Lost] = []
        self._catalog = _catalog(url)

    def load(self, path: str) -> Did:
        try:
            table = self._catalog.load_table(path)
        except NoSuchTableError:
            return Did("read")
        return Did("read", _id(table))

    def alter(self, path: str, key: str, value: str) -> Did:
        while True:
            try:
                table = self._catalog.load_table(path)
                with table.transaction() as transaction:
                    transaction.set_properties({key: value})
            except CommitFailedException:
                self.lost.append(Lost("self"))
            except NoSuchTableError:
                return Did("failed")
            else:
                return Did("applied", _id(table))

    def create(self, path: str) -> Did:
        try:
            return Did("applied", _id(self._catalog.create_table(path, _SCHEMA)))
        except TableAlreadyExistsError:
            return Did("failed")

    def drop(self, path: str) -> Did:
        try:
            self._catalog.drop_table(path)
        except NoSuchTableError:
            return Did("nothing")
        return Did("applied")

    def rename(self, path: str, to: str) -> Did:
        try:
            self._catalog.rename_table(path, f"{path.rpartition('.')[0]}.{to}")
        except (NoSuchTableError, TableAlreadyExistsError):
            return Did("failed")
        return Did("applied")

    def kept(self, namespaces: list[str]) -> dict[tuple[int, str], str]:
        """Return the properties of all tables, by id and key."""
        tables = [self._catalog.load_table(name) for space in namespaces for name in self._catalog.list_tables(space)]
        return {(_id(table), key): value for table in tables for key, value in table.properties.items()}

    def close(self) -> None:
        self._catalog.close()


def _id(table: Any) -> int:
    number: int = table.metadata.table_uuid.int >> 65
    return number
