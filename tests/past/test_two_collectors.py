"""Two gc at once: neither decides by a row that the other one has deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.backends.sql.gc import POSTGRES_DELETE_STEPS, POSTGRES_PAST_FROM
from metastore.port.past import NotKept
from metastore.port.upkeep import HistoryLimits
from tests.concurrency.raw import dsn, rows

pytestmark = pytest.mark.postgres

LONGEST = 60.0
TABLE = "m.c.s.t"


@pytest.fixture
def store(postgres_url: str) -> Iterator[ms.Store]:
    """Open a store with a table of six versions, of which the first took the name."""
    with ms.open(postgres_url) as opened:
        opened.metalakes.create("m")
        opened.catalogs.create("m.c", type="relational")
        opened.tables.create(TABLE, parents=True)
        opened.pin("first")
        for n in range(5):
            opened.tables.alter(TABLE, ms.SetComment(str(n)))
        yield opened


def limits(store: ms.Store, keep: int) -> HistoryLimits:
    """Return what lets all go but the newest ``keep`` versions."""
    return HistoryLimits(store._session.backend.now() + 1, 1 << 40, keep, 1 << 62)


@contextmanager
def collecting(url: str, theirs: HistoryLimits, ours: HistoryLimits) -> Iterator[int]:
    """Be a gc of another process that has deleted steps, and commits at the end; give its backend's pid.

    Both have said from where on the past is whole, before either deletes.
    """
    page = {"after": 0, "page_size": 1000}
    with psycopg.connect(dsn(url)) as connection:
        for bounds in (theirs, ours):
            ((_, since),) = connection.execute(POSTGRES_PAST_FROM, {**bounds._asdict(), **page}).fetchall()
            connection.execute("UPDATE info SET writer = 99, past_from = greatest(past_from, %s)", [since])
        connection.commit()
        ((_, versions, _),) = connection.execute(POSTGRES_DELETE_STEPS, {**theirs._asdict(), **page}).fetchall()
        assert versions > 0
        yield connection.info.backend_pid
        connection.commit()


def blocked_by(url: str, pid: int) -> None:
    """Wait until a session waits for a lock that this one has."""
    deadline = time.monotonic() + LONGEST
    asked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    with psycopg.connect(dsn(url), autocommit=True) as connection:
        while connection.execute(asked, [pid]).fetchone() == (0,):
            assert time.monotonic() < deadline
            time.sleep(0.005)


def kept(store: ms.Store) -> list[int]:
    return [version.version for version in store.tables.history(TABLE)]


@pytest.mark.parametrize(
    ("theirs", "ours", "left"),
    [(3, 1, [6]), (2, 5, [5, 6])],
    ids=["they hand the name on", "they delete what would inherit it"],
)
def test_the_name_stays_in_the_past(
    store: ms.Store, postgres_url: str, theirs: int, ours: int, left: list[int]
) -> None:
    """The other gc sees a pin on the first version, or not."""
    backend: Any = store._session.backend
    if ours == 1:
        store.unpin("first")
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            backend.delete_steps(limits(store, ours), 0, 1000)
        except BaseException as error:  # noqa: BLE001  (the test raises it)
            failed.append(error)

    thread = threading.Thread(target=collect)
    with collecting(postgres_url, limits(store, theirs), limits(store, ours)) as pid:
        store.unpin("first")
        thread.start()
        blocked_by(postgres_url, pid)
    thread.join(LONGEST)
    assert failed == []
    assert kept(store) == left
    past = store.at(store.position())
    assert [one.name for one in past.tables.list("m.c.s")] == ["t"]
    assert past.tables.load(TABLE).version == 6
    assert store.verify() == []


def test_a_pin_waits_for_a_gc_that_takes_its_past_away(store: ms.Store, postgres_url: str) -> None:
    ((newest,),) = rows(postgres_url, "SELECT max(seq) FROM operation")
    with ThreadPoolExecutor(1) as thread, psycopg.connect(dsn(postgres_url)) as connection:
        connection.execute("UPDATE info SET writer = 99, past_from = %s", [newest])
        pinned = thread.submit(store._session.backend.readers.pin, "late", newest - 1, None, None)
        blocked_by(postgres_url, connection.info.backend_pid)
        connection.commit()
        with pytest.raises(NotKept):
            pinned.result()
    assert [pin.name for pin in store.pins()] == ["first"]
