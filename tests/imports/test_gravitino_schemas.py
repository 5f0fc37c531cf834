"""Databases of Gravitino's own schemas, of several versions, on PostgreSQL, MySQL's successor, and as scripts of H2.

The schemas are Gravitino's published files: ``make gravitino-spec`` brings them. Without them the tests of this file
are left out; test_gravitino.py has tables of the same shape that it makes itself.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra [serve]")

import sqlalchemy as sa

import metastore as ms
from metastore.imports.gravitino import import_gravitino
from metastore.imports.gravitino.h2 import load_script
from tests.imports.gravitino_world import World
from tests.servers.process import free_port, server_user, wait_until

SCRIPTS = Path(__file__).resolve().parents[2] / "build/gravitino-spec/scripts"
VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0")
H2 = SCRIPTS.parent / "h2-2.2.224.jar"
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="needs Gravitino's schemas: make gravitino-spec")


def statements(backend: str, version: str) -> list[str]:
    """Return the statements of a schema; comments on columns of PostgreSQL are of no use here."""
    text = (SCRIPTS / backend / f"schema-{version}-{backend}.sql").read_text()
    bare = re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    quoted = re.split(r";(?=(?:[^']*'[^']*')*[^']*$)", bare)
    return [one for one in quoted if one.strip() and not one.strip().startswith("COMMENT ON")]


def imported(source: str, tmp_path: Path, planted: dict[str, int]) -> None:
    """Import twice, and check what comes over."""
    target = f"sqlite:///{tmp_path}/store.db"
    report = import_gravitino(target, source, file=tmp_path / "import.jsonl")
    assert report.same
    assert report.problems() == planted, report.findings
    again = import_gravitino(target, source, file=tmp_path / "import.jsonl")
    assert (again.same, again.written, again.dropped) == (True, 0, 0)
    with ms.open(target) as store:
        assert [c.name for c in store.tables.load("lake.sales.eu.orders").columns] == ["id", "address"]
        assert list(store.verify()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_on_postgresql(postgres_url: str, tmp_path: Path, version: str) -> None:
    engine = sa.create_engine(postgres_url)
    with engine.begin() as connection:
        for one in statements("postgresql", version):
            connection.exec_driver_sql(one)
    with engine.begin() as connection:
        there = World(connection)
        there.fill()
        planted = there.spoil()
    engine.dispose()
    imported(postgres_url.replace("postgresql+psycopg", "postgresql"), tmp_path, planted)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[str]:
    """Give the address of a MariaDB server that runs for this module."""
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        pytest.skip("needs MariaDB: apt-get install mariadb-server")
    pytest.importorskip("pymysql", reason="needs the extra [mysql]")
    data, port = Path(tempfile.mkdtemp(prefix="metastore-test-")), free_port()  # a short path: it has a socket
    user = "mysql" if server_user() else None
    if user is not None:
        shutil.chown(data, user)
    as_user = [f"--user={user}"] if user else []
    install = ["mariadb-install-db", f"--datadir={data}", "--auth-root-authentication-method=normal", *as_user]
    subprocess.run([*install, "--skip-test-db"], check=True, capture_output=True)
    command = ["mariadbd", "--no-defaults", f"--datadir={data}", f"--port={port}", f"--socket={data}/s", *as_user]
    with subprocess.Popen([*command, "--bind-address=127.0.0.1"], stderr=subprocess.DEVNULL) as process:
        try:
            engine = sa.create_engine(f"mysql+pymysql://root@127.0.0.1:{port}")
            assert wait_until(lambda: _answers(engine), 30.0)
            engine.dispose()
            yield f"mysql://root@127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(data, ignore_errors=True)


def _answers(engine: sa.Engine) -> bool:
    try:
        with engine.connect():
            return True
    except sa.exc.OperationalError:
        return False


@pytest.mark.parametrize("version", VERSIONS)
def test_on_mariadb(mariadb: str, tmp_path: Path, version: str) -> None:
    name = f"g{version.replace('.', '_')}"
    engine = sa.create_engine(mariadb.replace("mysql://", "mysql+pymysql://"))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
        connection.exec_driver_sql(f"USE {name}")
        for one in statements("mysql", version):
            connection.exec_driver_sql(one.replace("%", "%%"))
    engine.dispose()
    engine = sa.create_engine(f"{mariadb.replace('mysql://', 'mysql+pymysql://')}/{name}")
    with engine.begin() as connection:
        there = World(connection)
        there.fill()
        planted = there.spoil()
    engine.dispose()
    imported(f"{mariadb}/{name}", tmp_path, planted)


def h2(tool: str, folder: Path, script: Path) -> None:
    """Run a tool of H2 on the database of a test."""
    words = ["-url", f"jdbc:h2:{folder}/h2;MODE=MYSQL", "-user", "sa", "-script", str(script)]
    subprocess.run(["java", "-cp", str(H2), f"org.h2.tools.{tool}", *words], check=True, capture_output=True)


def inserts(connection: sa.Connection, world: World) -> Iterator[str]:
    """Yield statements that insert what was written to copies of the tables."""
    for table in world.metadata.tables.values():
        for row in connection.execute(sa.select(table)).mappings():
            values = {name: value for name, value in row.items() if value is not None}
            texts = [str(v) if isinstance(v, int) else "'" + v.replace("'", "''") + "'" for v in values.values()]
            yield f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({', '.join(texts)});\n"


@pytest.mark.skipif(not H2.exists() or shutil.which("java") is None, reason="needs H2 and Java: make gravitino-spec")
@pytest.mark.parametrize("version", VERSIONS)
def test_on_h2(tmp_path: Path, version: str) -> None:
    script, rows = tmp_path / "h2.sql", tmp_path / "rows.sql"
    h2("RunScript", tmp_path, SCRIPTS / "h2" / f"schema-{version}-h2.sql")
    h2("Script", tmp_path, script)
    with load_script(str(script)) as connection:
        there = World(connection)
        there.fill()
        planted = there.spoil()
        long = json.dumps({"long": "it's; -- l\u00f6ng \U0001f600 " * 1000})  # H2 writes it in parts
        there.set("schema_meta", {"schema_id": 101}, properties=long)
        rows.write_text("".join(inserts(connection, there)))
    h2("RunScript", tmp_path, rows)
    h2("Script", tmp_path, script)
    imported(str(script), tmp_path, planted)
    with ms.open(f"sqlite:///{tmp_path}/store.db") as store:
        assert dict(store.schemas.load("lake.sales.us").properties) == json.loads(long)
