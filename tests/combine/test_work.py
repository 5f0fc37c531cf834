"""How much a batch does: how often it asks, and how many rows the server looks at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore import Store
from metastore.backends.postgres.parameters import Statement
from metastore.backends.postgres.together.message import statements
from metastore.backends.postgres.wire import numbered
from metastore.clock import SYSTEM
from metastore.port.batches import Batch
from tests.combine.gate import lanes, together

SCHEMA = "lake.c.s"
MANY = 64
Call = Callable[[], Any]


def path(n: int) -> str:
    return f"{SCHEMA}.t{n}"


def set_in(store: Store, n: int, key: str, value: str = "1") -> Call:
    return lambda: store.tables.alter(path(n), ms.SetProperty(key, value))


@contextmanager
def asked(backend: Any) -> Iterator[list[str]]:
    """Give the list of the messages of batches: find, or write."""
    seen: list[str] = []
    originals = {name: getattr(backend, name) for name in ("find_below", "write_together")}

    def noted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            seen.append(name.partition("_")[0])
            return originals[name](*arguments)

        return call

    for name in originals:
        setattr(backend, name, noted(name))
    try:
        yield seen
    finally:
        for name in originals:
            delattr(backend, name)


def test_the_next_batch_on_one_entity_reads_nothing(store: Store) -> None:
    _, writes = lanes(store)
    together(writes, [set_in(store, 0, "a"), set_in(store, 0, "b")])
    with asked(store._session.backend) as seen:
        found = together(writes, [set_in(store, 0, "c"), set_in(store, 0, "d")])
    assert seen == ["write"]
    assert sorted(t.version for t in found) == [4, 5]
    assert set(store.tables.load(path(0)).properties) == {"a", "b", "c", "d"}
    assert store.verify() == []


def test_what_the_last_batch_left_is_a_guess(store: Store, url: str) -> None:
    """Others alter, rename and replace the entity between two batches."""
    _, writes = lanes(store)
    together(writes, [set_in(store, n // 2, "first", str(n % 2)) for n in range(6)])
    with ms.open(url) as other:
        other.tables.alter(path(0), ms.SetProperty("theirs", "1"))
        other.tables.rename(path(1), "away")
        other.tables.drop(path(2))
        other.tables.create(path(2))
    with asked(store._session.backend) as seen:
        found = together(writes, [set_in(store, n, "second") for n in range(3)])
    assert seen[:2] == ["write", "find"]
    assert set(found[0].properties) == {"first", "theirs", "second"}
    assert isinstance(found[1], ms.EntityNotFound)
    assert found[2].version == 2
    assert set(found[2].properties) == {"second"}
    assert set(store.tables.load(f"{SCHEMA}.away").properties) == {"first"}
    assert store.verify() == []


def test_an_error_on_what_the_last_batch_left_is_decided_again(store: Store, url: str) -> None:
    _, writes = lanes(store)
    add, drop = ms.AddColumn("b", "string"), ms.DropColumn("b")
    together(
        writes, [lambda: store.tables.alter(path(0), add), set_in(store, 0, "other"), *[set_in(store, 1, "k")] * 2]
    )
    with ms.open(url) as other:
        other.tables.alter(path(0), drop)
        other.tables.alter(path(1), ms.SetProperty("k", "2"))
    # the guess has the column, and the property's value
    found = together(writes, [lambda: store.tables.alter(path(0), add), set_in(store, 1, "k")])
    assert [column.name for column in found[0].columns] == ["a", "b"]
    assert found[1].version == 4
    assert found[1].properties["k"] == "1"
    assert store.verify() == []


def _looked_at(url: str, sent: list[Statement]) -> int:
    """Run statements as one transaction that is taken back; return how many rows the server's look-ups gave.

    With the plan that is made once for all lengths of the arrays, as the library's sessions have it.
    """
    total = 0

    def walk(node: dict[str, Any]) -> None:
        nonlocal total
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            total += round(node["Actual Rows"] * node["Actual Loops"])
        for child in node.get("Plans", ()):
            walk(child)

    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        for setting in ("enable_seqscan = off", "enable_bitmapscan = off", "plan_cache_mode = force_generic_plan"):
            connection.execute(f"SET LOCAL {setting}")
        composer = psycopg.ClientCursor(connection)
        for n, one in enumerate(sent):
            text, names = numbered(one.text)
            connection.execute(f"PREPARE s{n} AS {text}".encode())
            values = ", ".join(composer.mogrify("%s", [one.parameters[name]]) for name in names)
            cursor = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE s{n}({values})".encode())
            (found,) = cursor.fetchone() or ("[]",)
            walk((json.loads(found) if isinstance(found, str) else found)[0]["Plan"])
        connection.rollback()
    return total


@pytest.mark.parametrize("kind", ["alter", "drop", "rename", "create"])
def test_a_batch_looks_at_each_row_a_few_times(
    store: Store, url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each other member, as a nested loop does that was planned for one row."""
    _, writes = lanes(store)
    calls: dict[str, Callable[[int], Any]] = {
        "alter": lambda n: store.tables.alter(f"{SCHEMA}.u{n}", ms.SetProperty("k", "1")),
        "drop": lambda n: store.tables.drop(f"{SCHEMA}.u{n}"),
        "rename": lambda n: store.tables.rename(f"{SCHEMA}.u{n}", f"v{n}"),
        "create": lambda n: store.tables.create(f"{SCHEMA}.w{n}"),
    }
    store.tables.create_many(SCHEMA, [{"name": f"u{n}"} for n in range(2000)])
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE guard, entity, operation")
    backend: Any = store._session.backend
    looked: list[int] = []
    original = backend.write_together

    def write(batch: Batch, patience: int) -> Any:
        sent = statements(batch, patience)
        for one in sent:
            one.parameters["generation"] = backend._announcing.alone.generation
        looked.append(_looked_at(url, sent))
        return original(batch, patience)

    store.tables.alter(path(0), ms.SetProperty("k", "1"))  # the generation is known from here on
    monkeypatch.setattr(backend, "write_together", write)
    found = together(writes, [lambda n=n: calls[kind](n) for n in range(MANY)])  # type: ignore[misc]
    assert not [one for one in found if isinstance(one, Exception)]
    assert len(looked) == 1
    assert looked[0] <= 5 * MANY


def test_a_forked_child_draws_other_operation_ids() -> None:
    SYSTEM.operation_id()  # random bytes for many are drawn
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writes, b"".join([SYSTEM.operation_id().bytes[6:] for _ in range(8)]))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reads, 80)
    os.close(reads)
    os.close(writes)
    mine = {SYSTEM.operation_id().bytes[6:] for _ in range(300)}
    assert len(mine) == 300
    assert mine.isdisjoint({theirs[n : n + 10] for n in range(0, 80, 10)})
