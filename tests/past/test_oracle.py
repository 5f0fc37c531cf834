"""Random histories with all that may meet in them: batches, gc, pins, reverts. What was seen at a time is the oracle.

At each position the past is what the store showed then, or is gone and says so. A difference between two positions, in
both directions, turns the one tree into the other. A revert gives the tree of its position.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

import metastore as ms
from metastore import Store
from metastore.errors import HistoryGone, MetastoreError
from metastore.managers.all import Managers
from tests.progress.replica import Replica, primary

ROOT = "m.c"
SCHEMAS = ["m.c.a", "m.c.b", "m.c.a.b"]
TABLES = [f"{schema}.{name}" for schema in SCHEMAS for name in ("t", "u")]
Tree = dict[int, tuple[tuple[str, ...], str | None]]
"""Path and comment of what is live, by id."""


def tree(managers: Managers) -> Tree:
    found, waiting = Tree(), [managers.catalogs.load(ROOT)]
    while waiting:
        above: Any = waiting.pop()
        for one in [*managers.schemas.list(above), *(managers.tables.list(above) if above.kind == "schema" else ())]:
            found[one.id] = (one.names, one.comment)
            waiting += [one] if one.kind == "schema" else []
    return found


class History:
    """A store that lives through random operations, and what it showed after each."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.choose = store, random.Random(seed)
        self.seen: list[tuple[str, Tree, bool]] = []
        """Each position, the tree at it, and whether a pin keeps it."""
        self.collected = False
        store.metalakes.create("m")
        store.catalogs.create(ROOT, type="relational")

    def live(self, count: int) -> None:
        for _ in range(count):
            with suppress(MetastoreError, IndexError):
                self.choose.choice(self._acts())()
            pinned = self.choose.random() < 0.2
            position = self.store.pin(f"pin {len(self.seen)}").position if pinned else self.store.position()
            self.seen.append((position, tree(self.store), pinned))

    def _acts(self) -> list[Callable[[], object]]:
        store, choose = self.store, self.choose
        manager: Any = choose.choice([store.schemas, store.tables, store.tables])
        paths = SCHEMAS if manager is store.schemas else TABLES
        at, to = choose.choice(paths), choose.choice(paths)

        def restore() -> None:
            gone = choose.choice(list(manager.dropped(at.rpartition(".")[0])))
            manager.restore(gone.path, id=gone.id, to=to)

        return [
            lambda: manager.create(at, parents=True),
            lambda: manager.create(at, parents=True, comment=str(choose.random())),
            lambda: manager.alter(at, ms.SetComment(str(choose.random()))),
            lambda: manager.rename(at, to),
            lambda: manager.drop(at, cascade=True),
            restore,
            self._together,
            self._swap,
            self._revert,
            self._collect,
        ]

    def _together(self) -> None:
        """Alter and create at once, so that calls travel with others."""

        def alter(n: int) -> None:
            with suppress(MetastoreError):
                self.store.tables.alter(TABLES[n % 3], ms.SetProperty(f"k{n}", "v"), ms.SetComment(f"{n}"))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(alter, range(8)))

    def _swap(self) -> None:
        with self.store.transaction() as tx:
            tx.schemas.rename("m.c.a", "w")
            tx.schemas.rename("m.c.b", "a")
            tx.schemas.rename("m.c.w", "b")

    def _revert(self) -> None:
        position, then, _ = self.choose.choice(self.seen)
        self.store.revert(ROOT, to=position)
        assert tree(self.store) == then
        assert self.store.revert(ROOT, to=position) == []

    def _collect(self) -> None:
        self.collected = True
        self.store.gc(retention=timedelta(0), keep_versions=1)

    # --- what must be true

    def check(self, pairs: int) -> None:
        shown = 0
        for position, then, pinned in self.seen:
            try:
                assert tree(self.store.at(position)) == then
                shown += 1
            except HistoryGone:
                assert self.collected
                assert not pinned
        assert shown
        compared = sum(self._check_pair() for _ in range(pairs))
        assert compared or self.collected
        assert self.store.verify() == []

    def _check_pair(self) -> bool:
        (one, before, _), (other, after, _) = (self.choose.choice(self.seen) for _ in range(2))
        try:
            there, back = ([*self.store.diff(*pair, under=ROOT)] for pair in ((one, other), (other, one)))
        except HistoryGone:
            assert self.collected
            return False
        check_difference(before, after, there)
        check_difference(after, before, back)
        return True


def check_difference(before: Tree, after: Tree, found: list[Any]) -> None:
    """Compare a difference of positions with the two trees."""
    by_id = {one.entity_id: one for one in found}
    for entity_id in before.keys() | after.keys():
        was, now, said = before.get(entity_id), after.get(entity_id), by_id.get(entity_id)
        if was is None or now is None:
            if said is None:  # it came, or went, with what is above it: that has the event
                paths = [one.path_before or one.path_after for one in found if one.action != "altered"]
                (names, _) = was or now or ((), None)
                assert any(".".join(names).startswith(path) for path in paths if path), (entity_id, was, now)
            elif now is None:
                assert said.path_after is None or said.action == "dropped"
        elif was[1] != now[1]:
            assert said is not None, (entity_id, was, now)
            assert (said.path_before, said.path_after) == (".".join(was[0]), ".".join(now[0]))
        elif was[0][-1] != now[0][-1]:
            assert said is not None
            assert said.action in ("renamed", "moved", "restored")


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 40))])
def test_every_position_both_directions_and_back(store: Store, seed: int) -> None:
    history = History(store, seed)
    history.live(14 if seed < 3 else 60)
    history.check(8 if seed < 3 else 60)


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [101, 102])
def test_a_history_goes_on_through_a_fail_over(seed: int) -> None:
    """A real standby takes the primary's place in the middle: what was seen before it is the past after it."""
    with primary() as leader:
        name = urlsplit(leader.create_database()).path.lstrip("/")
        ms.migrate(leader.url(name))
        with Replica(leader) as replica:
            both = (
                f"postgresql+psycopg://postgres@/{name}?host=127.0.0.1,127.0.0.1"
                f"&port={leader.port},{replica.port}&target_session_attrs=read-write"
            )
            with ms.open(both, deadline=60.0) as store:
                history = History(store, seed)
                history.live(25)
                leader.kill()
                replica.promote()
                history.live(25)
                history.check(40)
