"""``metastore verify --backup``: of backups by PostgreSQL's own tools that were put back, and of exports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.whole import TRIGGERS
from metastore.cli.app import run as cli
from metastore.secrets.keyring import new_key
from tests.servers.postgres import Databases, PostgresServer, programs


def plain(url: str) -> str:
    return url.replace("+psycopg", "")


def filled(url: str) -> str:
    """Fill a database; return the position of the newest change."""
    ms.migrate(url)
    with ms.open(url, principal="ann") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("id", "long")])
        store.tags.create("lake.seen")
        store.tags.attach("lake.c.s.t", "lake.seen")
        return store.position()


def told(place: str | Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return what the command says of a backup; check that its exit code says the same."""
    capsys.readouterr()
    code = cli(["verify", "--backup", str(place), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == (0 if said["whole"] else 1)
    assert said["whole"] == all(one["whole"] for one in said["backups"])
    found: list[dict[str, Any]] = said["backups"]
    return found


@pytest.mark.long
@pytest.mark.postgres
def test_a_dump_that_was_put_back(
    postgres_databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, dump = postgres_databases.create_database(), tmp_path / "dump"
    filled(url)

    def run(program: str, *words: str | Path) -> str:
        command = [programs() / program, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def info(url: str) -> Any:
        with psycopg.connect(plain(url)) as connection:
            return connection.execute("SELECT * FROM info").fetchall()

    with psycopg.connect(plain(url)) as connection:
        triggers = connection.execute("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal").fetchall()
        assert {name for (name,) in triggers} == set(TRIGGERS), "it looks for each trigger"
    run("pg_dump", "--format=custom", f"--file={dump}", plain(url))
    contents = run("pg_restore", "--list", dump).splitlines(keepends=True)
    (tmp_path / "list").write_text("".join(line for line in contents if "SEQUENCE SET" not in line))
    with ms.open(url) as store:
        newest = list(store.changes())[-1]
    for words, problem in (
        ([], None),
        (["--section=pre-data"], "the index"),
        (["--section=pre-data", "--section=data"], "the trigger"),
        ([f"--use-list={tmp_path / 'list'}"], "the sequence change_seq is behind"),
        ([*(f"--section={name}" for name in ("data", "post-data"))], "the table"),
    ):
        copy = postgres_databases.create_database()
        if problem == "the table":  # nothing was restored: the first statement failed
            (found,) = told(copy, capsys)
        else:
            run("pg_restore", "--no-owner", f"--dbname={plain(copy)}", *words, dump)
            before = info(copy)
            (found,) = told(copy, capsys)
            assert info(copy) == before, "it stays the backup: nothing is noted in it"
        if problem is None:
            assert found["problems"] == []
            assert found["time"] == newest.time.isoformat()
            with psycopg.connect(plain(copy)) as connection:
                connection.execute("DELETE FROM entity WHERE id = (SELECT max(id) FROM entity)")
            (found,) = told(copy, capsys)
            assert found["problems"], "a row is missing"
        else:
            assert any(problem in one for one in found["problems"]), found
        postgres_databases.drop_database(copy)
    old = postgres_databases.create_database()
    ms.migrate(old, to="0009")
    (found,) = told(old, capsys)
    assert ["migrate it" in one for one in found["problems"]] == [True]
    postgres_databases.drop_database(old)
    postgres_databases.drop_database(url)


@pytest.mark.postgres
def test_a_base_backup_has_numbers_that_no_change_had(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its sequence runs ahead, as after each crash."""
    filled(postgres_url)
    with psycopg.connect(plain(postgres_url)) as connection:
        connection.execute("SELECT nextval('change_seq') FROM generate_series(1, 20)")
    with ms.open(postgres_url) as store:
        newest = list(store.changes())[-1]
        assert store.position(back=1) == newest.position, "a number without a change may come again"
    (found,) = told(postgres_url, capsys)
    assert (found["position"], found["time"]) == (newest.position, newest.time.isoformat())


@pytest.mark.postgres
def test_what_a_restore_lacks_that_went_on_after_an_error(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``pg_restore`` without ``--exit-on-error`` leaves out one object, and makes those after it."""
    monkeypatch.setenv("METASTORE_SECRET_KEY", new_key())
    filled(postgres_url)
    with ms.open(postgres_url) as store:
        store.catalogs.create("lake.d", type="relational", properties={"metastore.secret-properties": "password"})
        store.tables.create("lake.d.s.t", parents=True, properties={"password": "x"})
    assert told(postgres_url, capsys)[0]["problems"] == []
    for damage, problem in (
        ("DELETE FROM secret_key", "the data key 1 is missing"),
        ("ALTER TABLE operation DROP CONSTRAINT operation_seq", "the index operation_seq is missing"),
        ("ALTER TABLE operation ENABLE REPLICA TRIGGER operation_writer", "the trigger operation_writer"),
        ("DELETE FROM alembic_version", "the table alembic_version has no row"),
        ("DELETE FROM info", "the table info has no row"),
    ):
        with psycopg.connect(plain(postgres_url)) as connection:
            connection.execute(damage)
        (found,) = told(postgres_url, capsys)
        assert any(problem in one for one in found["problems"]), found
    with pytest.raises(ms.BackendRefused, match="restore it again"):
        ms.open(postgres_url)


class Restored(PostgresServer):
    """A server on a base backup of another one."""

    def __init__(self, of: PostgresServer) -> None:
        self._of = of
        super().__init__()

    def _initialize(self) -> None:
        self.run([programs() / "pg_basebackup", "-D", self.data, "-d", self._of.dsn(), "-X", "stream", "-c", "fast"])


@pytest.mark.long
@pytest.mark.postgres
def test_a_base_backup_ends_where_the_original_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with PostgresServer() as original:
        url = original.create_database("lake")
        position = filled(url)
        with Restored(original) as copy:
            with ms.open(url) as store:
                store.tables.create("lake.c.s.later")
            (found,) = told(copy.url("lake"), capsys)
            assert (found["problems"], found["position"]) == ([], position)
            with ms.open(url) as store:
                assert len(list(store.changes(after=found["position"]))) == 1
    (tmp_path / "backup_manifest").touch()
    assert cli(["verify", "--backup", str(tmp_path)]) == 1
    assert "pg_verifybackup" in capsys.readouterr().err


def test_exports(sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    position = filled(sqlite_url)
    folder = tmp_path / "exports"
    folder.mkdir()
    with ms.open(sqlite_url) as store:
        store.export_to(folder / "whole.jsonl", history=True)
    (one,) = told(folder / "whole.jsonl", capsys)
    assert one["problems"] == []
    assert position.startswith(one["position"]), "in an export it does not name the operation"
    whole = (folder / "whole.jsonl").read_bytes()
    (folder / "cut.jsonl").write_bytes(whole[: len(whole) // 2])
    (folder / "changed.jsonl").write_bytes(whole.replace(b"seen", b"sean"))
    assert [(Path(one["place"]).name, one["whole"]) for one in told(folder, capsys)] == [
        ("changed.jsonl", False),
        ("cut.jsonl", False),
        ("whole.jsonl", True),
    ]
    (folder / "twice.jsonl").write_bytes(whole + whole)
    assert not told(folder / "twice.jsonl", capsys)[0]["whole"]
    for place, words in ((tmp_path / "none", "cannot be read"), ("sqlite:///x.db", "COPY verify"), ("", "is empty")):
        assert cli(["verify", "--backup", str(place)]) == 1
        said = capsys.readouterr()
        assert words in said.out + said.err
