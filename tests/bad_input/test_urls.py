"""URLs, passwords, and servers that are not there."""

from __future__ import annotations

import logging
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

import metastore as ms
from metastore.crawl.files.filesystems import split_uri
from metastore.urls import parse_url, redacted
from tests.bad_input.refusal import PASSWORD, refused
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.process import free_port

pytestmark = pytest.mark.one_in(3)

BAD_URLS: dict[str, Any] = {
    "empty": "",
    "a word": "foo",
    "no driver": "localhost/db",
    "no driver, a password": f"u:{PASSWORD}@localhost/db",
    "only slashes": "://",
    "another database": f"mysql://u:{PASSWORD}@h/d",
    "another driver": f"postgresql+psycopg2://u:{PASSWORD}@h/d",
    "an async driver": f"postgresql+asyncpg://u:{PASSWORD}@h/d",
    "a port that is none": f"postgresql://u:{PASSWORD}@h:port/d",
    "a host that does not end": f"postgresql://u:{PASSWORD}@[::1/d",
    "a host with a label that is too long": f"postgresql://u:{PASSWORD}@{'a' * 64}/d",
    "two slashes": "sqlite://file.db",
    "one slash": "sqlite:/file.db",
    "no slash": "sqlite:file.db",
    "options of SQLite": "sqlite:///file.db?mode=ro",
    "NUL in a file": "sqlite:///a\0b.db",
    "NUL in a database": "postgresql://h/a%00b",
    "NUL in a password": f"postgresql://u:{PASSWORD}%00@h/a",
    "an unknown option": f"postgresql://u:{PASSWORD}@127.0.0.1:1/d?sslmoed=require",
    "an option of psycopg": f"postgresql://u:{PASSWORD}@127.0.0.1:1/d?autocommit=0",
    "an option twice": f"postgresql://u:{PASSWORD}@/d?host=127.0.0.1&host=127.0.0.2",
    "an option of the session": f"postgresql://u:{PASSWORD}@127.0.0.1:1/d?client_encoding=sjis",
    "bytes": b"sqlite:///file.db",
    "an integer": 5,
}


@pytest.mark.parametrize("url", BAD_URLS.values(), ids=BAD_URLS)
def test_bad_urls(url: Any) -> None:
    refused(ms.InvalidArgument, lambda: ms.open(url))


@pytest.mark.parametrize("url", BAD_URLS.values(), ids=BAD_URLS)
def test_bad_urls_are_not_migrated(url: Any) -> None:
    refused(ms.InvalidArgument, lambda: ms.migrate(url))


def test_the_environment_gives_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASTORE_URL", f"mysql://u:{PASSWORD}@h/d")
    refused(ms.InvalidArgument, ms.open, "'mysql'")


def test_a_url_is_shown_without_its_secrets() -> None:
    in_query = f"postgresql://h/d?password={PASSWORD}&sslpassword={PASSWORD}&application_name=a"
    assert redacted(parse_url(in_query)) == "postgresql+psycopg://h/d?application_name=a"
    assert redacted(parse_url(f"postgresql://u:{PASSWORD}@h/d")) == "postgresql+psycopg://u:***@h/d"

    unknown = f"postgresql://h/d?passwrod={PASSWORD}&oauth_client_secret={PASSWORD}&options=-c%20x={PASSWORD}"
    assert redacted(parse_url(unknown)) == "postgresql+psycopg://h/d"


FIRST, SECOND = "fir5t-half", "sec0nd-half"
CUT: dict[str, str] = {
    "@": f"u:{FIRST}@{SECOND}@127.0.0.1:1/d",
    "@ and /": f"u:{FIRST}@x/{SECOND}@127.0.0.1:1/d",
    "@ and :": f"u:{FIRST}@x:{SECOND}@127.0.0.1:1/d",
    "@ and ?": f"u:{FIRST}@{SECOND}?x@127.0.0.1:1/d",
    "@ twice": f"u:x@{FIRST}@{SECOND}@127.0.0.1:1/d",
    "/ in the user": f"u/x:{FIRST}{SECOND}@127.0.0.1:1/d",
    "@ in an option": f"?password={FIRST}@{SECOND}",
    "@ in an option behind a host": f"127.0.0.1:1/d?user=u&password={FIRST}@{SECOND}",
    "no host": "u:2718281828/d",
    "a URL as an option": f"127.0.0.1:1?dbname=postgresql://u:{FIRST}{SECOND}%40h/d",
    "a URL as a host": f"/d?host=u:{FIRST}%40{SECOND}&port=1",
    "an unknown option": f"127.0.0.1:1/d?passwrod={FIRST}{SECOND}",
}


@pytest.mark.parametrize("rest", CUT.values(), ids=CUT)
@pytest.mark.parametrize("call", [ms.open, ms.migrate])
def test_no_part_of_a_password_is_shown(
    call: Callable[[str], Any], rest: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the URL is cut: each half could be taken for the host, the port or the database."""
    monkeypatch.setenv("METASTORE_URL", f"postgresql://{rest}")
    with caplog.at_level(logging.DEBUG):
        error = refused(ms.InvalidArgument, lambda: call(None))  # type: ignore[arg-type]
    for part in (FIRST, SECOND, "2718281828"):
        assert part not in str(error) + repr(error) + caplog.text


@pytest.mark.parametrize("password", ["a@b", "a/b", "a:b", "a?b", "a#b", "a%b"])
def test_a_password_with_reserved_characters(password: str) -> None:
    parsed = parse_url(f"postgresql://u:{quote(password, safe='')}@h/d")
    assert (parsed.password, parsed.host, parsed.database) == (password, "h", "d")


LEASE_URLS = {
    "a key": f"s3a://{FIRST}@bucket/locks",
    "a secret with /": f"s3://key:12/{SECOND}@bucket/locks",
    "a secret": f"gs://key:{FIRST}@{SECOND}@bucket/locks",
    "one slash": f"s3:/key:{FIRST}{SECOND}@bucket/locks",
    "another with /": f"abfss://container:12/{SECOND}@account/locks",
    "a question mark": f"s3://key:1?{SECOND}@bucket/locks",
}


@pytest.mark.parametrize("url", LEASE_URLS.values(), ids=LEASE_URLS)
def test_urls_for_leases(url: str) -> None:
    error = refused(ms.InvalidArgument, lambda: ms.ObjectStoreLeases(url))
    assert not any(part in str(error) for part in (FIRST, SECOND))


SOURCES = {
    "a slash": f"s3://key:{FIRST}/{SECOND}@bucket/lake",
    "a question mark": f"s3://key:{FIRST}?{SECOND}@bucket/lake",
    "a container": f"abfss://container:{FIRST}/{SECOND}@account/lake",
    "an @": f"s3://key:{FIRST}@{SECOND}@bucket/lake?region=eu-west-1",
    "another scheme": f"sftp://u:{FIRST}/{SECOND}@host/lake",
    "another scheme, a question mark": f"sftp://u:{FIRST}?{SECOND}@host/lake",
}


@pytest.mark.parametrize("url", SOURCES.values(), ids=SOURCES)
def test_urls_of_a_source(url: str) -> None:
    error = refused(ms.InvalidArgument, lambda: split_uri(url))
    assert not any(part in str(error) for part in (FIRST, SECOND))


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


def with_password(server: PostgresServer, password: str, database: str = "postgres") -> list[str]:
    """Return the two ways to write a password into a URL."""
    where = f"127.0.0.1:{server.port}/{database}"
    return [
        f"postgresql+psycopg://{server.user}:{password}@{where}",
        f"postgresql+psycopg://{where}?user={server.user}&password={password}",
    ]


@pytest.mark.parametrize("way", [0, 1], ids=["user:password@", "?password="])
def test_a_wrong_password(password_server: PostgresServer, way: int, caplog: pytest.LogCaptureFixture) -> None:
    wrong = "wr0ng-" + PASSWORD
    url = with_password(password_server, wrong)[way]
    with caplog.at_level(logging.DEBUG):
        error = refused(ms.BackendUnavailable, lambda: ms.open(url), "password authentication failed", "credentials")
        assert PASSWORD not in shown(error)
        error = refused(ms.BackendUnavailable, lambda: ms.migrate(url), "password authentication failed", "credentials")
        assert PASSWORD not in shown(error)
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("way", [0, 1], ids=["user:password@", "?password="])
def test_a_right_password_is_not_shown(
    password_server: PostgresServer, way: int, caplog: pytest.LogCaptureFixture
) -> None:
    database = password_server.create_database()
    url = with_password(password_server, PASSWORD, database.rpartition("/")[2])[way]
    with caplog.at_level(logging.DEBUG):
        error = refused(ms.MigrationNeeded, lambda: ms.open(url), "run: metastore migrate")
        assert PASSWORD not in shown(error)
        ms.migrate(url)
        with ms.open(url) as store:
            assert PASSWORD not in repr(store) + str(store)
            store.metalakes.create("m")
            error = refused(ms.EntityAlreadyExists, lambda: store.metalakes.create("m"))
            assert PASSWORD not in shown(error)
    assert PASSWORD not in caplog.text
    password_server.drop_database(database)


def test_an_unknown_user(password_server: PostgresServer) -> None:
    url = f"postgresql://nobody-known:{PASSWORD}@127.0.0.1:{password_server.port}/postgres"
    error = refused(ms.BackendUnavailable, lambda: ms.open(url), "nobody-known")
    assert PASSWORD not in shown(error)


def test_an_unknown_database(postgres_databases: Databases) -> None:
    url = postgres_databases.create_database()
    postgres_databases.drop_database(url)
    refused(ms.BackendUnavailable, lambda: ms.open(url), "does not exist", "check the URL")
    refused(ms.BackendUnavailable, lambda: ms.migrate(url), "does not exist", "check the URL")


def test_nobody_listens() -> None:
    url = f"postgresql://u:{PASSWORD}@127.0.0.1:{free_port()}/d"
    began = time.monotonic()
    refused(ms.BackendUnavailable, lambda: ms.open(url), "Connection refused", "check the URL")
    refused(ms.BackendUnavailable, lambda: ms.migrate(url), "Connection refused", "check the URL")
    assert time.monotonic() - began < 5


def test_a_host_that_has_no_address() -> None:
    url = f"postgresql://u:{PASSWORD}@no-such-host.invalid/d"
    refused(ms.BackendUnavailable, lambda: ms.open(url, deadline=5), "no-such-host.invalid")


def test_a_server_that_never_answers() -> None:
    """The wait for a connection is bounded by the deadline, or by a shorter timeout in the URL (two seconds at least).

    In the first case the caller's time was over, and the error says so: the server has refused nothing yet. Both
    say which server it was.
    """
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = f"127.0.0.1:{silent.getsockname()[1]}/d"
        url = f"postgresql://u:{PASSWORD}@{where}"
        began = time.monotonic()
        words = (where, "before the deadline", "the server does not answer", "nothing was sent", "call again")
        refused(ms.DeadlineExceeded, lambda: ms.open(url, deadline=1.0), *words)
        assert time.monotonic() - began < 6
        hurried = f"{url}?connect_timeout=2"
        refused(ms.BackendUnavailable, lambda: ms.open(hurried), where, "timeout expired", "check the URL")
        refused(ms.BackendUnavailable, lambda: ms.migrate(hurried), where, "timeout expired", "check the URL")
        assert time.monotonic() - began < 16


def test_a_server_that_speaks_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        import threading

        def answer() -> None:
            client, _ = other.accept()
            with client:
                client.recv(100)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"postgresql://u:{PASSWORD}@127.0.0.1:{other.getsockname()[1]}/d?sslmode=disable&gssencmode=disable"
        refused(ms.BackendUnavailable, lambda: ms.open(url, deadline=3.0))
        thread.join()


def test_a_database_without_a_schema(postgres_databases: Databases) -> None:
    url = postgres_databases.create_database()
    refused(ms.MigrationNeeded, lambda: ms.open(url), "no schema", "run: metastore migrate")
    postgres_databases.drop_database(url)


def test_a_user_who_may_not_write(postgres_databases: Databases) -> None:
    """Reads work, writes are BackendRefused: no repetition helps."""
    url = postgres_databases.create_database()
    ms.migrate(url)
    with ms.open(url) as store:
        store.metalakes.create("m")
    separator = "&" if "?" in url else "?"
    with ms.open(f"{url}{separator}options=-c default_transaction_read_only=on") as store:
        assert list(store.metalakes.names()) == ["m"]
        refused(ms.BackendRefused, lambda: store.metalakes.create("x"), "read-only")
        refused(ms.BackendRefused, lambda: store.metalakes.alter("m", ms.SetComment("x")), "read-only")
        refused(ms.BackendRefused, lambda: store.metalakes.drop("m"), "read-only")
        assert list(store.metalakes.names()) == ["m"]
    postgres_databases.drop_database(url)
