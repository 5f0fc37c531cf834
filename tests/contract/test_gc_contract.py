"""What every store promises of gc."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.gc import Collected
from metastore.port.backend import TOMBSTONES_STAY
from metastore.port.upkeep import HistoryLimits
from tests.contract.ground import Ground

NOW = timedelta(0)


class TestGc:
    def test_retention(self, ground: Ground) -> None:
        """Field case 26: nothing goes before its time, then it goes with all that hangs on it."""
        store = ground.store
        store.schemas.drop("m.c.one", cascade=True)
        before = ground.dump()
        assert store.gc(retention=timedelta(hours=1)) == Collected(0, 0, 0)
        assert ground.dump() == before
        assert store.schemas.restore("m.c.one").id == ground.one.id
        store.schemas.drop("m.c.one", cascade=True)
        collected = store.gc(retention=NOW)
        assert collected.entities == 3, "one, the table below it, old"
        assert ground.backend.by_id([ground.one.id, ground.table.id, ground.old.id]) == [None] * 3
        left = ground.dump()
        assert {row[0] for row in left["guard"]} == {0, ground.lake.id, ground.catalog.id, ground.two.id}
        assert not left["owned"]
        assert len(left["entity"]) == 3
        with pytest.raises(ms.EntityNotFound):
            store.schemas.restore("m.c.one")
        assert store.gc(retention=NOW).entities == 0

    def test_versions(self, ground: Ground) -> None:
        tables = ground.store.tables
        for n in range(9):
            tables.alter(ground.table, ms.SetComment(str(n)))
        collected = ground.store.gc(retention=NOW, keep_versions=3)
        assert collected.versions == 7
        assert [v.version for v in tables.history(ground.table)] == [8, 9, 10]
        with pytest.raises(ms.EntityNotFound):
            tables.load(ground.table, version=7)
        assert tables.load(ground.table).comment == "8"
        assert tables.load(ground.table, version=8).comment == "6"
        assert len(list(ground.store.schemas.history("m.c.two"))) == 1, "the newest stay, however old"
        assert ground.store.gc(retention=timedelta(days=1), keep_versions=1).versions == 0
        assert ground.store.gc(retention=NOW, keep_versions=1).versions == 2

    def test_positions_before_what_was_removed(self, ground: Ground) -> None:
        changes = list(ground.store.changes())
        for n in range(5):
            ground.store.tables.alter(ground.table, ms.SetComment(str(n)))
        ground.store.gc(retention=NOW, keep_versions=1)
        with pytest.raises(ms.InvalidArgument):
            list(ground.store.changes(after=changes[0].position))
        rest = list(ground.store.changes())
        assert (rest[0].action, rest[0].path_after) == ("create", "m")
        assert rest[-1].action == "purge"
        assert list(ground.store.changes(after=rest[-1].position)) == []

    def test_a_consumer_that_has_read_everything_can_go_on(self, ground: Ground) -> None:
        """Also where the newest step is of an entity that is gone: gc leaves that step."""
        store = ground.store
        store.gc(retention=NOW)  # what gc purges itself is younger than its retention
        assert store.tables.purge(ground.table)
        newest = list(store.changes())[-1].position
        store.gc(retention=NOW, keep_versions=1)
        read = list(store.changes())
        assert read[-1].position == newest
        assert list(store.changes(after=newest)) == []
        store.schemas.create("m.c.three")
        assert [change.path_after for change in store.changes(after=newest)] == ["m.c.three"]

    def test_tombstones(self, ground: Ground) -> None:
        operation = ground.store._session.clock.operation_id()
        assert ground.backend.forbid(operation)
        assert ground.store.gc(retention=timedelta(hours=1)).operations == 0
        ground.store.gc(retention=NOW)
        assert ground.backend.steps(operation), "an original may be late"
        ground.backend.delete_steps(
            HistoryLimits(ground.backend.now() + TOMBSTONES_STAY + 1_000_000, 0, 100, 1 << 62), 0, 100
        )
        assert ground.backend.steps(operation) == []

    @pytest.mark.parametrize(
        "bad", [{"retention": -timedelta(1)}, {"retention": 7}, {"retention": NOW, "keep_versions": 0}]
    )
    def test_arguments(self, store: Store, bad: dict[str, Any]) -> None:
        with pytest.raises(ms.InvalidArgument):
            store.gc(**bad)

    def test_deep_trees(self, ground: Ground) -> None:
        for n in range(30):
            ground.store.tables.create_many(
                ground.store.schemas.create(f"m.c.one.s{n % 3}.u{n}", parents=True), [{"name": "x"}]
            )
        ground.store.catalogs.drop("m.c", cascade=True)
        collected = ground.store.gc(retention=NOW)
        assert collected.entities == 30 + 30 + 3 + 5
        assert len(ground.dump()["guard"]) == 2
