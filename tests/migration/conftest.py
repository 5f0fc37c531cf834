"""Databases without a schema, and processes that migrate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.processes import Crowd
from tests.migration.schema import make_declared
from tests.servers.postgres import Databases


@pytest.fixture
def empty_postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """Give the URL of a PostgreSQL database with nothing in it."""
    url = postgres_databases.create_database()
    yield url
    postgres_databases.drop_database(url)


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """Give the URL of a file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'empty.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest) -> str:
    """Give the URL of a database with nothing in it, on each kind of server in turn."""
    chosen: str = request.getfixturevalue(f"empty_{request.param}_url")
    return chosen


@pytest.fixture(scope="session")
def declared_postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """Give a PostgreSQL database that was made straight from the declared tables."""
    url = postgres_databases.create_database()
    make_declared(url)
    yield url
    postgres_databases.drop_database(url)


@pytest.fixture(scope="session")
def declared_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a SQLite file that was made straight from the declared tables."""
    url = f"sqlite:///{tmp_path_factory.mktemp('declared') / 'declared.db'}"
    make_declared(url)
    return url


@pytest.fixture
def declared(request: pytest.FixtureRequest, empty_url: str) -> str:
    """Give the database that was made straight from the declared tables, of the kind of ``empty_url``."""
    kind = "sqlite" if empty_url.startswith("sqlite") else "postgres"
    chosen: str = request.getfixturevalue(f"declared_{kind}_url")
    return chosen


@pytest.fixture(scope="session")
def crowd() -> Iterator[Crowd]:
    """Give six processes."""
    found = Crowd(6)
    yield found
    found.close()
