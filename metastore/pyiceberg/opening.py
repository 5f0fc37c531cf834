"""Open the store that a catalog's property ``uri`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import metastore
from metastore.errors import MigrationNeeded

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["migrated", "opened"]


def opened(uri: str) -> Store:
    """Open the store, and create the tables of a new database.

    An old schema raises MigrationNeeded, for an operator.
    """
    url = _url(uri)
    try:
        return metastore.open(url)
    except MigrationNeeded as error:
        if error.has_schema:
            raise
    metastore.migrate(url)
    return metastore.open(url)


def migrated(uri: str) -> None:
    """Create or upgrade the database's tables."""
    metastore.migrate(_url(uri))


def _url(uri: str) -> str:
    """Return the URI with this project's driver, because PyIceberg's documentation names another one for PostgreSQL."""
    return uri.replace("postgresql+psycopg2:", "postgresql+psycopg:", 1)
