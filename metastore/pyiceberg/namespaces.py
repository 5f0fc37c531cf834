"""Iceberg namespaces: the schemas of the store."""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.catalog import PropertiesUpdateSummary
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NamespaceNotEmptyError, NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from metastore.errors import EntityAlreadyExists, NotEmpty
from metastore.kinds.change import RemoveProperty, SetProperty
from metastore.kinds.schema import Schema
from metastore.names import format_path
from metastore.pyiceberg.naming import errors_of_iceberg, missing_raises, no_namespace, shown
from metastore.pyiceberg.once import Once
from metastore.store import Store

__all__ = ["Namespaces"]

_EMPTY: Final = {"exists": "true"}
"""The properties that PyIceberg's SQL catalog shows for a namespace that has none."""


class Namespaces:
    """The schemas below the catalog ``root``."""

    def __init__(self, store: Store, root: Identifier, once: Once) -> None:
        self._store = store
        self._root = root
        self._once = once

    def create(self, names: Identifier, properties: dict[str, str]) -> None:
        """Create a namespace, and those above it that are missing."""

        def attempt(options: dict[str, Any]) -> None:
            with errors_of_iceberg():
                try:
                    self._store.schemas.create((*self._root, *names), properties=properties, parents=True, **options)
                except EntityAlreadyExists as error:
                    raise NamespaceAlreadyExistsError(f"Namespace {shown(names)} already exists") from error

        self._once.run(attempt, lambda: None)

    def drop(self, names: Identifier) -> None:
        """Drop an empty namespace."""

        def attempt(options: dict[str, Any]) -> None:
            # a drop that finds nothing writes an operation, which each repeat under the key must read, so look first
            with errors_of_iceberg(), missing_raises(no_namespace(names)):
                self._store.schemas.load((*self._root, *names))
            with errors_of_iceberg():
                try:
                    dropped = self._store.schemas.drop((*self._root, *names), **options)
                except NotEmpty as error:
                    raise NamespaceNotEmptyError(
                        f"Namespace {shown(names)} is not empty. Drop its namespaces, tables and views first"
                    ) from error
            if not dropped:
                raise no_namespace(names)

        self._once.run(attempt, lambda: None)

    def all(self, names: Identifier) -> list[Identifier]:
        """Return the namespaces directly below one; (): those at the top."""
        with errors_of_iceberg(), missing_raises(self._nothing(names)):
            return [(*names, name) for name in self._store.schemas.names((*self._root, *names))]

    def page(self, names: Identifier, size: int | None, token: str | None) -> tuple[list[Identifier], str | None]:
        """Return one page of :meth:`all`, and the token of the next one; without a size, all of them."""
        if size is None:
            return self.all(names), None
        with errors_of_iceberg(), missing_raises(self._nothing(names)):
            page = self._store.schemas.names_page((*self._root, *names), size=size, token=token)
        return [(*names, name) for name in page.items], page.next_token

    def exists(self, names: Identifier) -> bool:
        """Whether a namespace exists."""
        with errors_of_iceberg():
            return self._store.schemas.exists((*self._root, *names))

    def require(self, names: Identifier) -> None:
        """Raise NoSuchNamespaceError if a namespace does not exist."""
        if not self.exists(names):
            raise no_namespace(names)

    def properties(self, names: Identifier) -> dict[str, str]:
        """Return a namespace's properties. References to secrets are as clients write them: ``secret:env:NAME``."""
        return dict(self._load(names).to_dict()["properties"]) or dict(_EMPTY)

    def update(self, names: Identifier, removals: set[str], updates: dict[str, str]) -> PropertiesUpdateSummary:
        """Remove and set properties; other properties keep the values that others set meanwhile."""

        def attempt(options: dict[str, Any]) -> PropertiesUpdateSummary:
            schema = self._load(names)
            has = {key for key in removals if key in schema.properties}
            removed = [RemoveProperty(key) for key in sorted(has)]
            added = [SetProperty(key, value) for key, value in updates.items()]
            with errors_of_iceberg(), missing_raises(no_namespace(names)):
                self._store.schemas.alter(schema, *removed, *added, **options)
            return PropertiesUpdateSummary(removed=sorted(has), updated=list(updates), missing=sorted(removals - has))

        def answer() -> PropertiesUpdateSummary:  # nothing records which keys were missing at that time
            return PropertiesUpdateSummary(removed=sorted(removals), updated=list(updates), missing=[])

        return self._once.run(attempt, answer)

    def _nothing(self, names: Identifier) -> NoSuchNamespaceError:
        if names:
            return no_namespace(names)
        return NoSuchNamespaceError(f"the catalog {format_path(self._root)} does not exist; create it first")

    def _load(self, names: Identifier) -> Schema:
        # spelled as in PyIceberg's SQL catalog, because programs match the text
        missing = NoSuchNamespaceError(f"Namespace {shown(names)} does not exists")
        with errors_of_iceberg(), missing_raises(missing):
            return self._store.schemas.load((*self._root, *names))
