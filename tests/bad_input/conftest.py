"""A store with a table in it, that must stay as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metastore as ms
from tests.bad_input.refusal import PASSWORD, unchanged
from tests.servers.postgres import PostgresServer

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


@pytest.fixture
def kept(ground: ms.Store) -> Iterator[ms.Store]:
    """Give a store with a small tree in it, in which the test must change nothing."""
    with unchanged(ground):
        yield ground


@pytest.fixture(scope="session")
def password_server() -> Iterator[PostgresServer]:
    """Start a PostgreSQL that asks for a password."""
    with PostgresServer(password=PASSWORD) as server:
        yield server
