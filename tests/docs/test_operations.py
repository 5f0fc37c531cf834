"""What docs/operations.md has operators type does what it says, on real servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import metastore as ms
from metastore.cli.app import run as cli
from tests.docs.examples import ROOT
from tests.long import long_unless
from tests.servers.postgres import Databases, PostgresServer, programs
from tests.servers.process import wait_until

TEXT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)


def typed(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page in a shell that knows ``metastore`` and PostgreSQL's programs."""
    metastore = folder / "bin" / "metastore"
    metastore.parent.mkdir(exist_ok=True)
    metastore.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m metastore "$@"\n')
    metastore.chmod(0o755)
    path = os.pathsep.join([str(metastore.parent), str(programs()), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "HOME": str(folder), **variables}
    return subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def filled(url: str) -> tuple[ms.Table, str]:
    """Fill a database; return a table, and the position of the newest change."""
    with ms.open(url, principal="ann") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        table = store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("id", "long")])
        table = store.tables.alter(table, ms.SetComment("rows"))
        return table, list(store.changes())[-1].position


def test_every_line_of_cron_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```crontab\n(.*?)```", TEXT, re.DOTALL)
    url = f"sqlite:///{tmp_path / 'all.db'}"
    filled(url)
    lines = [line.split(maxsplit=5) for line in block.splitlines() if "METASTORE_URL=" not in line]
    assert [line[5].split()[:2] for line in lines] == [["metastore", name] for name in ("gc", "verify", "export")]
    for *when, command in lines:
        assert all(re.fullmatch(r"\*|\d+", field) for field in when)
        done = typed(command, tmp_path, METASTORE_URL=url)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "metastore.jsonl").stat().st_size > 500


@pytest.mark.postgres
def test_a_dump_is_restored_into_a_new_database(postgres_databases: Databases, tmp_path: Path) -> None:
    """It has everything; positions of the original are refused."""
    url, copy = postgres_databases.create_database(), postgres_databases.create_database()
    ms.migrate(url)
    table, position = filled(url)
    (commands,) = [block for block in SHELL if "pg_dump" in block]
    done = typed(commands, tmp_path, DATABASE=plain(url), RESTORED=plain(copy))
    assert done.returncode == 0, done.stderr
    assert cli(["verify", "--backup", copy]) == 0
    with ms.open(copy) as store:
        assert store.verify() == []
        found = store.tables.load(table.path)
        assert (found.id, found.version, found.comment) == (table.id, table.version, "rows")
        assert [version.version for version in store.tables.history(found)] == [1, 2]
        with pytest.raises(ms.InvalidArgument, match="another database"):
            list(store.changes(after=position))
    with ms.open(url) as store:
        assert list(store.changes(after=position)) == []
    for one in (url, copy):
        postgres_databases.drop_database(one)


@pytest.mark.postgres
def test_a_dump_that_is_restored_in_place_keeps_positions_up_to_it(
    postgres_databases: Databases, tmp_path: Path
) -> None:
    url = postgres_databases.create_database()
    ms.migrate(url)
    table, position = filled(url)
    dump, restore = next(block for block in SHELL if "pg_dump" in block).splitlines()
    assert typed(dump, tmp_path, DATABASE=plain(url)).returncode == 0
    with ms.open(url) as store:
        store.tables.alter(table.path, ms.SetComment("lost"))
        lost = list(store.changes())[-1].position
    done = typed(restore.replace("--no-owner", "--no-owner --clean --if-exists"), tmp_path, RESTORED=plain(url))
    assert done.returncode == 0, done.stderr
    with ms.open(url) as store:
        assert store.verify() == []
        assert list(store.changes(after=position)) == []
        with pytest.raises(ms.InvalidArgument, match="restored from an older backup"):
            list(store.changes(after=lost))
    postgres_databases.drop_database(url)


def test_a_sqlite_file_is_backed_up_while_it_is_written_and_put_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    table, position = filled(url)
    (commands,) = [block for block in SHELL if "backup copy.db" in block]
    back_up, put_back = commands.splitlines()
    with ms.open(url) as store:
        store.tables.alter(table.path, ms.SetComment("in the log"))
        done = typed(back_up, tmp_path)
        assert done.returncode == 0, done.stderr
        store.tables.alter(table.path, ms.SetComment("later"))
        done = typed(put_back, tmp_path)
        assert done.returncode == 1
        assert "a program has" in done.stderr
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0
    done = typed(put_back, tmp_path)
    assert done.returncode == 0, done.stderr
    with ms.open(url) as store:
        assert store.verify() == []
        assert store.tables.load(table.path).comment == "in the log"
        assert len(list(store.changes(after=position))) == 1


@pytest.mark.parametrize(
    ("options", "history"),
    long_unless([((), False), (("--ids",), False), (("--history",), True)], lambda one: one[0] == ("--history",)),
)
def test_what_an_export_brings_back(tmp_path: Path, options: tuple[str, ...], history: bool) -> None:
    """As the table says: ids, history, positions, leases."""
    url, copy = (f"sqlite:///{tmp_path / name}.db" for name in ("one", "other"))
    table, position = filled(url)
    with ms.open(url) as store:
        store.leases.acquire("nightly", owner="ann")
    words = " ".join(options)
    command = f"metastore --url {url} export {words} -o all.jsonl && metastore --url {copy} import all.jsonl"
    done = typed(command, tmp_path)
    assert done.returncode == 0, done.stderr
    with ms.open(copy) as store:
        found = store.tables.load(table.path)
        assert ((found.id, found.version) == (table.id, table.version)) == bool(options)
        assert ([v.version for v in store.tables.history(found)] == [1, 2]) == history
        assert list(store.leases.list()) == []
        with pytest.raises(ms.InvalidArgument, match="another database"):
            list(store.changes(after=position))


@pytest.mark.postgres
def test_a_process_has_no_more_connections_than_the_arithmetic_says(postgres_server: PostgresServer) -> None:
    """A pool of 3, with 12 threads that read, and 4 that wait for a lease: 3 + 4."""
    url = postgres_server.create_database()
    ms.migrate(url)
    table, _ = filled(url)
    done, most = threading.Event(), 0
    count = """SELECT count(*) FROM pg_stat_activity
      WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""

    with (
        ms.open(url, pool_size=3) as store,
        psycopg.connect(plain(url), autocommit=True) as watch,
        ThreadPoolExecutor(16) as pool,
    ):

        def read() -> None:
            while not done.is_set():
                store.tables.load(table.path)

        def wait(number: int) -> None:
            store.leases.acquire("nightly", owner=f"waiter {number}", timeout=120).release()

        held = store.leases.acquire("nightly", owner="ann", ttl=600)
        running = [pool.submit(wait, number) for number in range(4)] + [pool.submit(read) for _ in range(12)]
        try:
            waiting = wait_until(lambda: next(iter(store.leases.list())).waiting == 4, 60)
            for _ in range(50):
                most = max(most, watch.execute(count).fetchall()[0][0])
        finally:
            held.release()
            done.set()
        for one in running:
            one.result(120)
    assert waiting
    assert 3 < most <= 3 + 4
    postgres_server.drop_database(url)


def plain(url: str) -> str:
    """Return the URL as libpq knows it."""
    return url.replace("postgresql+psycopg", "postgresql")
