"""Two programs with two change formats on one database: the older one leaves to the newer what it does not know."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from metastore.port.intents import FORMAT, Entry
from tests.concurrency.checks import seed, violations
from tests.long import long_unless
from tests.progress.hooks import announces
from tests.progress.newer import NewerProgram
from tests.progress.parked import Parked

pytestmark = pytest.mark.one_in(3)

PATH = "lake.cat.s.t"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("newer")


def work(store: ms.Store) -> int:
    """Do what the older program does, beside the newer one's intent; return how many versions it made."""
    table = store.tables.alter(PATH, ms.SetProperty("fast", "1"))
    announces(store, table)
    store.tables.alter(PATH, ms.SetProperty("announced", "1"))
    store.run(lambda tx: tx.tables.alter(PATH, ms.SetProperty("transaction", "1")))
    store.tables.create(PATH, comment="replaced", if_exists="replace")
    version = store.tables.load(PATH).version
    store.tables.alter(PATH, ms.SetProperty("pinned", "1"), expected_version=version)
    with store.schemas.exclusive("lake.cat.s") as tx:
        tx.tables.alter(PATH, ms.SetProperty("frozen", "1"))
    return 6


@pytest.mark.each_run_on("postgres")
def test_the_older_program_goes_on(url: str, folder: Path) -> None:
    """Nothing blocks; then the newer one goes on as well, and applies what it announced."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with NewerProgram(folder, url, operation, 30.0) as newer, ms.open(url) as store:
        began = time.monotonic()
        version = 1 + work(store)
        assert time.monotonic() - began < 15
        assert store.tables.load(PATH).version == version
        assert store.outcome(operation).state == "pending"
        assert newer.go_on() == [version + 1, "HELLO"]
        assert store.tables.load(PATH).comment == "HELLO"
        assert store.outcome(operation).state == "committed"
        *_, last = store.tables.history(PATH)
        assert last.operation_id == operation
        assert type(last.changes[0]).__name__ == "UnknownChange"
        assert store.tables.alter(PATH, ms.SetComment("older")).version == version + 2
    assert violations(url) == []


@pytest.mark.each_run_on("postgres")
def test_the_newer_program_is_killed(url: str, folder: Path) -> None:
    """Its intent expires, and the next helper records that."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with NewerProgram(folder, url, operation, 1.8) as newer, ms.open(url) as store:
        ends = time.monotonic() + 1.9
        newer.kill()
        version = 1 + work(store)
        while time.monotonic() < ends:
            time.sleep(0.02)
        announces(store, store.tables.load(PATH))
        assert store.tables.alter(PATH, ms.SetProperty("after", "1")).version == version + 1
        assert store.outcome(operation).state == "cancelled"
        assert store.stats().pending == 0
    assert violations(url) == []


MOVES: dict[str, Callable[[ms.Store], object]] = {
    "rename": lambda store: store.tables.rename(PATH, "u"),
    "drop": lambda store: store.tables.drop(PATH),
    "rename the schema": lambda store: store.schemas.rename("lake.cat.s", "r"),
}


@pytest.mark.parametrize("what", long_unless(MOVES, lambda what: what == "rename the schema"))
def test_the_older_program_moves_it(url: str, folder: Path, what: str) -> None:
    """The newer program is told, as if it were of the same format."""
    seed(url, PATH)
    operation = ms.new_operation_id()
    with NewerProgram(folder, url, operation, 30.0) as newer, ms.open(url) as store:
        MOVES[what](store)
        with pytest.raises(AssertionError, match="has ended"):  # it raises EntityNotFound
            newer.go_on()
        assert store.outcome(operation).state == "failed"
        assert isinstance(store.outcome(operation).result, ms.EntityNotFound)
    assert violations(url) == []


def test_the_newer_program_helps_the_older(url: str, folder: Path) -> None:
    """It understands both, and applies both."""
    seed(url, PATH)
    newer_one, older_one = ms.new_operation_id(), ms.new_operation_id()
    with (
        NewerProgram(folder, url, newer_one, 30.0) as newer,
        Parked(url, "help", alter, older_one) as older,
        ms.open(url) as store,
    ):
        assert newer.go_on() == [2, "HELLO"]
        assert store.outcome(older_one).result.version == 3
        assert older.go_on() == ("returned", 3)
    assert violations(url) == []


def alter(store: ms.Store, operation: Any) -> int:
    announces(store, store.tables.load(PATH))
    return store.tables.alter(PATH, ms.SetProperty("older", "1"), operation_id=operation).version


@pytest.mark.parametrize(
    ("newer", "change", "format_"),
    [
        (1, "Shout", FORMAT + 1),
        (100, "Shout", FORMAT + 1),
        (1, "Shout", FORMAT),
        (1, "SetExternalId", FORMAT),  # of users: a newer program may have it for tables too
    ],
)
def test_what_is_not_understood_does_not_count(url: str, newer: int, change: str, format_: int) -> None:
    """6, 3. However many there are of it, what is understood and comes later is applied."""
    seed(url, PATH)
    with ms.open(url) as store:
        table = store.tables.load(PATH)
        backend = store._session.backend
        comment = '[{"change": "SetComment", "text": "x"}]'
        unknown = f'[{{"change": "{change}", "external_id": "x"}}]'
        left = [ms.new_operation_id() for _ in range(newer)]
        for one in left:
            backend.write_down(Entry(one, "pending", "newer", table.id, "table", PATH, unknown, format_, 60.0))
        older = ms.new_operation_id()
        backend.write_down(Entry(older, "pending", "older", table.id, "table", PATH, comment, FORMAT, 60.0))
        assert store.tables.alter(PATH, ms.SetProperty("k", "v")).properties == {"k": "v"}
        assert store.outcome(older).state == "committed"
        assert {store.outcome(one).state for one in left} == {"pending"}
