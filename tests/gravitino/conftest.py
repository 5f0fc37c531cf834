"""A server with the API of a store; each test that asks for ``lake`` finds the schema lake.cat.s, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="needs the extra [serve]")

import httpx

import metastore as ms
from metastore.serve import application
from tests.gravitino.server import Server
from tests.iceberg.server import running

__all__ = ["Api", "serving"]


class Api:
    """Requests as a client sends them; each answer is checked for its envelope."""

    def __init__(self, client: httpx.Client, store: ms.Store) -> None:
        self.client, self.store = client, store

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        """Return the answer to a request that succeeds."""
        response = self.client.request(method, f"/api{path}", json=body, params=query)
        found: dict[str, Any] = response.json()
        assert (response.status_code, found["code"]) == (200, 0), found
        return found

    def refused(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, int, str]:
        """Return HTTP status, code and class of a request that fails, in Gravitino's shape."""
        response = self.client.request(method, f"/api{path}", json=body, params=query)
        found = response.json()
        assert set(found) == {"code", "type", "message", "stack"}, found
        assert found["message"]
        assert found["stack"] == []
        return response.status_code, found["code"], found["type"]


@contextmanager
def serving(store: ms.Store) -> Iterator[Api]:
    """Serve a store in a thread of the test."""
    app = application(store, job_workers=2, reveals=["env:METASTORE_TEST_"])
    with (
        running(app) as (_, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        yield Api(client, store)


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(ms.open(f"sqlite:///{tmp_path_factory.mktemp('gravitino')}/store.db")) as api:
        yield api


@pytest.fixture
def api(served: Api) -> Api:
    """An empty store."""
    for metalake in list(served.store.metalakes.names()):
        served.store.metalakes.drop((metalake,), cascade=True)
    return served


@pytest.fixture
def lake(api: Api) -> Api:
    """The schema lake.cat.s."""
    api.ask("POST", "/metalakes", {"name": "lake"})
    api.ask("POST", "/metalakes/lake/catalogs", {"name": "cat", "type": "RELATIONAL", "provider": "hive"})
    api.ask("POST", "/metalakes/lake/catalogs/cat/schemas", {"name": "s"})
    return api


@pytest.fixture
def servers(postgres_url: str) -> Iterator[list[Server]]:
    """Two processes on one database with lake.cat.s, two users, a role and a tag."""
    with ms.open(postgres_url, principal="test") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.cat", type="relational", provider="hive")
        store.schemas.create("lake.cat.s")
        store.tags.create("lake.pii")
    found = [Server(postgres_url) for _ in range(2)]
    try:
        for one in found:
            one.wait()
        yield found
    finally:
        for one in found:
            one.kill()
    with ms.open(postgres_url) as store:
        assert list(store.verify()) == []
