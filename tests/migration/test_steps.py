"""The index of names holds what is being dropped in steps, and serves what asks for live names alone."""

from __future__ import annotations

from typing import Any

import pytest

import metastore as ms
from metastore import migrations
from metastore.backends.postgres import read_sql as postgres
from metastore.backends.sqlite import reads as sqlite
from metastore.urls import parse_url
from tests.migration.schema import connected

T = "m.c.s.t"
NAMED = "SELECT id FROM guard WHERE parent_id = 1 AND family = 'table' AND key = 't' AND state = 0"
EMPTY = "SELECT id FROM guard WHERE parent_id = 1 AND (state = 0 OR state = 3)"


def _fill(store: ms.Store) -> ms.Table:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    return store.tables.create(T, parents=True)


def _plan(url: str, text: str) -> str:
    explain = "EXPLAIN QUERY PLAN " if url.startswith("sqlite") else "EXPLAIN "
    with connected(url) as connection:
        if not url.startswith("sqlite"):
            connection.exec_driver_sql("SET enable_seqscan = off; SET enable_bitmapscan = off")  # as a store does
        return "\n".join(str(row) for row in connection.exec_driver_sql(explain + text).all())


@pytest.mark.parametrize("text", [NAMED, EMPTY])
def test_the_index_is_used(url: str, text: str) -> None:
    assert "guard_live_name" in _plan(url, text)


@pytest.mark.parametrize(("condition", "used"), [("state IN (0, 3)", False), ("state = 0 OR state = 3", True)])
def test_sqlite_does_not_see_through_an_in(sqlite_url: str, condition: str, used: bool) -> None:
    """Negative control: with IN, SQLite scans the whole table for every name."""
    ms.open(sqlite_url).close()
    with connected(sqlite_url) as connection:
        connection.exec_driver_sql("DROP INDEX guard_live_name")
        connection.exec_driver_sql(
            f"CREATE UNIQUE INDEX guard_live_name ON guard (parent_id, family, key) WHERE {condition}"
        )
        connection.commit()
    assert ("guard_live_name" in _plan(sqlite_url, NAMED)) == used


def test_the_hot_reads_keep_their_plans(url: str) -> None:
    """A path is followed name by name in the index, whatever the tree's size."""
    with ms.open(url) as store:
        _fill(store)
        backend: Any = store._session.backend
        names = {"start": 0} | {f"{k}{n}": "x" for n in range(1, 5) for k in "fnk"}
        if url.startswith("sqlite"):
            rows = backend._rows(f"EXPLAIN QUERY PLAN {sqlite.READ.resolve(4)}", names)
        else:
            rows = backend._rows(f"EXPLAIN {postgres.READ.resolve(4)}", names)
        plan = "\n".join(str(row) for row in rows)
    assert plan.count("guard_live_name") == 4, plan


def test_back_only_without_pending_drops(url: str) -> None:
    """A program of format 6 would take the parent for empty, and let gc delete what is being dropped."""
    with ms.open(url) as store:
        table = _fill(store)
        schema = store.schemas.load("m.c.s")
        store.tables.begin_drop(table, ttl=0.01)
        assert store._session.backend.has_children(schema.id)
    with connected(url) as connection:
        of_format_6 = f"SELECT count(*) FROM guard WHERE parent_id = {schema.id} AND state = 0"
        assert connection.exec_driver_sql(of_format_6).scalar() == 0
    with pytest.raises(RuntimeError, match="1 drops are pending"):
        migrations.downgrade(parse_url(url), "0006")
    migrations.downgrade(parse_url(url), "0007")
    with connected(url) as connection:
        assert connection.exec_driver_sql("SELECT format, compatible_from FROM info").one() == (7, 7)
    ms.migrate(url)
    with ms.open(url) as store:
        (pending,) = store.drops.pending()
        pending.roll_back()
    migrations.downgrade(parse_url(url), "0006")
    with connected(url) as connection:
        assert connection.exec_driver_sql("SELECT format, compatible_from FROM info").one() == (6, 6)
