"""A store on PostgreSQL with a few tables, for batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metastore as ms
from metastore import Store

SCHEMA = "lake.c.s"
TABLES = 8


@pytest.fixture
def url(postgres_url: str) -> str:
    """Give the URL of a fresh database on PostgreSQL: the other backends gain nothing by batches."""
    return postgres_url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open a store with the tables ``lake.c.s.t0`` to ``t7``, and more connections than a batch has requests."""
    with ms.open(url, principal="tester", pool_size=80) as opened:
        opened.metalakes.create("lake")
        opened.catalogs.create("lake.c", type="relational")
        opened.schemas.create(SCHEMA)
        opened.tables.create_many(
            SCHEMA, [{"name": f"t{n}", "columns": [ms.Column("a", "int")]} for n in range(TABLES)]
        )
        assert opened.tables.exists(f"{SCHEMA}.t0")  # the parents are known from here on
        yield opened
