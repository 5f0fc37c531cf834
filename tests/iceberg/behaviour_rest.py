"""The fixtures of PyIceberg's behaviour suite, with PyIceberg's REST client and this project's server.

One server answers all tests; behind it, each test has a store in memory of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pyiceberg.catalog.rest import RestCatalog

import metastore
from metastore.serve import application


class Behind:
    """An ASGI application that passes each request on to the application of the current test."""

    current: Any = None
    address = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        await self.current(scope, receive, send)


@pytest.fixture(scope="session")
def behind() -> Iterator[Behind]:
    """Serve in a thread until the last test is over."""
    behind = Behind()
    server = uvicorn.Server(uvicorn.Config(behind, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    behind.address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/iceberg"
    yield behind
    server.should_exit = True
    thread.join()


@pytest.fixture
def catalog(behind: Behind, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """Connect to a new store, with a warehouse of its own."""
    yield from _catalog(behind, tmp_path, tmp_path_factory)


@pytest.fixture
def catalog_with_warehouse(
    behind: Behind, warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestCatalog]:
    """Connect to a new store, on the warehouse that all tests of the suite share."""
    yield from _catalog(behind, warehouse, tmp_path_factory)


def _catalog(behind: Behind, warehouse: Path, folders: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with metastore.open("memory://") as store:
        allowed = [f"file://{folders.getbasetemp()}"]  # some tests name a folder beside the warehouse
        behind.current = application(store, warehouses={"lake.ice": f"file://{warehouse}"}, allowed_locations=allowed)
        yield RestCatalog("test_catalog", uri=behind.address, warehouse="lake.ice")
