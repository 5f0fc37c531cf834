"""Exports into Gravitino's own schemas, of several versions, on PostgreSQL and MySQL's successor.

The schemas are Gravitino's published files: ``make gravitino-spec`` brings them. Without them the tests of this file
are left out; test_gravitino.py has tables of the same shape that it makes itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import sqlalchemy as sa

from metastore.exports.gravitino import export_gravitino
from metastore.imports.gravitino import import_gravitino
from tests.imports.gravitino_world import World
from tests.imports.test_gravitino_schemas import SCRIPTS, VERSIONS, mariadb, statements

__all__ = ["mariadb"]
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="needs Gravitino's schemas: make gravitino-spec")


def make(url: str, backend: str, version: str, name: str, *, fill: bool) -> str:
    """Make a database with Gravitino's tables beside the one at ``url``; return its address."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    made = engine.url.set(database=name)
    engine.dispose()
    engine = sa.create_engine(made)
    with engine.begin() as connection:
        for one in statements(backend, version):
            connection.exec_driver_sql(one.replace("%", "%%"))
        if fill:
            World(connection).fill()
    engine.dispose()
    return made.render_as_string(hide_password=False)


def over_and_back(source: str, back: str, tmp_path: Path) -> None:
    """Import, export, and import again: both imports show the same, and a second export changes nothing."""
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second"))
    here = import_gravitino(first, source, file=tmp_path / "import.jsonl")
    report = export_gravitino(first, back)
    assert report.findings == []
    there = import_gravitino(second, back, file=tmp_path / "import.jsonl")
    assert (there.findings, there.same, there.target_hash) == ([], True, here.target_hash)
    again = export_gravitino(first, back)
    assert (again.replaced, again.rows, again.findings) == (True, report.rows, [])
    assert import_gravitino(second, back, file=tmp_path / "import.jsonl").written == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_on_postgresql(postgres_url: str, tmp_path: Path, version: str) -> None:
    name = sa.make_url(postgres_url).database
    source = make(postgres_url, "postgresql", version, f"{name}_there", fill=True)
    over_and_back(source, make(postgres_url, "postgresql", version, f"{name}_back", fill=False), tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_on_mariadb(mariadb: str, tmp_path: Path, version: str) -> None:
    name, server = f"x{version.replace('.', '_')}", mariadb.replace("mysql://", "mysql+pymysql://")
    source = make(server, "mysql", version, f"{name}_there", fill=True)
    over_and_back(source, make(server, "mysql", version, f"{name}_back", fill=False), tmp_path)
