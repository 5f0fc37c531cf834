"""A small catalog whose managers rely on a lock tree, as Gravitino's do: they look first and write then.

Each method that writes reads what it needs, decides, and writes, in steps that nothing but the lock holds together.
``LockTreeCatalog`` is the code that the bridge takes through its stages; ``PlainCatalog`` is the same after the last
stage: managers of the store alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import metastore as ms
from metastore import bridge
from metastore.transaction.transaction import Transaction

__all__ = ["Catalog", "LockTreeCatalog", "PlainCatalog"]


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _count(table: ms.Table) -> int:
    return int(table.properties.get("n", "0"))


class Catalog(Protocol):
    """What both catalogs do."""

    def create(self, path: str) -> None:
        """Create a table. Raises EntityAlreadyExists."""

    def count_up(self, path: str, between: Callable[[], object] = ...) -> None:
        """Add 1 to the property ``n`` of a table. ``between`` runs between the read and the write."""

    def rename(self, path: str, name: str) -> None:
        """Rename a table."""

    def total(self, schema: str) -> int:
        """Return the sum of ``n`` over a schema's tables, as it was at one instant."""


class LockTreeCatalog:
    """A catalog that looks before it writes, under the locks that Gravitino's managers take."""

    def __init__(self, store: ms.Store, tree: bridge.Bridge) -> None:
        self._tables = store.tables
        self._tree = tree

    def create(self, path: str) -> None:
        """Look whether the name is free, under the schema's lock, then create."""
        with self._tree.tree_lock(_parent(path), "write", changes=path) as section:
            if self._tables.exists(path):
                raise ms.EntityAlreadyExists(path)
            self._tables.create(path, lease=section.lease)

    def count_up(self, path: str, between: Callable[[], object] = lambda: None) -> None:
        """Read, add, write, under the table's lock."""
        with self._tree.tree_lock(path, "write") as section:
            table = self._tables.load(path)
            between()
            self._tables.alter(table, ms.SetProperty("n", str(_count(table) + 1)), lease=section.lease)

    def rename(self, path: str, name: str) -> None:
        """Rename under the schema's lock."""
        with self._tree.tree_lock(_parent(path), "write", changes=path) as section:
            self._tables.rename(path, name, lease=section.lease)

    def total(self, schema: str) -> int:
        """Add up one table after another, under the schema's lock for reading."""

        def added_up(_: bridge.Section) -> int:
            return sum(_count(self._tables.load((*ms_names(schema), name))) for name in self._tables.names(schema))

        return self._tree.do_with_tree_lock(schema, "read", added_up)


def ms_names(path: str) -> tuple[str, ...]:
    """Return the names of a plain path."""
    return tuple(path.split("."))


class PlainCatalog:
    """The catalog after the last stage: no lock, and no look before a write."""

    def __init__(self, store: ms.Store) -> None:
        self._store = store

    def create(self, path: str) -> None:
        """Create; the commit refuses a name that is taken."""
        self._store.tables.create(path)

    def count_up(self, path: str, between: Callable[[], object] = lambda: None) -> None:
        """Read and write in a transaction, which runs again if the table has changed meanwhile."""

        def add(tx: Transaction) -> None:
            table = tx.tables.load(path)
            between()
            tx.tables.alter(table, ms.SetProperty("n", str(_count(table) + 1)))

        self._store.run(add)

    def rename(self, path: str, name: str) -> None:
        """Rename."""
        self._store.tables.rename(path, name)

    def total(self, schema: str) -> int:
        """Read as of one position."""
        return sum(map(_count, self._store.at(self._store.position()).tables.list(schema)))
