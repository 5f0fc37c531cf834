"""Histories that hypothesis invents: the past is what the store showed, and what the memory model shows.

Each history works in a metalake of its own, so that all of them share one database.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import metastore as ms
from metastore import Store
from metastore.errors import MetastoreError
from metastore.managers.all import Managers

Seen = dict[tuple[str, ...], tuple[Any, ...]]
Operation = tuple[Any, ...]

SCHEMAS = st.sampled_from(["a", "b", "a.b", "c"])
TABLES = st.tuples(SCHEMAS, st.sampled_from(["t", "T", "u"])).map(".".join)
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), TABLES),
    st.tuples(st.just("replace"), TABLES, st.sampled_from(["1", "2"])),
    st.tuples(st.just("alter"), TABLES, st.sampled_from(["1", "2"])),
    st.tuples(st.just("rename"), TABLES, TABLES),
    st.tuples(st.just("drop"), TABLES),
    st.tuples(st.just("restore"), TABLES),
    st.tuples(st.just("restore to"), TABLES, TABLES),
    st.tuples(st.just("rename schema"), SCHEMAS, SCHEMAS),
    st.tuples(st.just("drop schema"), SCHEMAS),
    st.tuples(st.just("restore schema"), SCHEMAS),
    st.tuples(st.just("together"), TABLES, TABLES),
)
HISTORIES = st.lists(OPERATIONS, min_size=4, max_size=14)
_numbers = itertools.count()


def perform(store: Store, root: str, operation: Operation) -> None:
    """Perform one operation; what it raises does not matter."""
    verb, path, *rest = operation
    at = f"{root}.{path}"
    actions: dict[str, Callable[[], object]] = {
        "create": lambda: store.tables.create(at, parents=True),
        "replace": lambda: store.tables.create(at, comment=rest[0], if_exists="replace", parents=True),
        "alter": lambda: store.tables.alter(at, ms.SetComment(rest[0])),
        "rename": lambda: store.tables.rename(at, f"{root}.{rest[0]}"),
        "drop": lambda: store.tables.drop(at),
        "restore": lambda: store.tables.restore(at),
        "restore to": lambda: store.tables.restore(at, to=f"{root}.{rest[0]}"),
        "rename schema": lambda: store.schemas.rename(at, f"{root}.{rest[0]}"),
        "drop schema": lambda: store.schemas.drop(at, cascade=True),
        "restore schema": lambda: store.schemas.restore(at),
        "together": lambda: _together(store, at, f"{root}.{rest[0]}"),
    }
    with suppress(MetastoreError):
        actions[verb]()


def _together(store: Store, one: str, other: str) -> None:
    with store.transaction() as tx:
        tx.tables.create(one, parents=True)
        tx.tables.alter(one, ms.SetComment("1"))
        tx.tables.rename(one, other)


def seen(managers: Managers, root: str) -> Seen:
    """Return the entities below a catalog, by their paths there: kind, version, comment."""
    found: Seen = {}
    waiting = [root]
    while waiting:
        above = waiting.pop()
        for one in [*managers.schemas.list(above), *(managers.tables.list(above) if above != root else ())]:
            found[one.names[2:]] = (one.kind, one.version, one.comment)
            waiting += [one.path] if one.kind == "schema" else []
    return found


def lived(store: Store, history: list[Operation]) -> Iterator[tuple[str, Seen]]:
    """Live through a history; yield each position with what the store showed at it, then what the past shows."""
    lake = f"m{next(_numbers)}"
    root = f"{lake}.c"
    store.metalakes.create(lake)
    store.catalogs.create(root, type="relational")
    then = list[tuple[str, Seen]]()
    for operation in history:
        perform(store, root, operation)
        then.append((store.position(), seen(store, root)))
    for position, shown in then:
        assert seen(store.at(position), root) == shown
        yield position, shown


def check(store: Store, model: Store, history: list[Operation]) -> None:
    """Compare a store with the model, step by step."""
    for (_, mine), (_, theirs) in zip(lived(store, history), lived(model, history), strict=True):
        assert mine == theirs


def both(url: str, examples: int) -> None:
    """Check histories on a database."""
    with ExitStack() as stack:
        store, model = (stack.enter_context(ms.open(one, principal="t")) for one in (url, "memory://histories"))

        @settings(
            max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=examples < 100
        )
        @given(HISTORIES)
        def histories(history: list[Operation]) -> None:
            check(store, model, history)

        histories()
        assert store.verify() == []


@pytest.mark.only_whole
def test_on_sqlite(sqlite_url: str) -> None:
    both(sqlite_url, 20)


@pytest.mark.postgres
def test_on_postgres(postgres_url: str) -> None:
    both(postgres_url, 10)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("server", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_many(server: str, request: pytest.FixtureRequest) -> None:
    both(request.getfixturevalue(f"{server}_url"), 150)


def test_a_past_that_is_off_by_one_is_noticed(sqlite_url: str) -> None:
    """Negative control: a view of the position before shows something else."""
    with ms.open(sqlite_url, principal="t") as store:
        history: list[Operation] = [("create", "a.t"), ("rename", "a.t", "b.t"), ("create", "b.u"), ("drop", "a.t")]
        positions = [position for position, _ in lived(store, history)]
        root = f"m{next(_numbers) - 1}.c"
        assert seen(store.at(positions[0]), root) != seen(store.at(positions[2]), root)
