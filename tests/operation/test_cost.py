"""What one call sends and counts: no read that it does not need, and each version by which it was overtaken."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import metastore as ms
from metastore.combine.reads import below
from metastore.operation.guards import both, guards_of
from metastore.port.conditions import Guard
from metastore.port.records import ROOT, Lookup
from metastore.store import Store
from tests.operation.ground import PATH, StillClock, session_of, store_on, store_with


class _Counting:
    """A backend that counts its calls, and lets another client write before a commit."""

    def __init__(self, store: Store, *before: ms.SetComment) -> None:
        self._store, self._backend = store, session_of(store).backend
        self._before = iter(before)
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._backend, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if name == "commit":
                for change in self._before:
                    self._store.topics.alter(PATH, change)
            return value(*arguments, **options)

        return call


@pytest.fixture
def store() -> Store:
    return store_with(StillClock())


def _beside(store: Store, *before: ms.SetComment) -> tuple[Store, _Counting]:
    backend = _Counting(store, *before)
    return store_on(backend, session_of(store).clock), backend


def test_a_call_that_changes_nothing_reads_once(store: Store) -> None:
    """What it read itself is not a guess: it need not read again before it answers."""
    counted, backend = _beside(store)
    assert counted.topics.alter(PATH, ms.RemoveProperty("none")).version == 1
    assert backend.calls["resolve"] == 1
    in_hand = store.topics.load(PATH)
    backend.calls.clear()
    counted.topics.alter(in_hand, ms.RemoveProperty("none"))
    assert backend.calls["by_id"] + backend.calls["resolve"] == 1, "what is in hand is a guess"


def test_a_create_by_path_reads_the_way_once(store: Store) -> None:
    counted, backend = _beside(store)
    reads = list[int]()
    for name in ("a", "b", "c"):
        backend.calls.clear()
        counted.topics.create(f"lake.c.s.{name}")
        reads.append(backend.calls["resolve"] + backend.calls["by_id"])
    assert reads == [1, 0, 0]


@pytest.mark.parametrize("rivals", [1, 3])
def test_versions_by_which_a_call_was_overtaken_are_counted(store: Store, rivals: int) -> None:
    counted, _ = _beside(store, *[ms.SetComment(f"rival {n}") for n in range(rivals)])
    assert counted.topics.alter(PATH, ms.SetProperty("k", "v")).version == 2 + rivals
    assert session_of(counted).metrics.snapshot().overtaken_versions == rivals


def test_below_the_root_the_root_is_guarded() -> None:
    """Else a transaction that listed the metalakes would not wait for one that is being made."""
    assert guards_of(()) == (Guard(ROOT.id, ROOT.scope_version),)
    lake, other = ROOT._replace(id=1, scope_version=3), ROOT._replace(id=1, scope_version=4)
    assert guards_of((lake,)) == (Guard(1, 3),)
    assert both((lake,), (other,)) == (Guard(1, 3),), "as the first read saw it"


def test_what_travels_with_others_begins_at_the_root(store: Store) -> None:
    """A path from an entity in hand, or a very long one, is read by itself: a batch would look below the root."""
    session, schema = session_of(store), store.schemas.load("lake.c.s")
    store.topics.load(PATH)
    whole = Lookup(("metalake", "catalog", "schema", "topic"), tuple(PATH.split(".")))
    session.recent.note_parents(whole, schema.record.chain)
    wanted = below(session, whole)
    assert wanted is not None
    assert (wanted.parents, wanted.key) == (schema.record.chain, "t")
    assert below(session, Lookup(("topic",), ("t",), schema.record.chain[-1])) is None
    long = Lookup(("schema",) * 17, ("s",) * 17)
    session.recent.note_parents(long, (schema.record.chain[-1],) * 16)
    assert below(session, long) is None
