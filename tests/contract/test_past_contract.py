"""What every store promises: history, the change feed, owned rows, gc."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import metastore as ms
from metastore import Change, Version
from metastore.kinds.entity import Entity
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

NOW = timedelta(0)


def story(versions: list[Version] | list[Change]) -> list[tuple[int, str, str | None, str | None]]:
    """What is the same for every backend."""
    return [(v.version, v.action, v.path_before, v.path_after) for v in versions]


class TestHistory:
    def test_every_action(self, ground: Ground) -> None:
        schemas = ground.store.schemas
        schemas.alter("m.c.two", ms.SetComment("1"), ms.SetProperty("a", "b"))
        schemas.rename("m.c.two", "due")
        schemas.rename("m.c.due", "m.c.one.due")
        schemas.drop("m.c.one.due")
        schemas.restore("m.c.one.due", to="m.c.zwei")
        schemas.create("m.c.zwei", comment="2", if_exists="replace")
        versions = list(schemas.history(ground.two))
        assert story(versions) == [
            (1, "create", None, "m.c.two"),
            (2, "alter", "m.c.two", "m.c.two"),
            (3, "rename", "m.c.two", "m.c.due"),
            (4, "move", "m.c.due", "m.c.one.due"),
            (5, "drop", "m.c.one.due", None),
            (6, "restore", None, "m.c.zwei"),
            (7, "alter", "m.c.zwei", "m.c.zwei"),
        ]
        assert versions == list(schemas.history("m.c.zwei"))
        assert versions[1].changes == (ms.SetComment("1"), ms.SetProperty("a", "b"))
        assert len({v.operation_id for v in versions}) == 7
        assert {v.operation_id.version for v in versions} == {7}
        assert all(a.time <= b.time for a, b in pairwise(versions))

    def test_the_newest_versions_first(self, ground: Ground) -> None:
        schemas = ground.store.schemas
        for n in range(6):
            schemas.alter("m.c.two", ms.SetComment(str(n)))
        page = schemas.history_page("m.c.two", size=2, after=4)
        assert [one.version for one in page.items] == [5, 6]
        assert [one.version for one in schemas.history_page("m.c.two", token=page.next_token, after=1).items] == [7]
        assert schemas.history_page("m.c.two", after=7).items == ()
        with pytest.raises(ms.InvalidArgument):
            schemas.history_page("m.c.two", after=-1)

    def test_load_a_version(self, ground: Ground) -> None:
        tables = ground.store.tables
        tables.alter(ground.table, ms.SetComment("1"))
        tables.rename(ground.table, "u")
        now = tables.alter(ground.table, ms.SetComment("2"))
        found = [tables.load(now, version=v) for v in (1, 2, 3, 4)]
        assert [(e.path, e.version, e.comment) for e in found] == [
            ("m.c.one.t", 1, None),
            ("m.c.one.t", 2, "1"),
            ("m.c.one.u", 3, "1"),
            ("m.c.one.u", 4, "2"),
        ]
        assert found[3].record[1:] == now.record[1:]
        assert [v.entity for v in tables.history(now)] == found
        for version in (5, 99):
            with pytest.raises(ms.EntityNotFound):
                tables.load(now, version=version)
        for bad in (0, -1, True, "1"):
            with pytest.raises(ms.InvalidArgument):
                tables.load(now, version=bad)  # type: ignore[arg-type]

    def test_enable_and_disable(self, ground: Ground) -> None:
        ground.store.catalogs.disable("m.c")
        ground.store.catalogs.enable("m.c")
        versions = list(ground.store.catalogs.history("m.c"))
        assert [v.action for v in versions] == ["create", "disable", "enable"]
        entities = [v.entity for v in versions]
        assert [e.in_use for e in entities if isinstance(e, ms.Catalog)] == [True, False, True]

    def test_of_what_is_gone(self, ground: Ground) -> None:
        assert [v.action for v in ground.store.schemas.history(ground.old)] == ["create", "drop"]
        with pytest.raises(ms.EntityNotFound):
            list(ground.store.schemas.history("m.c.old"))


class TestChanges:
    def test_the_newest_first(self, ground: Ground) -> None:
        """An earlier position has at most so many changes after it, up to another one."""
        store = ground.store
        everything = [one.position for one in store.changes()]
        seen, before = list[str](), None
        while len(seen) < len(everything):
            start = store.position(back=3, before=before)
            page = [one.position for one in store.changes(after=start) if before is None or one.position < before]
            assert 0 < len(page) <= 3
            seen, before = [*page, *seen], page[0]
        assert seen == everything
        assert list(store.changes(after=store.position(back=10**6)))
        for wrong in (-1, "1", True):
            with pytest.raises(ms.InvalidArgument):
                store.position(back=wrong)  # type: ignore[arg-type]
        with pytest.raises(ms.InvalidArgument):
            store.position(before="nonsense")

    def test_everything_in_order(self, ground: Ground) -> None:
        changes = list(ground.store.changes())
        assert story(changes) == [
            (1, "create", None, "m"),
            (1, "create", None, "m.c"),
            (1, "create", None, "m.c.one"),
            (1, "create", None, "m.c.two"),
            (1, "create", None, "m.c.old"),
            (1, "create", None, "m.c.one.t"),
            (1, "create", None, "m.c.one.t.p"),
            (2, "drop", "m.c.old", None),
        ]
        assert [c.kind for c in changes] == ["metalake", "catalog", *["schema"] * 3, "table", "partition", "schema"]
        assert changes[5].entity_id == ground.table.id
        assert isinstance(changes[5].entity, Entity)
        assert changes[5].entity.doc == ground.table.doc
        assert {c.principal for c in changes} == {"tester"}

    def test_positions(self, ground: Ground) -> None:
        changes = list(ground.store.changes())
        assert all(a.position < b.position for a, b in pairwise(changes))
        for n in (0, 3, len(changes)):
            assert list(ground.store.changes(limit=n)) == changes[:n]
        for n, change in enumerate(changes):
            assert list(ground.store.changes(after=change.position)) == changes[n + 1 :]
        last = changes[-1].position
        ground.store.tables.rename("m.c.one.t", "u")
        (new,) = ground.store.changes(after=last)
        assert story([new]) == [(2, "rename", "m.c.one.t", "m.c.one.u")]

    @pytest.mark.parametrize("bad", ["", "x", "0-1", "0000-zz", 7])
    def test_no_position(self, ground: Ground, bad: Any) -> None:
        with pytest.raises(ms.InvalidArgument):
            ground.store.changes(after=bad)

    def test_replaying_gives_the_tables(self, ground: Ground) -> None:
        """A replay by path: what is created, renamed, dropped; a cascade takes all below with it."""
        ground.store.schemas.rename("m.c.one", "m.c.two.in")
        ground.store.filesets.create("m.c.two.in.f")
        ground.store.schemas.drop("m.c.two.in", cascade=True)
        ground.store.schemas.restore("m.c.two.in", to="m.c.back")
        parents: dict[int, tuple[str, ...] | None] = {}
        for change in ground.store.changes():
            if change.kind != "partition":
                parents[change.entity_id] = change.path_after and tuple(change.path_after.split("."))  # type: ignore[assignment]
        assert ("m", "c", "back") in parents.values()
        assert sum(p is None for p in parents.values()) == 1


class TestOwned:
    def test_partitions(self, ground: Ground) -> None:
        partitions, table = ground.store.partitions, ground.table
        made = partitions.create("m.c.one.t", "day=1", values={"day": "1"}, properties={"k": "v"})
        assert (made.version, made.values, made.properties, made.created_by) == (1, {"day": "1"}, {"k": "v"}, "tester")
        assert partitions.load(table, "day=1") == made
        assert list(partitions.list(table)) == [made, ground.part]
        with pytest.raises(ms.EntityAlreadyExists):
            partitions.create(table, "day=1", values={})
        assert partitions.exists(table, "day=1")
        assert partitions.drop(table, "day=1") is True
        assert partitions.drop(table, "day=1") is False
        assert partitions.drop("m.c.one.none", "x") is False
        with pytest.raises(ms.EntityNotFound):
            partitions.load(table, "day=1")
        with pytest.raises(ms.EntityNotFound):
            list(partitions.names("m.c.one.none"))
        again = partitions.create(table, "day=1", values={})
        assert again.id != made.id
        assert ground.store.tables.load(table) == table, "they do not change their owner"

    @pytest.mark.parametrize("page_size", [1, 2, 50])
    def test_order(self, ground: Ground, page_size: int) -> None:
        names = ["z", "a", "\uffff", "\U0001f600", "A"]
        for name in names:
            ground.store.partitions.create(ground.table, name, values={})
        assert list(ground.store.partitions.names("m.c.one.t", page_size=page_size)) == sorted([*names, "p"])

    def test_put_many(self, ground: Ground) -> None:
        statistics = ground.store.statistics
        rows = [statistics.row(n, {"rows": 1, "x": [None, 1.5, "ä"]}) for n in ("a", "b", "c")]
        assert statistics.put_many(ground.table, rows) == 3
        assert statistics.put_many("m.c.one.t", rows) == 0
        assert statistics.put_many(ground.table, [statistics.row("a", {"rows": 2})], drop=["b", "zz"]) == 2
        assert [(s.name, s.version, s.values["rows"]) for s in statistics.list(ground.table)] == [
            ("a", 2, 2),
            ("c", 1, 1),
        ]
        assert not ground.store.partitions.exists(ground.table, "a")
        last = list(ground.store.changes())[-2:]
        assert [(c.action, c.kind) for c in last] == [("alter", "statistic"), ("drop", "statistic")]
        assert last[0].operation_id == last[1].operation_id

    def test_they_go_and_come_with_their_owner(self, ground: Ground) -> None:
        assert ground.store.tables.drop("m.c.one.t"), "not a child: it does not make the table not empty"
        with pytest.raises(ms.EntityNotFound):
            ground.store.partitions.create(ground.table, "q", values={})
        ground.store.tables.restore("m.c.one.t", to="m.c.two.t")
        assert [p.name for p in ground.store.partitions.list("m.c.two.t")] == ["p"]
