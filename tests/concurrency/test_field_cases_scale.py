"""Cases from the field about long listings, and about migrations of a database that is in use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

import metastore as ms
from metastore.kinds.registry import KINDS
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect, is_sqlite, rows
from tests.concurrency.workers import Job, Team, Turn
from tests.servers.postgres import Databases

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

MANY, FEW, PAGE = 100_000, 1_000, 1_000


def fill(url: str, schema: ms.Schema, count: int) -> None:
    """Put tables below a schema, as a create would leave them but for their history, with two statements."""
    first = 1_000_000 * (1 + schema.id)
    series = (
        f"(WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {count - 1}) SELECT n FROM s)"
        if is_sqlite(url)
        else f"generate_series(0, {count - 1}) AS s(n)"
    )
    name = "printf('t%06d', n)" if is_sqlite(url) else "'t' || lpad(n::text, 6, '0')"
    with ms.open(url) as store, connect(url) as connection:
        doc = store.tables.create("model", parent=schema).record.doc.replace("'", "''")
        connection.execute(
            f"""INSERT INTO guard (id, parent_id, family, kind, name, key, fold, state, in_use, scope_version)
            SELECT {first} + n, {schema.id}, '{KINDS["table"].family}', 'table', {name}, {name}, false, 0, true, 1
            FROM {series}"""
        )
        connection.execute(
            f"""INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
            SELECT {first} + n, 1, '{doc}', NULL, 0, NULL, 0 FROM {series}"""
        )
        store.tables.drop(f"{schema.path}.model")
        connection.execute("ANALYZE")


Listing = Callable[[ms.Store, str], Iterator[Any]]


@pytest.mark.slow
@pytest.mark.each_run_on("postgres")
def test_case_39_listings_stream_in_pages(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 39: Listing 100,000 tables streams in pages; the first page does not wait for the last.

    What is asked for the first page is one page, and it takes as long as among 1,000 tables.
    """
    seed(url, "lake.cat.few", "lake.cat.many")
    with ms.open(url) as store:
        for schema, count in (("few", FEW), ("many", MANY)):
            fill(url, store.schemas.load(f"lake.cat.{schema}"), count)
        backend, fetched = store._session.backend, list[int]()
        for what in ("children", "names"):
            original = getattr(backend, what)

            def counted(*arguments: Any, original: Callable[..., Any] = original) -> Any:
                page = original(*arguments)
                fetched.append(len(page.rows))
                return page

            monkeypatch.setattr(backend, what, counted)
        listings: tuple[Listing, ...] = (lambda s, p: s.tables.list(p), lambda s, p: s.tables.names(p))
        for listing in listings:
            fetched.clear()
            next(listing(store, "lake.cat.many"))
            assert fetched == [PAGE]
            few, many = (_first_page(store, listing, f"lake.cat.{schema}") for schema in ("few", "many"))
            assert many < 5 * few + 0.005, f"a first page: {many:.4f} s among many, {few:.4f} s among few"
            fetched.clear()
            found = [one if isinstance(one, str) else one.name for one in listing(store, "lake.cat.many")]
            assert found == [f"t{n:06d}" for n in range(MANY)]
            assert max(fetched) == PAGE


def _first_page(store: ms.Store, listing: Listing, path: str) -> float:
    """Return the shortest time to a whole first page, of 30: what else the machine does only adds to it."""
    times = []
    for _ in range(30):
        started = time.perf_counter()
        assert len(list(islice(listing(store, path), PAGE))) == PAGE
        times.append(time.perf_counter() - started)
    return min(times)


def open_and_write(turn: Turn, path: str, number: int) -> None:
    """Open a database of which nobody knows whether it has its tables yet, and use it."""
    turn.meet()
    if not is_sqlite(path):
        ms.migrate(path)
    with ms.open(path) as store:
        store.metalakes.create("lake", if_exists="return")
        store.catalogs.create("lake.cat", type="relational", if_exists="return")
        store.tables.create(f"lake.cat.s.t{number}", parents=True)


def test_case_40_migrations_run_by_themselves_and_only_once(
    url: str, team: Team, request: pytest.FixtureRequest
) -> None:
    """Field case 40: Eight processes find a database without tables, migrate it, and go to work."""
    empty = url.replace(".db", "2.db")
    if not is_sqlite(url):
        databases: Databases = request.getfixturevalue("postgres_databases")
        empty = databases.create_database()
        request.addfinalizer(lambda: databases.drop_database(empty))
        with pytest.raises(ms.MigrationNeeded, match="metastore migrate"):
            ms.open(empty)
    team.run(url, [Job(open_and_write, empty, n) for n in range(8)])
    assert rows(empty, "SELECT count(*) FROM info") == [(1,)]
    with ms.open(empty) as store:
        assert list(store.tables.names("lake.cat.s")) == [f"t{n}" for n in range(8)]
    assert violations(empty) == []


def write_on(turn: Turn, number: int) -> int:
    """Write with a store that was opened before, for as long as others migrate."""
    parent, n = turn.store.schemas.load("lake.cat.s"), 0
    turn.meet()
    while turn.go_on() or not n:
        turn.store.tables.create(f"t{number}_{n}", parent=parent)
        n += 1
    return n


def migrate_and_pass_format(turn: Turn) -> None:
    """Migrate a live database, then let it look like one that a newer, compatible program has migrated."""
    turn.meet()
    for _ in range(3):
        ms.migrate(turn.url)
    ((now,),) = rows(turn.url, "SELECT format FROM info")
    with connect(turn.url) as connection:
        connection.execute(f"UPDATE info SET format = {now + 1}, compatible_from = {now}")
    with ms.open(turn.url) as old_program:
        old_program.tables.create("lake.cat.s.told")
    with connect(turn.url) as connection:
        connection.execute(f"UPDATE info SET compatible_from = {now + 1}")


def test_case_40_old_and_new_programs_side_by_side(url: str, team: Team) -> None:
    """Field case 40: Forwards on a live database: writers go on; a program that is too old for it says so at open."""
    seed(url)
    jobs = [Job(migrate_and_pass_format), *(Job(write_on, n, background=True) for n in range(3))]
    _, *written = team.run(url, jobs)
    assert min(written) > 0
    with pytest.raises(ms.MigrationNeeded, match="upgrade"):
        ms.open(url)
    with connect(url) as connection:
        connection.execute("UPDATE info SET compatible_from = format - 1")
    with ms.open(url) as store:
        assert len(list(store.tables.names("lake.cat.s"))) == sum(written) + 1
    assert violations(url) == []
