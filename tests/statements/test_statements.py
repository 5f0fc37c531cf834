"""Some interleavings of statements on both databases, and the planted faults that they must find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from metastore.errors import EntityNotFound
from metastore.operation import dropping
from tests.long import long_unless
from tests.servers.postgres import Databases
from tests.statements.drops import BACK, BEGUN, STEPS
from tests.statements.explore import Explored, Program, Violated, explore
from tests.statements.matrix import CAUSES, GROUPS, NEVER, read_tables
from tests.statements.mutants import MUTANTS, Mutant
from tests.statements.on_postgres import PostgresDatabase
from tests.statements.on_sqlite import SqliteDatabase
from tests.statements.programs import FEW, FEW_CALLED, PAIRS, PROGRAMS, TOGETHER
from tests.statements.running import opened, seen_in
from tests.statements.schedule import Database, Workers

pytestmark = [pytest.mark.xdist_group("statements"), pytest.mark.one_in(3)]

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "conflict-matrix.md"
_LIMIT = 2_000
"""Interleavings of one program: one that has more belongs to ``--full``."""
_MANY = (
    "put another partition in its place | read a partition and make another of it",
    "drop what was dropped | note the restore",
    "put another partition in its place | read a partition and drop it",
    "set the owner | set another owner",
    "drop the only one | note the drop of the schema",
    "note the restore of what is there | drop",
    "copy | copy back",
    "purge | purge",
)
"""Those with the most interleavings: each run explores them on SQLite, where they are quick, the long ones on both."""
_LONG = (
    "finish it | finish it",
    "finish it | roll it back",
    "finish it | restore it",
    "finish it | alter in hand",
    "begin a drop | purge",
    "purge the empty schema | rename the empty schema and fill it",
    "alters by a new and an old path | rename",
    "drops by an old and a new path | rename",
    "an alter and a rename | an alter",
)
"""Half of the time of all that is explored on SQLite. What is planted for the last one is tried in each run."""


def _some(programs: Iterable[Program | str]) -> list[Any]:
    only = pytest.mark.each_run_on("sqlite")
    return [pytest.param(one, marks=only) if getattr(one, "name", one) in _MANY else one for one in programs]


_SEVERAL = [
    "alter under the lease | break the lease, load",
    "create | drop the schema, names",
    "rename | alter, drop, create",
    "restore | restore, drop",
    "drop the empty schema | rename it, create in it",
    "restore | restore",
    "freeze | rename the catalog",
    "drop what was dropped | restore",
    "purge the empty schema | rename the empty schema and fill it",
    "create in the empty schema | drop the empty schema | rename the catalog",
]
"""What was wrong once, and some with more than two operations: on SQLite, where they are quick."""
_SIBLINGS = ["create | create a sibling", "alter | alter a sibling", "create | alter", "create a sibling | drop"]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(3) as threads:
        yield threads


@pytest.fixture(scope="module")
def sqlite() -> Iterator[Database]:
    with opened(SqliteDatabase.name, None) as database:
        yield database


@pytest.fixture(scope="module")
def postgres(postgres_databases: Databases, postgres_template: str) -> Iterator[Database]:
    url = postgres_databases.create_database(template=postgres_template.rpartition("/")[2])
    with opened(PostgresDatabase.name, url) as database:
        yield database
    postgres_databases.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> Database:
    chosen: Database = request.getfixturevalue(request.param)
    return chosen


@pytest.mark.one_in(3, on="postgres")
@pytest.mark.parametrize("program", _some([p for p in PAIRS if p.name in FEW]), ids=lambda p: p.name)
def test_each_interleaving_is_a_sequential_order(program: Program, database: Database, workers: Workers) -> None:
    explored = explore(program, database, workers, _LIMIT)
    assert explored.schedules > 0
    assert not explored.cut_off
    _check_document(program, database, explored)


@pytest.mark.one_in(2, on="postgres")
@pytest.mark.parametrize("name", _some(FEW_CALLED))
def test_what_callers_make_of_it(name: str, database: Database, workers: Workers) -> None:
    explored = explore(_named(name), database, workers, _LIMIT)
    assert explored.schedules > 0
    assert not explored.cut_off


@pytest.mark.parametrize("name", long_unless(_SEVERAL, lambda name: name not in _LONG))
def test_some_with_more_operations(name: str, sqlite: Database, workers: Workers) -> None:
    explored = explore(_named(name), sqlite, workers, _LIMIT)
    assert not explored.cut_off
    assert not explored.diverged


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", long_unless([*BEGUN, *STEPS], lambda p: p.name not in _LONG), ids=lambda p: p.name)
def test_drops_in_steps(program: Program, sqlite: Database, workers: Workers) -> None:
    """Of two steps that exclude each other exactly one is done, as in one order of the two."""
    explored = explore(program, sqlite, workers, _LIMIT)
    assert explored.schedules > 0
    assert not explored.cut_off


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", BACK, ids=lambda p: p.name)
def test_what_comes_back_is_not_missed(program: Program, sqlite: Database, workers: Workers) -> None:
    explored = explore(program, sqlite, workers, _LIMIT)
    assert explored.schedules > 0
    assert not explored.cut_off


@pytest.mark.parametrize("name", ["load", "load in hand"])
def test_what_comes_back_is_missed_by_who_does_not_look_again(
    name: str, sqlite: Database, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropping, "LookAgain", EntityNotFound)
    (program,) = [p for p in (*STEPS, *BACK) if p.name == f"roll it back | {name}"]
    with pytest.raises(Violated, match=r"EntityNotFound.*restore"):
        explore(program, sqlite, workers, _LIMIT)


@pytest.mark.one_in(3)
@pytest.mark.postgres
@pytest.mark.parametrize("name", ["start it | roll it back", "begin a drop | alter", "roll it back | load"])
def test_drops_in_steps_on_postgres(name: str, postgres: Database, workers: Workers) -> None:
    (program,) = [p for p in (*BEGUN, *STEPS) if p.name == name]
    explored = explore(program, postgres, workers, _LIMIT)
    assert explored.schedules > 0
    assert not explored.cut_off


@pytest.mark.one_in(2)
@pytest.mark.postgres
@pytest.mark.parametrize("program", long_unless(TOGETHER, lambda p: p.name not in _LONG), ids=lambda p: p.name)
def test_what_travels_together(program: Program, postgres: Database, workers: Workers) -> None:
    explored = explore(program, postgres, workers, _LIMIT)
    assert explored.schedules > 1
    assert not explored.cut_off


@pytest.mark.one_in(2, on="postgres")
@pytest.mark.parametrize("name", _SIBLINGS)
def test_siblings_never_make_each_other_retry(name: str, database: Database, workers: Workers) -> None:
    assert explore(_named(name), database, workers, _LIMIT).retried == {}


@pytest.mark.one_in(3)
@pytest.mark.each_run_on("sqlite")
@pytest.mark.parametrize("name", ["create | create a sibling", "alter | copy", "create | write down what is listed"])
def test_what_is_left_out_differs_in_nothing(name: str, database: Database, workers: Workers) -> None:
    some = explore(_named(name), database, workers, _LIMIT)
    every = explore(_named(name), database, workers, _LIMIT, every=True)
    assert every.schedules >= some.schedules
    assert every.different == some.different


def _planted(database: str) -> list[Any]:
    """Return the mutants of a database; each run tries every second one, but the one that takes seconds to find."""
    mutants = [mutant for mutant in MUTANTS if mutant.on == database]
    return long_unless(
        mutants, lambda one: mutants.index(one) % 2 == 0 and one.name != "purge says what two instants say"
    )


@pytest.mark.parametrize("mutant", _planted(SqliteDatabase.name), ids=lambda m: m.name)
def test_a_planted_fault_is_found_on_sqlite(mutant: Mutant, workers: Workers) -> None:
    _find(mutant, None, workers)


@pytest.mark.only_whole
@pytest.mark.one_in(2)
@pytest.mark.parametrize("mutant", _planted(PostgresDatabase.name), ids=lambda m: m.name)
def test_a_planted_fault_is_found_on_postgres(mutant: Mutant, postgres_url: str, workers: Workers) -> None:
    _find(mutant, postgres_url, workers)


def test_the_document_has_all_groups() -> None:
    tables = read_tables(_DOCUMENT)
    assert set(tables) == {SqliteDatabase.name, PostgresDatabase.name}
    for cells in tables.values():
        assert set(cells) == {(a, b) for a in GROUPS for b in (*GROUPS, CAUSES)}


def _find(mutant: Mutant, url: str | None, workers: Workers) -> None:
    with opened(mutant.on, url, mutant) as database, pytest.raises(Violated):
        explore(mutant.found_by(), database, workers, 10 * _LIMIT)


def _named(name: str) -> Program:
    (found,) = [p for p in PROGRAMS if p.name == name]
    return found


_read = cache(read_tables)


def _check_document(program: Program, database: Database, explored: Explored) -> None:
    """Where the document says that one never makes the other retry, it does not."""
    cells = _read(_DOCUMENT)[database.name]
    for seen in seen_in(program, explored):
        if seen.retried:
            assert cells[seen.group, seen.other] != NEVER, f"{seen.group} retries because of {seen.other}"
