"""Beside each thing that a process remembers (docs/operations.md) it forks and closes, and the server fails over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import metastore as ms
from metastore.secrets.keyring import VARIABLE, new_key
from tests.concurrency.checks import seed
from tests.concurrency.memories import MEMORIES, Check, Place
from tests.concurrency.test_forks import ended_well, forked
from tests.docs.test_remembered import listed
from tests.progress.replica import Replica, primary
from tests.servers.postgres import PostgresServer, database_of

LONG = 30.0
POSTGRES = [name for name, memory in MEMORIES.items() if "postgres" in memory.on]

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def _key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, new_key())


def test_each_row_of_the_list_is_tested() -> None:
    assert list(listed()) == list(MEMORIES)


@contextmanager
def _place(url: str, name: str, folder: Path) -> Iterator[Place]:
    table = f"lake.cat.s.t{list(MEMORIES).index(name)}"
    with ms.open(url, cache=MEMORIES[name].cache, pool_size=2, deadline=LONG) as store, ms.open(url) as other:
        other.tables.create(table)
        yield Place(url, store, other, table, folder)


def _by_backend() -> Iterator[object]:
    for name, memory in MEMORIES.items():
        for backend in memory.on:
            # what both remember is the same code on each
            yield pytest.param(backend, name, marks=[pytest.mark.long] * (backend != memory.on[-1]))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("backend", "name"), list(_by_backend()))
def test_it_forks_and_closes(backend: str, name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url: str = request.getfixturevalue(f"{backend}_url")
    seed(url)
    with _place(url, name, tmp_path) as place:
        check = MEMORIES[name].remember(place)
        child = forked(lambda: check(place.store, "child") is None)
        assert ended_well(child)
        check(place.store, "parent")
        place.store.close()
        with pytest.raises(ms.StoreClosed):
            place.store.tables.load(place.table)
        with ms.open(url, cache=MEMORIES[name].cache) as again:
            check(again, "closed")
    assert _found(url) == []


def _found(url: str) -> list[str]:
    with ms.open(url) as store:
        return [str(violation) for violation in store.verify()]


@contextmanager
def _all(url: str, tmp_path: Path) -> Iterator[list[tuple[str, Place, Check]]]:
    """Remember all, each with a store of its own."""
    seed(url)
    with ExitStack() as stack:
        found = list[tuple[str, Place, Check]]()
        for name in POSTGRES:
            (folder := tmp_path / str(len(found))).mkdir()
            place = stack.enter_context(_place(url, name, folder))
            found.append((name, place, MEMORIES[name].remember(place)))
        yield found


def _check(remembered: list[tuple[str, Place, Check]]) -> None:
    for name, place, check in remembered:
        _until_it_answers(place.other)
        _until_it_answers(place.store)
        try:
            check(place.store, "failed over")
        except Exception as error:
            raise AssertionError(name) from error


def _until_it_answers(store: ms.Store) -> None:
    ends = time.monotonic() + LONG
    while True:
        try:
            return store.ping()
        except ms.BackendUnavailable:
            assert time.monotonic() < ends
            time.sleep(0.05)


@pytest.mark.postgres
def test_the_server_crashes_and_comes_back(tmp_path: Path) -> None:
    with PostgresServer(in_memory=True) as server:
        ms.migrate(url := server.create_database())
        with _all(url, tmp_path) as remembered:
            server.kill()
            server.start()
            _check(remembered)
        assert _found(url) == []


@pytest.mark.long
@pytest.mark.postgres
def test_another_server_takes_its_place(tmp_path: Path) -> None:
    with primary() as leader:
        name = database_of(leader.create_database())
        with Replica(leader) as replica:
            hosts = f"host=127.0.0.1,127.0.0.1&port={leader.port},{replica.port}&target_session_attrs=read-write"
            ms.migrate(url := f"postgresql+psycopg://{leader.user}@/{name}?{hosts}")
            with _all(url, tmp_path) as remembered:
                leader.kill()
                replica.promote()
                _check(remembered)
            assert _found(url) == []
