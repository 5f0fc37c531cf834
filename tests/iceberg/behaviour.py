"""The fixtures that PyIceberg's behaviour suite takes from its conftest, with this project's catalog.

The test beside this file copies it into the unpacked suite as the conftest of the suite's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metastore.pyiceberg import MetastoreCatalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[MetastoreCatalog]:
    """Open the catalog on a new store, with a warehouse beside it."""
    yield from _catalog(tmp_path, tmp_path)


@pytest.fixture
def catalog_with_warehouse(tmp_path: Path, warehouse: Path) -> Iterator[MetastoreCatalog]:
    """Open the catalog on the warehouse that all tests of the suite share."""
    yield from _catalog(tmp_path, warehouse)


def _catalog(folder: Path, warehouse: Path) -> Iterator[MetastoreCatalog]:
    with MetastoreCatalog(
        "test_catalog", uri=f"sqlite:///{folder}/store.db", warehouse=f"file://{warehouse}"
    ) as catalog:
        assert isinstance(catalog, MetastoreCatalog)
        yield catalog
