"""A database goes back to a state without a data key that a process knows: no secret is written with it, or lost."""

from __future__ import annotations

import io
from collections.abc import Callable

import psycopg
import pytest

import metastore as ms
from metastore.secrets.keyring import VARIABLE, new_key
from metastore.store import Store
from tests.servers.postgres import PostgresServer

PATTERNS = "metastore.secret-properties"
KEY = "metastore.secret-key"


def by_import(store: Store, file: io.BytesIO, _: str) -> None:
    store.import_from(file, if_exists="replace")


def by_revert(store: Store, _: io.BytesIO, position: str) -> None:
    store.revert("lake.c", to=position)


def by_hand(store: Store, _: io.BytesIO, _position: str) -> None:
    store.catalogs.alter("lake.c", ms.RemoveProperty(KEY))


@pytest.mark.parametrize("go_back", [by_import, by_revert, by_hand])
def test_no_secret_is_encrypted_with_a_destroyed_key(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, go_back: Callable[[Store, io.BytesIO, str], None]
) -> None:
    """A process that remembers the key wrote what nobody else could read, and a rotation encrypted all with it."""
    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational", properties={PATTERNS: "password"})
        store.schemas.create("lake.c.old", properties={"password": "one"})
        file, position = io.BytesIO(), store.position()
        store.export_to(file)
        assert store.secrets.rotate(reencrypt=True).destroyed == (1,)
        go_back(store, file, position)
        assert KEY not in store.catalogs.load("lake.c").properties
        for _ in range(2):
            store.schemas.create("lake.c.new", properties={"password": "two"}, if_exists="replace")
            with ms.open(sqlite_url) as other:
                assert [other.reveal(f"lake.c.{name}", "password") for name in ("old", "new")] == ["one", "two"]
            assert len(store.secrets.rotate(reencrypt=True).destroyed) == 1
        assert list(store.verify()) == []


@pytest.mark.postgres
@pytest.mark.parametrize("others", [False, True], ids=["nobody else", "another process"])
def test_no_secret_is_encrypted_with_a_lost_key(monkeypatch: pytest.MonkeyPatch, others: bool) -> None:
    """A fail-over, or a backup that was put back, lost the data key; another process may have made the next one."""
    monkeypatch.setenv(VARIABLE, new_key())
    with PostgresServer(in_memory=True) as server:
        ms.migrate(url := server.create_database())
        with ms.open(url) as store:
            store.metalakes.create("lake")
            store.catalogs.create("lake.c", type="relational", properties={PATTERNS: "password"})
            store.schemas.create("lake.c.lost", properties={"password": "one"})
            store.schemas.purge("lake.c.lost")
            with psycopg.connect(url.replace("+psycopg", "")) as connection:
                connection.execute("DELETE FROM secret_key")
            server.kill()
            server.start()
            if others:
                with ms.open(url) as other:
                    other.schemas.create("lake.c.theirs", properties={"password": "two"})
            store.schemas.create("lake.c.mine", properties={"password": "three"})
            if others:
                assert store.reveal("lake.c.theirs", "password") == "two"
        with ms.open(url) as other:
            assert other.reveal("lake.c.mine", "password") == "three"


def test_a_revert_leaves_what_history_has_lost(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrub took the value out of history; of a partition too."""
    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open(sqlite_url) as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        given = {"password": "one"}
        table = store.tables.create("lake.c.s.t", parents=True, columns=[ms.Column("a", "long")], properties=given)
        store.partitions.create(table, "a=1", values={"a": "1"}, properties={**given, "k": "v"})
        position = store.position()
        store.tables.alter(table, ms.SetComment("later"))
        store.partitions.put_many(table, [store.partitions.row("a=1", {"a": "1"}, given)])
        store.catalogs.alter("lake.c", ms.SetProperty(PATTERNS, "password"))
        store.secrets.scrub()
        secret = store.partitions.load(table, "a=1").properties["password"]
        store.revert("lake.c.s.t", to=position)
        assert (store.tables.load(table).comment, store.reveal(table, "password")) == (None, "one")
        partition = store.partitions.load(table, "a=1")
        assert partition.properties == {"password": secret, "k": "v"}
        assert list(store.verify()) == []
