"""The fixtures that PyIceberg's behaviour suite takes from its conftest, with this project's catalog.

The test beside this file copies it into the unpacked suite as the conftest of the suite's folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import metastore
from metastore.pyiceberg import MetastoreCatalog


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an empty store to copy: to migrate takes longer than most tests of the suite."""
    path = tmp_path_factory.mktemp("migrated") / "store.db"
    metastore.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def catalog(tmp_path: Path, migrated: Path) -> Iterator[MetastoreCatalog]:
    """Open the catalog on a new store, with a warehouse beside it."""
    yield from _catalog(tmp_path, tmp_path, migrated)


@pytest.fixture
def catalog_with_warehouse(tmp_path: Path, warehouse: Path, migrated: Path) -> Iterator[MetastoreCatalog]:
    """Open the catalog on the warehouse that all tests of the suite share."""
    yield from _catalog(tmp_path, warehouse, migrated)


def _catalog(folder: Path, warehouse: Path, migrated: Path) -> Iterator[MetastoreCatalog]:
    shutil.copy(migrated, folder / "store.db")
    with MetastoreCatalog(
        "test_catalog", uri=f"sqlite:///{folder}/store.db", warehouse=f"file://{warehouse}"
    ) as catalog:
        assert isinstance(catalog, MetastoreCatalog)
        yield catalog
