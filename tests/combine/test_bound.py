"""How many batches a change loses before the full operation takes it, and what that begins with."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.combine import waiting
from metastore.operation.hot import Hot
from metastore.port.intents import Mark
from tests.combine.gate import batches_of, lanes, together

SCHEMA, TABLE = "lake.c.s", "lake.c.s.t0"


def set_property(store: Store, key: str) -> Callable[[], Any]:
    return lambda: store.tables.alter(TABLE, ms.SetProperty(key, "1"))


def before_each(store: Store, name: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something before each call of a method of the backend."""
    backend: Any = store._session.backend
    original = getattr(backend, name)

    def call(*arguments: Any) -> Any:
        act()
        return original(*arguments)

    monkeypatch.setattr(backend, name, call)


def test_what_lost_its_batches_is_announced_at_once(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another operation has noted meanwhile that the entity is cool: the bound has no term for that."""
    _, writes = lanes(store)
    asked = defaultdict[int, list[str]](list)
    with ms.open(url) as other:
        theirs = (ms.SetProperty("theirs", str(n)) for n in count())
        before_each(store, "write_together", lambda: other.tables.alter(TABLE, next(theirs)), monkeypatch)
        for name in ("commit", "write_down", "help"):
            before_each(store, name, lambda name=name: asked[threading.get_ident()].append(name), monkeypatch)  # type: ignore[misc]
        monkeypatch.setattr(Hot, "find", lambda *_: None)
        with batches_of(writes) as sizes:
            found = together(writes, [set_property(store, "a"), set_property(store, "b")])
    assert sizes == [2] * waiting.ROUNDS
    assert {one.properties[key] for one, key in zip(found, "ab", strict=True)} == {"1"}
    assert {names[0] for names in asked.values()} == {"write_down"}
    assert not any("commit" in names for names in asked.values())
    assert store.verify() == []


def test_a_mark_costs_no_more_batches_than_a_lost_race(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _, writes = lanes(store)
    schema, marked_by = store.schemas.load(SCHEMA), ms.new_operation_id()
    backend = store._session.backend
    backend.mark(Mark(marked_by, schema.id, 60.0))
    before_each(store, "commit", lambda: backend.unmark(schema.id, marked_by), monkeypatch)
    with batches_of(writes) as sizes:
        (found,) = together(writes, [set_property(store, "a")])
    assert sizes == [1] * waiting.ROUNDS
    assert found.properties == {"a": "1"}


def test_a_batch_that_lost_to_a_rename_is_no_lost_round(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch finds the entity elsewhere: none but the last is counted."""
    _, writes = lanes(store)
    renames = 3 * waiting.ROUNDS
    with ms.open(url) as other:

        def rename() -> None:
            nonlocal renames
            if renames:
                renames -= 1
                other.tables.rename(TABLE, "away")
                other.tables.rename(f"{SCHEMA}.away", "t0")

        before_each(store, "write_together", rename, monkeypatch)
        with batches_of(writes) as sizes:
            (found,) = together(writes, [set_property(store, "a")])
    assert sizes == [1] * (3 * waiting.ROUNDS + 1)
    assert found.properties == {"a": "1"}
