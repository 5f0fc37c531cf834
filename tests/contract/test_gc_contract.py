"""What every store promises of gc."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import metastore as ms
from metastore import Store, gc
from metastore.feed import feed
from metastore.feed.feed import position_of
from metastore.gc import Collected
from metastore.kinds.entity import Entity
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
        epoch, collected = ground.backend.feed_start()
        made = ground.backend.history(ground.lake.id, 0, 1)[0]
        assert made.seq is not None
        assert made.seq <= collected
        with pytest.raises(ms.InvalidArgument, match="restored from an older backup"):
            ground.store.at(position_of(epoch, made.seq, ground.store._session.clock.operation_id()))
        with pytest.raises(ms.HistoryGone):
            ground.store.at(position_of(epoch, made.seq, made.operation_id))
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

    @pytest.mark.parametrize("from_start", [True, False])
    def test_between_two_pages_of_the_feed(
        self, ground: Ground, monkeypatch: pytest.MonkeyPatch, from_start: bool
    ) -> None:
        """A reader that has seen the beginning would take what was dropped since for live."""
        monkeypatch.setattr(feed, "_PAGE", 3)
        store = ground.store
        first = next(iter(store.changes()))
        reading = iter(store.changes(after=None if from_start else first.position))
        read = [next(reading) for _ in range(3)]
        store.tables.purge(ground.table)
        for _ in range(2):  # the first makes what was dropped unrestorable
            store.gc(retention=NOW, keep_versions=1)
        with pytest.raises(ms.HistoryGone):
            read += reading
        left = list(store.changes())
        assert ground.table.id not in [change.entity_id for change in left]
        assert len(left) > 3, "what was gone before a read began is not a gap in it"

    def test_what_was_removed_is_behind_a_reader(self, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(feed, "_PAGE", 2)
        store = ground.store
        start = store.position()
        for n in range(6):
            store.tables.alter(ground.table, ms.SetComment(str(n)))
        reading = iter(store.changes(after=start))
        read = [next(reading) for _ in range(4)]
        consumer = store.consumers.get("slow", start=read[-1].position)
        store.gc(retention=NOW, keep_versions=1)
        read += reading
        assert [c.entity.comment for c in read if c.action == "alter" and c.entity is not None] == list("012345")
        assert consumer.read() == read[4:]

    def test_exactly_up_to_the_horizon(self, ground: Ground) -> None:
        """A version stays if it is what the past shows at the horizon, or if a consumer has not read it."""
        store, backend = ground.store, ground.backend
        made = [ground.table, *[store.tables.alter(ground.table, ms.SetComment(str(n))) for n in range(2, 9)]]
        at = {one.version: backend.history(ground.table.id, one.version - 1, 1)[0] for one in made}
        seq = {version: step.seq or 0 for version, step in at.items()}
        always = {"before": backend.now() + 1_000_000, "horizon": seq[8], "keep": 1, "unread": seq[8]}

        def left(**limits: int) -> int:
            """Return the oldest version that is left."""
            backend.delete_steps(HistoryLimits(**always | limits), 0, 1000)
            return next(iter(store.tables.history(ground.table))).version

        assert left(keep=7) == 2, "of eight, seven stay"
        assert left(unread=seq[2]) == 3, "a consumer has read up to the second, and not the third"
        assert left(horizon=seq[4]) == 4, "the past shows the fourth at its own position"
        assert left(before=at[5].time) == min(v for v in at if at[v].time == at[5].time)
        position = {version: position_of(store._session.epoch(), seq[version]) for version in seq}
        assert left(horizon=seq[6]) == 6
        assert store.at(position[6]).tables.load(ground.table).comment == "6"
        with pytest.raises(ms.HistoryGone) as gone:
            store.at(position[5])
        assert gone.value.since == position[6]

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

    def test_what_it_is_about_to_delete_is_doomed(self, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
        """It has made the root unrestorable, and was stopped there: nothing below it can come back."""
        store, backend = ground.store, ground.backend
        before = store.position()
        store.tables.drop(ground.table)
        store.schemas.drop(ground.one, cascade=True)

        def doomed(*entities: Entity) -> list[bool | None]:
            found = backend.by_id([one.id for one in entities])
            return [None if one is None else one.doomed for one in found]

        every = ground.lake, ground.catalog, ground.two, ground.old, ground.one, ground.table
        assert doomed(*every) == [False] * 6
        with monkeypatch.context() as patch:
            patch.setattr(gc, "_delete_trees", lambda *_: 0)
            store.gc(retention=NOW)
        assert doomed(*every) == [False, False, False, True, True, True]
        with pytest.raises(ms.EntityNotFound, match="no dropped table with id"):
            store.tables.restore("m.c.one.t", id=ground.table.id)
        with pytest.raises(ms.InvalidArgument, match=r"or destroyed cannot come back: m\.c\.one, m\.c\.one\.t;"):
            store.revert("m.c", to=before)
        store.gc(retention=NOW)
        assert doomed(*every) == [False, False, False, None, None, None]

    def test_deep_trees(self, ground: Ground) -> None:
        for n in range(30):
            ground.store.tables.create_many(
                ground.store.schemas.create(f"m.c.one.s{n % 3}.u{n}", parents=True), [{"name": "x"}]
            )
        ground.store.catalogs.drop("m.c", cascade=True)
        collected = ground.store.gc(retention=NOW)
        assert collected.entities == 30 + 30 + 3 + 5
        assert len(ground.dump()["guard"]) == 2
