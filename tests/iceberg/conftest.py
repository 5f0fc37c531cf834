"""An Iceberg catalog on a fresh store, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="needs the extra [iceberg]")

from pyiceberg.catalog import load_catalog

from metastore.pyiceberg import MetastoreCatalog


def properties(url: str, warehouse: Path) -> dict[str, str]:
    """Return what opens the catalog ``lake.ice`` of a store."""
    return {
        "py-catalog-impl": "metastore.pyiceberg.MetastoreCatalog",
        "uri": url,
        "warehouse": f"file://{warehouse}",
        "metalake": "lake",
        "catalog": "ice",
    }


@pytest.fixture
def catalog(url: str, tmp_path: Path) -> Iterator[MetastoreCatalog]:
    """Open a catalog as a user of PyIceberg does."""
    with load_catalog("x", **properties(url, tmp_path / "warehouse")) as catalog:
        assert isinstance(catalog, MetastoreCatalog)
        yield catalog
