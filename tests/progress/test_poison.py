"""A change that the database itself refuses: its caller is told so, and nobody else is held up by it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import metastore as ms
from metastore.port.intents import FORMAT, Entry
from tests.concurrency.checks import seed, violations
from tests.concurrency.raw import connect, is_sqlite
from tests.concurrency.workers import outcome
from tests.progress.hooks import announces, before

PATH = "lake.cat.s.t"


def refuse(url: str, sqlstate: str) -> None:
    """Let the database refuse every document that has the word in it."""
    with connect(url) as connection:
        if is_sqlite(url):
            connection.execute(
                """CREATE TRIGGER poison BEFORE UPDATE ON entity WHEN NEW.doc LIKE '%poison%'
                BEGIN SELECT RAISE(ABORT, 'poison'); END"""
            )
            return
        connection.execute(
            f"""CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              IF NEW.doc LIKE '%poison%' THEN RAISE EXCEPTION 'poison' USING ERRCODE = '{sqlstate}'; END IF;
              RETURN NEW;
            END $$;
            CREATE TRIGGER poison BEFORE INSERT OR UPDATE ON entity FOR EACH ROW EXECUTE FUNCTION poison()"""
        )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("sqlstate", ["23514", "22P05", "22003"])
@pytest.mark.parametrize("place", [0, 4, 8])
def test_a_poisoned_change_in_a_batch(postgres_url: str, sqlstate: str, place: int) -> None:
    """6, 3. Nine announce before anybody helps; the batch is halved until the culprit is found."""
    check_batch(postgres_url, sqlstate, place)


def test_a_poisoned_change_in_a_batch_on_sqlite(sqlite_url: str) -> None:
    check_batch(sqlite_url, "", 4)


def check_batch(url: str, sqlstate: str, place: int) -> None:
    seed(url, PATH)
    refuse(url, sqlstate)
    announced = threading.Barrier(9)
    ids = [ms.new_operation_id() for _ in range(9)]

    def alter(n: int) -> str:
        with ms.open(url, principal=f"p{n}") as store:
            announces(store, store.tables.load(PATH))
            change = ms.SetProperty(f"k{n}", "poison" if n == place else "fine")
            with before(store, lambda: announced.wait(30), calls=("pending",), times=1):
                return outcome(store.tables.alter, PATH, change, operation_id=ids[n])

    with ThreadPoolExecutor(9) as pool, ms.open(url) as store:
        said = list(pool.map(alter, range(9)))
        assert said == ["InvalidArgument" if n == place else "ok" for n in range(9)]
        table = store.tables.load(PATH)
        assert table.properties == {f"k{n}": "fine" for n in range(9) if n != place}
        assert table.version == 1 + 8
        states = [store.outcome(one).state for one in ids]
        assert states == ["failed" if n == place else "committed" for n in range(9)]
        with pytest.raises(ms.InvalidArgument):  # a repeat
            store.tables.alter(PATH, ms.SetProperty(f"k{place}", "poison"), operation_id=ids[place])
        assert store.stats().pending == 0
    assert violations(url) == []


def leave(store: ms.Store, table: ms.Table, *texts: str) -> list[Any]:
    """Announce properties whose owners are dead."""
    ids = []
    for n, text in enumerate(texts):
        ids.append(ms.new_operation_id())
        changes = f'[{{"change": "SetProperty", "key": "k{n}", "value": "{text}"}}]'
        entry = Entry(ids[-1], "pending", "dead", table.id, "table", table.path, changes, FORMAT, 60)
        store._session.backend.write_down(entry)
    return ids


WRITES = {
    "alter": lambda store: store.tables.alter(PATH, ms.SetProperty("k", "v")),
    "transaction": lambda store: store.run(lambda tx: tx.tables.alter(PATH, ms.SetProperty("k", "v"))),
    "pinned": lambda store: store.tables.alter(
        PATH, ms.SetProperty("k", "v"), expected_version=store.tables.load(PATH).version
    ),
}


@pytest.mark.parametrize("what", WRITES)
def test_its_owner_is_dead(url: str, what: str) -> None:
    """Who writes next lands; those who do find the culprits, and apply the rest."""
    seed(url, PATH)
    refuse(url, "23514")
    attempts: list[int] = []
    with ms.open(url, deadline=5.0, hooks=[lambda attempt: attempts.append(attempt.number)]) as store:
        table = store.tables.load(PATH)
        ids = leave(store, table, "one", "poison", "two", "more poison", "three")
        said = outcome(WRITES[what], store)
        assert said == "ok" or (what == "pinned" and said == "VersionConflict")  # others' changes made other versions
        for n in range(6):  # whatever is left
            store.tables.alter(PATH, ms.SetProperty("later", str(n)))
        applied = ["committed", "failed", "committed", "failed", "committed"]
        assert [store.outcome(i).state for i in ids] == applied
        assert store.tables.load(PATH).version == 1 + applied.count("committed") + (said == "ok") + 6
        assert max(attempts) <= 12
    assert violations(url) == []


def test_it_was_never_announced(url: str) -> None:
    """On the fast path the caller is told at once."""
    seed(url, PATH)
    refuse(url, "23514")
    with ms.open(url) as store:
        with pytest.raises(ms.InvalidArgument):
            store.tables.alter(PATH, ms.SetComment("poison"))
        assert store.tables.alter(PATH, ms.SetComment("fine")).version == 2
        assert store.counters["attempts"] == 2
