"""Settings of a role, a database, a URL or a pooler under which a commit could do something else than it says."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.settings import options_of
from metastore.urls import parse_url
from tests.bad_input.refusal import refused
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Databases, PostgresServer, database_of
from tests.verify.planting import build

pytestmark = pytest.mark.one_in(3)

ODD = {
    "array_nulls": "off",
    "standard_conforming_strings": "off",
    "transform_null_equals": "on",
    "backslash_quote": "on",
    "bytea_output": "escape",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "xmlbinary": "hex",
    "xmloption": "document",
    "row_security": "off",
    "default_transaction_deferrable": "on",
    "statement_timeout": "20s",
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "20s",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_nestloop": "off",
    "enable_hashjoin": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_custom_plan",
    "jit": "on",
    "jit_above_cost": "0",
    "quote_all_identifiers": "on",
    "escape_string_warning": "off",
    "client_encoding": "SJIS",
    "lc_messages": "C",
}
SILENT = {"default_transaction_isolation": "serializable", "client_min_messages": "error"}
"""What is refused behind a pooler, which keeps no setting of ours."""
NAMES = ["NULL", "null", "it's", r"back\slash", '"quoted"', "{a,b}", "ä€語😀", r"\'; DROP TABLE guard; --"]


def dsn(url: str) -> str:
    return url.replace("postgresql+psycopg", "postgresql")


def configure(url: str, settings: dict[str, str]) -> None:
    with psycopg.connect(dsn(url), autocommit=True) as connection:
        for name, value in settings.items():
            literal = value if name == "DateStyle" else "'" + value + "'"
            connection.execute(f"ALTER DATABASE {database_of(url)} SET {name} = {literal}".encode())


def work(url: str) -> None:
    """Make something of everything, with what is quoted in it, and with parts that are NULL in one statement."""
    build(url)
    with ms.open(url) as store, store.transaction() as tx:
        for name in NAMES:
            tx.tables.create(("lake", "c", "s", name), comment=name, properties={name: name})
        tx.tables.create("lake.c.s.plain")
        tx.tables.rename("lake.c.s.a", "b")
        tx.tables.drop("lake.c.s.plain")
        tx.catalogs.enable("lake.f")
        tx.partitions.create("lake.c.s.b", "x=NULL", values={"x": "NULL"})


def seen(url: str) -> list[Any]:
    """Return all that anybody can see, but ids of operations and times."""
    with ms.open(url) as store:
        assert store.verify() == []
        changes = [
            (c.kind, c.entity_id, c.action, c.path_before, c.path_after, c.version, c.changes, c.principal)
            for c in store.changes()
        ]
        loaded = store.tables.load_many([("lake", "c", "s", name) for name in NAMES])
        assert [table and (table.name, table.comment, dict(table.properties)) for table in loaded] == [
            (name, name, {name: name}) for name in NAMES
        ]
        return [changes, store.export_to(io.BytesIO()).hash, list(store.tables.names("lake.c.s"))]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Give what is seen of the same work on SQLite, which has no such settings."""
    url = f"sqlite:///{tmp_path_factory.mktemp('wanted') / 'a.db'}"
    work(url)
    return seen(url)


def test_odd_settings_of_a_database(postgres_url: str, wanted: list[Any]) -> None:
    configure(postgres_url, {**ODD, **SILENT})
    work(postgres_url)
    assert seen(postgres_url) == wanted


def test_odd_settings_behind_a_pooler(postgres_url: str, pgbouncer: PgBouncer, wanted: list[Any]) -> None:
    configure(postgres_url, ODD)
    url = pgbouncer.url(database_of(postgres_url))
    work(url)
    assert seen(url) == wanted


def test_settings_that_another_client_of_a_pooler_left(
    postgres_url: str, pgbouncer: PgBouncer, wanted: list[Any]
) -> None:
    """It set them on each of the server's connections, which everybody shares."""
    url = pgbouncer.url(database_of(postgres_url))
    with ExitStack() as stack:
        others = [stack.enter_context(psycopg.connect(dsn(url))) for _ in range(pgbouncer.pool_size)]
        pids = set()
        for other in others:  # each in a transaction, hence on a connection of its own
            other.execute("SET array_nulls = off")
            other.execute("SET transform_null_equals = on")
            pids.add(other.execute("SELECT pg_backend_pid()").fetchone())
        assert len(pids) == pgbouncer.pool_size
    work(url)
    assert seen(url) == wanted


@pytest.mark.parametrize(("name", "value"), [*SILENT.items(), ("default_transaction_isolation", "repeatable read")])
def test_what_nobody_can_set_behind_a_pooler(postgres_url: str, pgbouncer: PgBouncer, name: str, value: str) -> None:
    configure(postgres_url, {name: value})
    refused(ms.BackendRefused, lambda: ms.open(pgbouncer.url(database_of(postgres_url))), value, "ALTER ROLE", name)


@pytest.mark.parametrize("option", ["client_encoding=sjis", "client_encoding=latin1", "replication=database"])
def test_options_of_a_url(postgres_url: str, option: str) -> None:
    url = f"{postgres_url}?{option}"
    refused(ms.InvalidArgument, lambda: ms.open(url), option.partition("=")[0], "remove it")
    refused(ms.InvalidArgument, lambda: ms.migrate(url), option.partition("=")[0], "remove it")


def test_what_a_url_says_twice() -> None:
    """Its parts count, not its options: a migration must not change another database than the store opens."""
    url = "postgresql://u:w@h:1/d?dbname=e&user=v&host=k&port=2&password=x&sslmode=require"
    assert options_of(parse_url(url)) == {"sslmode": "require"}
    assert options_of(parse_url("postgresql:///?dbname=e&user=v")) == {"dbname": "e", "user": "v"}


def test_what_comes_with_a_url_or_the_environment_does_not_count(
    postgres_url: str, wanted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "SJIS")
    url = f"{postgres_url}?options={quote('-c array_nulls=off -c client_encoding=latin1')}"
    work(url)
    assert seen(url) == wanted


@pytest.fixture(params=["LATIN1", "SQL_ASCII", "EUC_JP"])
def encoded(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[tuple[str, str]]:
    """Give a database that was made with another encoding, and the encoding."""
    name = f"encoded_{request.param.lower()}"
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'".encode()
        )
    yield postgres_server.url(name), request.param
    postgres_server.drop_database(name)


def test_other_encodings(encoded: tuple[str, str]) -> None:
    url, encoding = encoded
    words = (encoding, "expected UTF8", "CREATE DATABASE", "TEMPLATE template0")
    refused(ms.BackendRefused, lambda: ms.open(url), *words)
    refused(ms.BackendRefused, lambda: ms.migrate(url), *words)
    with psycopg.connect(dsn(url)) as connection:
        assert connection.execute("SELECT to_regclass('guard')").fetchone() == (None,)


class Slow(io.BytesIO):
    """A stream that keeps an export waiting once, for longer than the server lets a transaction be idle."""

    waits = 0.6

    def write(self, data: Any) -> int:
        time.sleep(self.waits)
        self.waits = 0.0
        return super().write(data)


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_a_transaction_that_reads_everything_may_be_idle(
    request: pytest.FixtureRequest, postgres_url: str, pooled: bool
) -> None:
    work(postgres_url)
    settings = {"idle_in_transaction_session_timeout": "200ms", "statement_timeout": "1s"}
    with psycopg.connect(dsn(postgres_url)) as connection:
        if connection.info.server_version >= 170_000:
            settings["transaction_timeout"] = "500ms"
    configure(postgres_url, settings)
    bouncer: PgBouncer | None = request.getfixturevalue("pgbouncer") if pooled else None
    url = postgres_url if bouncer is None else bouncer.url(database_of(postgres_url))
    with ms.open(url) as store:
        assert store.export_to(Slow(), history=True).operations
        with store._session.backend.snapshot() as snapshot:
            rows = snapshot.rows("entity", ("id",), ("id",))
            first = next(rows)
            time.sleep(0.6)
            assert len([first, *rows]) > len(NAMES)
        assert store.verify() == []


def test_a_sequence_that_draws_several_numbers_at_once(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with psycopg.connect(dsn(postgres_url)) as connection:
        connection.execute("ALTER SEQUENCE change_seq CACHE 20")
    with caplog.at_level(logging.WARNING), ms.open(postgres_url) as store:
        assert "change_seq draw several numbers at once" in caplog.text
        (found,) = store.verify()
        assert (found.invariant, found.entity_id) == (8, None)
        assert "ALTER SEQUENCE change_seq CACHE 1" in found.message
    with psycopg.connect(dsn(postgres_url)) as connection:
        connection.execute("ALTER SEQUENCE change_seq CACHE 1")
    caplog.clear()
    with ms.open(postgres_url) as store:
        assert store.verify() == []
    assert caplog.text == ""


def test_a_commit_is_denied_at_once(postgres_databases: Databases, postgres_url: str) -> None:
    """A right that is revoked while a store is open: nothing is tried again."""
    attempts: list[Any] = []
    with ms.open(postgres_url, hooks=[attempts.append]) as store:
        store.metalakes.create("lake")
        with psycopg.connect(dsn(postgres_url), autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE insufficient_privilege; END$$"
            )
            connection.execute("CREATE TRIGGER deny BEFORE INSERT ON operation EXECUTE FUNCTION deny()")
        attempts.clear()
        for call in (
            lambda: store.metalakes.create("other"),
            lambda: store.metalakes.alter("lake", ms.SetComment("x")),
            lambda: store.run(lambda tx: tx.metalakes.create("other")),
        ):
            error = refused(ms.BackendRefused, call, "its owner must allow it")
            assert isinstance(error, ms.BackendUnavailable)
            assert not error.transient
        assert attempts == []
