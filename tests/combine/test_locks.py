"""What a message of several kinds of writes locks, in which order, and for whom it does not wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore import Store
from metastore.combine import decided
from metastore.port.batches import Written
from metastore.port.commit import Conflicted
from tests.combine.gate import lanes, together
from tests.concurrency.raw import dsn, waiting_for_locks
from tests.contract.intents import eventually

SCHEMA = "lake.c.s"


@pytest.mark.parametrize("renames", [True, False])
def test_rows_are_locked_before_a_name_is_taken(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    """The name is given up while the batch waits for it: what its snapshot shows there is not in the way."""
    monkeypatch.setattr(decided, "PATIENCE", 30_000)
    old, altered, moved, other = (store.tables.load(f"{SCHEMA}.t{n}") for n in range(4))
    calls: list[Any] = [
        lambda: store.tables.create(f"{SCHEMA}.t0"),
        lambda: store.tables.alter(f"{SCHEMA}.t1", ms.SetComment("x")),
        *([lambda: store.tables.rename(f"{SCHEMA}.t2", "moved")] if renames else []),
    ]
    of_the_renamed = (f"entity WHERE id = {moved.id} FOR UPDATE", f"guard WHERE id = {moved.id} FOR KEY SHARE")
    with (
        ThreadPoolExecutor(1) as thread,
        psycopg.connect(dsn(url)) as dropping,
        psycopg.connect(dsn(url)) as looking,
    ):
        dropping.execute("UPDATE guard SET state = 1, scope_version = 2 WHERE id = %s", [old.id])
        done = thread.submit(together, lanes(store)[1], calls)
        eventually(lambda: waiting_for_locks(url) == 1)
        for locked in (f"entity WHERE id = {altered.id} FOR UPDATE", *(of_the_renamed if renames else ())):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                looking.execute(f"SELECT 1 FROM {locked} NOWAIT".encode())
            looking.rollback()
        looking.execute("SELECT 1 FROM entity WHERE id = %s FOR UPDATE NOWAIT", [other.id])
        dropping.commit()
        made, *others = done.result()
    assert (made.name, made.version, {one.version for one in others}) == ("t0", 1, {2})
    assert made.id != old.id


def test_a_message_passes_over_what_is_locked(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = store._session.backend
    original, outcomes = backend.write_together, list[Any]()
    calls: list[Any] = [lambda n=n: store.tables.alter(f"{SCHEMA}.t{n}", ms.SetComment("x")) for n in range(2)]
    calls.append(lambda: store.tables.create(f"{SCHEMA}.new"))
    with psycopg.connect(dsn(url)) as holding:
        holding.execute("SELECT 1 FROM entity WHERE id = %s FOR UPDATE", [store.tables.load(f"{SCHEMA}.t0").id])

        def seen(batch: Any, patience: int) -> Any:
            outcomes.append(original(batch, patience))
            if len(outcomes) == 2:
                holding.rollback()
            return outcomes[-1]

        monkeypatch.setattr(backend, "write_together", seen)
        found = together(lanes(store)[1], calls)
    assert outcomes[0] == Conflicted("busy")
    assert isinstance(outcomes[1], Written)
    assert [one.time is None for one in outcomes[1].alters] == [True, False]
    assert [one.version for one in found] == [2, 2, 1]


def test_an_alter_in_flight_is_waited_for(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that a drop makes is the next one after the alter's."""
    monkeypatch.setattr(decided, "PATIENCE", 30_000)
    tables = [store.tables.load(f"{SCHEMA}.t{n}") for n in range(2)]
    calls: list[Any] = [lambda n=n: store.tables.drop(f"{SCHEMA}.t{n}") for n in range(2)]
    with ThreadPoolExecutor(1) as thread, psycopg.connect(dsn(url)) as altering:
        altering.execute("UPDATE entity SET version = version + 1 WHERE id = %s", [tables[0].id])
        done = thread.submit(together, lanes(store)[1], calls)
        eventually(lambda: waiting_for_locks(url) == 1)
        altering.commit()
        assert done.result() == [True, True]
    assert [event.version for event in list(store.changes())[-2:]] == [2, 3]
