"""A store with a table in it, that must stay as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metastore as ms
from tests.bad_input.refusal import PASSWORD, unchanged
from tests.servers.postgres import Databases, PostgresServer

TABLE = "m.c.s.t"


def prepare(store: ms.Store) -> ms.Store:
    """Make a small tree, with one schema dropped."""
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.schemas.create("m.c.s")
    store.tables.create(TABLE, columns=[ms.Column("id", "long"), ms.Column("name", "string")])
    store.schemas.create("m.c.gone")
    store.schemas.drop("m.c.gone")
    return store


@pytest.fixture
def ground(store: ms.Store) -> ms.Store:
    """Give a store with a small tree in it."""
    return prepare(store)


# What is refused before a database is asked is so on both; test_odd_values tries each call on PostgreSQL in each run
@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long])]
)
def kept_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a database with a small tree in it, on each kind of server in turn; all tests that use it leave it so."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('kept') / 'metastore.db'}"
    else:
        databases: Databases = request.getfixturevalue("postgres_databases")
        url = databases.create_database()
    ms.migrate(url)
    with ms.open(url) as store:
        prepare(store)
    yield url
    if request.param != "sqlite":
        databases.drop_database(url)


@pytest.fixture
def kept(kept_url: str) -> Iterator[ms.Store]:
    """Give a store with a small tree in it, in which the test must change nothing."""
    with ms.open(kept_url, principal="tester") as store, unchanged(store):
        yield store


@pytest.fixture(scope="session")
def password_server() -> Iterator[PostgresServer]:
    """Start a PostgreSQL that asks for a password."""
    with PostgresServer(password=PASSWORD) as server:
        yield server
