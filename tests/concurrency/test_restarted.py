"""The database was restarted while a store was idle: nothing that only reads tells of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

import metastore as ms
from tests.concurrency.raw import rows

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
