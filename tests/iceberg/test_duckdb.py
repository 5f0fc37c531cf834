"""DuckDB's Iceberg extension works with the server: it creates, inserts, changes and reads, in transactions too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import metastore as ms
from tests.iceberg.server import served

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

duckdb: Any = pytest.importorskip("duckdb", reason="pip install duckdb duckdb-extension-{avro,httpfs,iceberg}")
EXTENSIONS = ("avro", "httpfs", "iceberg")


def _connected(address: str) -> DuckDBPyConnection:
    """Connect with the extensions of the packages beside DuckDB's: nothing is downloaded."""
    connection: DuckDBPyConnection = duckdb.connect()
    for name in EXTENSIONS:
        module = pytest.importorskip(f"duckdb_extension_{name}", reason=f"pip install duckdb-extension-{name}")
        files = sorted(Path(str(module.__file__)).parent.rglob("*.duckdb_extension"))
        try:
            connection.load_extension(str(files[-1]))
        except duckdb.InvalidInputException as error:  # the package is of another version of DuckDB
            pytest.skip(f"the extension {name} does not fit DuckDB {duckdb.__version__}: {str(error)[:200]}")
    connection.execute(f"ATTACH 'lake.ice' AS ice (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none')")
    return connection


@pytest.fixture
def address(url: str, tmp_path: Path) -> Iterator[str]:
    with served(url, tmp_path / "warehouse") as address:
        yield address


@pytest.fixture
def duck(address: str) -> Iterator[DuckDBPyConnection]:
    with _connected(address) as connection:
        connection.execute("CREATE SCHEMA ice.a")
        connection.execute("CREATE TABLE ice.a.t (n BIGINT, s VARCHAR)")
        yield connection


def _rows(duck: DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return duck.execute(query).fetchall()


def test_tables_are_created_changed_and_read(duck: DuckDBPyConnection, address: str) -> None:
    duck.execute("INSERT INTO ice.a.t VALUES (1, 'x'), (2, 'y'), (3, 'z')")
    duck.execute("DELETE FROM ice.a.t WHERE n = 1")
    duck.execute("UPDATE ice.a.t SET s = 'k' WHERE n = 2")
    assert _rows(duck, "FROM ice.a.t ORDER BY n") == [(2, "k"), (3, "z")]
    duck.execute("CREATE TABLE ice.a.u AS SELECT 7 AS n")
    assert _rows(duck, "FROM ice.a.u") == [(7,)]
    client = load_catalog("x", type="rest", uri=address, warehouse="lake.ice")
    assert client.load_table("a.t").scan().to_arrow().num_rows == 2
    client.load_table("a.u").append(pa.table({"n": pa.array([8], pa.int32())}))
    assert _rows(duck, "SELECT sum(n) FROM ice.a.u") == [(15,)]
    duck.execute("DROP TABLE ice.a.u")
    assert client.list_tables("a") == [("a", "t")]


def test_a_transaction_over_two_tables_is_one_commit(duck: DuckDBPyConnection, url: str) -> None:
    duck.execute("CREATE TABLE ice.a.u (n BIGINT)")
    duck.execute("BEGIN")
    duck.execute("INSERT INTO ice.a.t VALUES (3, 'z')")
    duck.execute("INSERT INTO ice.a.u VALUES (8)")
    duck.execute("COMMIT")
    assert _rows(duck, "SELECT count(*) FROM ice.a.t") == _rows(duck, "SELECT count(*) FROM ice.a.u") == [(1,)]
    with ms.open(url) as store:
        last = [list(store.tables.history(f"lake.ice.a.{name}"))[-1] for name in ("t", "u")]
        assert last[0].operation_id == last[1].operation_id
        assert store.verify() == []


def test_a_transaction_that_is_rolled_back_leaves_nothing(duck: DuckDBPyConnection) -> None:
    duck.execute("BEGIN")
    duck.execute("CREATE TABLE ice.a.u (n BIGINT)")
    duck.execute("INSERT INTO ice.a.t VALUES (3, 'z')")
    duck.execute("ROLLBACK")
    assert _rows(duck, "FROM ice.a.t") == []
    assert _rows(duck, "SELECT count(*) FROM (SHOW ALL TABLES) WHERE name = 'u'") == [(0,)]


def test_inserts_of_two_connections_merge_where_the_table_says_so(duck: DuckDBPyConnection, address: str) -> None:
    table = load_catalog("x", type="rest", uri=address, warehouse="lake.ice").load_table("a.t")
    with table.transaction() as transaction:
        transaction.set_properties({"metastore.commit.merge": "true"})
    with _connected(address) as other:
        for connection in (duck, other):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO ice.a.t VALUES (1, 'x')")
        duck.execute("COMMIT")
        other.execute("COMMIT")
        assert _rows(other, "SELECT count(*) FROM ice.a.t") == [(2,)]
