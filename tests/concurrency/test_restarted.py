"""The database was restarted while a store was idle: nothing that only reads tells of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.connection import Connection
from metastore.backends.postgres.read_errors import raise_read_error
from metastore.port.commit import Commit, Conflicted
from tests.concurrency.raw import connect, rows
from tests.servers.postgres import PostgresServer, database_of

pytestmark = pytest.mark.postgres
_IDLE = 3
_END = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()"""


@pytest.fixture
def idle(postgres_url: str) -> Iterator[tuple[ms.Store, str, str]]:
    """Give a store whose pooled connections are all dead, its URL, and a position of the past."""
    with ms.open(postgres_url, principal="t") as store:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        table = store.tables.create("m.c.s.t", parents=True)
        before = store.position()
        store.tables.alter(table, ms.SetComment("later"))
        kept_open(store)
        ended = rows(postgres_url, _END)
        assert len(ended) >= _IDLE
        yield store, postgres_url, before


def kept_open(store: ms.Store) -> None:
    """Let the pool have several connections."""
    together = Barrier(_IDLE)
    backend: Any = store._session.backend

    def hold() -> None:
        with backend.pool.connection() as connection:
            connection.execute("SELECT 1")
            together.wait(10)

    with ThreadPoolExecutor(_IDLE) as pool:
        for one in [pool.submit(hold) for _ in range(_IDLE)]:
            one.result()


READS: dict[str, Callable[[ms.Store, str], object]] = {
    "verify": lambda store, _: store.verify(),
    "export": lambda store, _: store.export_to(io.BytesIO()),
    "export with history": lambda store, _: store.export_to(io.BytesIO(), history=True),
    "a past read": lambda store, before: store.at(before).tables.load("m.c.s.t"),
    "a past listing": lambda store, before: list(store.at(before).tables.list("m.c.s")),
    "diff": lambda store, before: list(store.diff(before)),
    "changes": lambda store, before: list(store.changes(after=before)),
    "find": lambda store, _: list(store.find()),
    "stats": lambda store, _: store.stats(),
    "pins": lambda store, _: store.pins(),
    "consumers": lambda store, _: store.consumers.list(),
    "revert": lambda store, before: store.revert("m.c.s", to=before),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", READS)
def test_the_first_read_after_a_restart(idle: tuple[ms.Store, str, str], what: str) -> None:
    store, _, before = idle
    READS[what](store, before)


def test_a_snapshot_that_breaks_later_is_not_begun_again(idle: tuple[ms.Store, str, str]) -> None:
    """What was read already is of another instant than what a new one would show."""
    store, url, _ = idle
    backend: Any = store._session.backend

    def read() -> None:
        with backend.snapshot() as snapshot:
            assert snapshot.numbers()[0] > 0
            rows(url, f"{_END} AND query LIKE '%change_seq%'")
            list(snapshot.rows("entity", ("id",), ("id",)))

    with pytest.raises(ms.BackendUnavailable):
        read()


def test_what_was_read_before_a_restart_says_so(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread notes the restart after the answer came, and before it is used."""
    with ms.open(postgres_url) as store:
        store.metalakes.create("a")
        store.metalakes.create("b")
        pool = store._session.backend.pool  # type: ignore[attr-defined]
        before = pool.run
        listed, found = store.metalakes.list(), store.find()
        history = store.metalakes.history("a")
        for iterator in (listed, found, history):
            next(iterator, None)
        fetch = pool.fetch

        def fetched(*arguments: Any, **options: Any) -> Any:
            answer = fetch(*arguments, **options)
            pool._note_run("another run")
            return answer

        def during(call: Callable[[], Any]) -> Any:
            pool._note_run(before)
            store._session.backend.identify()
            monkeypatch.setattr(pool, "fetch", fetched)
            try:
                return call()
            finally:
                monkeypatch.setattr(pool, "fetch", fetch)

        lake = store.metalakes.load("b")
        entities = [
            during(lambda: store.metalakes.load("a")),
            during(lambda: store.metalakes.load(lake)),
            *during(lambda: store.metalakes.load_many(["a", "b"])),
            *during(lambda: store.metalakes.page(None).items),
            during(lambda: store.metalakes.alter("b", ms.SetComment("x"))),
            during(lambda: store.metalakes.create("c")),
            *listed,
            *found,
            *[version.entity for version in history],
        ]
        assert len(entities) > 8
        assert {entity.origin.run for entity in entities} == {before}


def test_a_commit_goes_only_to_the_run_of_its_base(postgres_url: str) -> None:
    """A connection that asked before the restart notes its run last, so that the pool has an old one: nothing lands."""
    with ms.open(postgres_url) as store:
        held = store.metalakes.create("a")
        pool = store._session.backend.pool  # type: ignore[attr-defined]
        (connection,) = [place.connection for place in pool._pool._places]
        pool._note_run("the run before")
        backend = store._session.backend
        assert isinstance(backend.commit(Commit(ms.new_operation_id(), "t", run="the run before")), Conflicted)
        assert pool.run == connection.run != "the run before"
        pool._note_run("the run before")
        assert store.metalakes.alter(held, ms.SetComment("x")).version == 2


def test_a_database_that_was_made_again_is_another_run(postgres_server: PostgresServer) -> None:
    """A dump may have been restored into it: ids and versions come again, although the server goes on."""
    url = postgres_server.create_database()
    ms.migrate(url)
    with ms.open(url, cache=ms.Cache("validate")) as store:
        held = store.metalakes.create("held", comment="lost")
        assert store.metalakes.load("held").comment == "lost"
        name = database_of(url)
        with connect(postgres_server.url()) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.execute(f"CREATE DATABASE {name}")
        ms.migrate(url)
        with ms.open(url) as other:
            other.metalakes.create("held", comment="new")
        assert store.metalakes.load("held").comment == "new"
        with pytest.raises(ms.InvalidArgument, match="another database"):
            store.metalakes.alter(held, ms.SetComment("x"))


def test_a_catalog_of_the_server_that_is_written_anew_is_no_new_run(postgres_url: str) -> None:
    with ms.open(postgres_url) as before:
        held = before.metalakes.create("held")
        with connect(postgres_url) as admin:
            admin.execute("VACUUM FULL pg_class")
        with ms.open(postgres_url) as after:
            found = after.metalakes.load("held")
        assert {one.origin and one.origin.run for one in (held, found)} == {before._session.backend.origin.run}


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.ProtocolViolation("server login has been failing, try again later"),
        psycopg.errors.QueryCanceled("canceling statement due to user request"),
    ],
    ids=["pgbouncer cannot log in", "an operator cancels the set-up"],
)
def test_a_session_that_cannot_begin_now_is_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, error: psycopg.Error
) -> None:
    with ms.open(postgres_url) as store:
        connect, refusals = Connection.connect, iter(range(3))

        def refused(*arguments: Any, **options: Any) -> Any:
            if next(refusals, None) is not None:
                raise error
            return connect(*arguments, **options)

        monkeypatch.setattr(Connection, "connect", refused)
        store._session.backend.pool.forget()  # type: ignore[attr-defined]
        assert store.metalakes.create("m").version == 1
        assert next(refusals, None) is None


def test_a_mutation_whose_reads_are_ended_again_and_again(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read is repeated once; a mutation repeats its reads until its deadline."""
    with ms.open(postgres_url) as store:
        store.metalakes.create("m")
        backend: Any = store._session.backend
        read, ends = backend._quick, iter(range(3))

        def ended(*arguments: Any, **options: Any) -> Any:
            if next(ends, None) is not None:
                raise_read_error(psycopg.errors.AdminShutdown("terminating connection due to administrator command"))
            return read(*arguments, **options)

        monkeypatch.setattr(backend, "_quick", ended)
        assert store.metalakes.alter("m", ms.SetComment("x")).version == 2
        assert next(ends, None) is None
