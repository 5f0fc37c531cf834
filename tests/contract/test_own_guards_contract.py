"""Whatever writes a container's own row is guarded by that container, so that a freeze of it waits for the commit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.kinds.registry import kind_named
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.writes import Update
from tests.combine.gate import full_operations
from tests.contract.ground import Ground
from tests.contract.intents import eventually

ROWS = [{"name": "one", "comment": "x"}, {"name": "two", "comment": "x"}]
X = ms.SetComment("x")


def _in_transaction(ground: Ground) -> None:
    with ground.store.transaction() as tx:
        tx.schemas.create_many("m.c", ROWS, if_exists="replace")
        tx.catalogs.alter("m.c", X)


WAYS: dict[str, Callable[[Ground], object]] = {
    "create_many, replace": lambda g: g.store.schemas.create_many("m.c", ROWS, if_exists="replace"),
    "create_many, below an entity": lambda g: g.store.schemas.create_many(g.catalog, ROWS, if_exists="replace"),
    "create, replace": lambda g: g.store.schemas.create("m.c.one", comment="x", if_exists="replace"),
    "create with parents, replace": lambda g: g.store.schemas.create(
        "m.c.one", comment="x", if_exists="replace", parents=True
    ),
    "alter": lambda g: g.store.schemas.alter("m.c.one", X),
    "alter, in hand": lambda g: g.store.schemas.alter(g.one, X),
    "alter, a version expected": lambda g: g.store.schemas.alter("m.c.one", X, expected_version=1),
    "alter of a catalog": lambda g: g.store.catalogs.alter("m.c", X),
    "alter of a metalake": lambda g: g.store.metalakes.alter("m", X),
    "a transaction": _in_transaction,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_container_guards_itself(ground: Ground, way: str) -> None:
    session = ground.store._session
    backend, sent = session.backend, list[Commit]()

    class Recording:
        def commit(self, commit: Commit) -> CommitOutcome:
            sent.append(commit)
            return backend.commit(commit)

        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

    session.backend = Recording()
    try:
        with full_operations(ground.store):
            WAYS[way](ground)
    finally:
        session.backend = backend
    updates = [(commit, write) for commit in sent for write in commit.writes if isinstance(write, Update)]
    assert updates
    for commit, write in updates:
        assert kind_named(write.event.kind).container
        assert write.id in {guard.id for guard in commit.guards}


@pytest.mark.postgres
def test_a_freeze_waits_for_a_bulk_replace(postgres_url: str) -> None:
    """The replace is held up between its guards and its commit: a freeze of what it replaces begins after it."""
    with ms.open(postgres_url) as store, ms.open(postgres_url) as other, ThreadPoolExecutor(2) as threads:
        store.metalakes.create("m")
        store.catalogs.create("m.c", type="relational")
        one, two = (store.schemas.create(f"m.c.{name}") for name in ("one", "two"))
        with (
            psycopg.connect(postgres_url.replace("+psycopg", "")) as blocker,
            psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as looking,
        ):

            def waiting() -> int:
                text = """SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                  AND datname = current_database()"""
                ((count,),) = looking.execute(text).fetchall()
                return int(count)

            def freeze() -> tuple[int, int]:
                with other.schemas.exclusive("m.c.one") as tx:
                    before = tx.schemas.load("m.c.one").version
                    return before, other.schemas.load("m.c.one").version

            blocker.execute("SELECT 1 FROM entity WHERE id = %s FOR UPDATE", (two.id,))
            replace = threads.submit(store.schemas.create_many, "m.c", ROWS, if_exists="replace")
            eventually(lambda: waiting() == 1)
            frozen = threads.submit(freeze)
            eventually(lambda: frozen.done() or waiting() == 2)
            assert not frozen.done(), "it froze what a commit in flight was about to write"
            blocker.rollback()
            replaced = replace.result()
            before, after = frozen.result()
        assert (replaced, before, after) == (2, one.version + 1, one.version + 1)
