"""What every manager promises of restoring, purging and disabling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from metastore.kinds.entity import Entity
from tests.contract.ground import Ground, interrupted


class TestRestore:
    def test_the_newest(self, ground: Ground) -> None:
        first = ground.old
        second = ground.store.schemas.create("m.c.old")
        ground.store.schemas.drop(second)
        assert [d.id for d in ground.store.schemas.dropped("m.c")] == [first.id, second.id]
        back = ground.store.schemas.restore("m.c.old")
        assert (back.id, back.version, back.scope_version) == (second.id, 3, 3)
        assert back == ground.store.schemas.load("m.c.old")
        with pytest.raises(ms.EntityAlreadyExists, match="give it with to="):
            ground.store.schemas.restore("m.c.old")
        with pytest.raises(ms.EntityAlreadyExists):
            ground.store.schemas.restore("m.c.old", id=first.id)
        other = ground.store.schemas.restore("m.c.old", id=first.id, to="m.c.two.new")
        assert (other.id, other.path) == (first.id, "m.c.two.new")
        assert list(ground.store.schemas.dropped("m.c")) == []

    def test_to(self, ground: Ground) -> None:
        with pytest.raises(ms.EntityAlreadyExists):
            ground.store.schemas.restore("m.c.old", to="one")
        with pytest.raises(ms.EntityNotFound):
            ground.store.schemas.restore("m.c.old", to="m.none.old")
        assert ground.store.schemas.restore("m.c.old", to="older").path == "m.c.older"

    def test_nothing_to_restore(self, ground: Ground) -> None:
        restores: list[dict[str, Any]] = [
            {"path": "m.c.never"},
            {"path": "m.none.x"},
            {"path": "m.c.old", "id": ground.one.id},
            {"path": "m.c.old", "id": 10**6},
        ]
        for arguments in restores:
            with pytest.raises(ms.EntityNotFound):
                ground.store.schemas.restore(**arguments)
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.restore("m.c.one.old")

    def test_missing_parent(self, ground: Ground) -> None:
        ground.store.tables.drop("m.c.one.t")
        ground.store.schemas.drop("m.c.one")
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.restore("m.c.one.t")
        assert ground.store.tables.restore("m.c.one.t", id=ground.table.id, to="m.c.two.t").path == "m.c.two.t"

    def test_dropped_pages(self, ground: Ground) -> None:
        for name in ("b", "a", "b", "a"):
            ground.store.schemas.drop(ground.store.schemas.create(f"m.c.{name}"))
        for page_size in (1, 2, 100):
            found = list(ground.store.schemas.dropped("m.c", page_size=page_size))
            assert [d.name for d in found] == ["a", "a", "b", "b", "old"]
            assert found[0].id < found[1].id


class TestPurge:
    def test_live(self, ground: Ground) -> None:
        assert ground.store.tables.purge("m.c.one.t")
        assert not ground.store.tables.purge(ground.table)
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.restore("m.c.one.t")
        with pytest.raises(ms.EntityNotFound):
            list(ground.store.tables.history(ground.table))
        assert ground.backend.by_id([ground.table.id]) == [None]
        assert "owned" not in {k for k, rows in ground.dump().items() if rows}, "its partitions go with it"

    def test_dropped(self, ground: Ground) -> None:
        ground.store.schemas.drop(ground.one, cascade=True)
        assert ground.store.schemas.purge("m.c.one") is False, "by path it must be live"
        assert ground.store.schemas.purge(ground.one)
        assert ground.backend.by_id([ground.one.id, ground.table.id]) == [None, None]
        assert [d.name for d in ground.store.schemas.dropped("m.c")] == ["old"]
        assert [c.action for c in ground.store.changes()][-2:] == ["drop", "purge"]


class TestInUse:
    @pytest.fixture(params=["m.c", "m"])
    def disabled(self, ground: Ground, request: pytest.FixtureRequest) -> Ground:
        """The ground, with its metalake or its catalog disabled."""
        manager: Any = ground.store.catalogs if request.param == "m.c" else ground.store.metalakes
        after = manager.disable(request.param)
        assert (after.in_use, after.version, after.scope_version) == (False, 2, 2)
        assert manager.disable(after) == after, "disabled already: nothing is written"
        return ground

    def test_no_write_below(self, disabled: Ground) -> None:
        """Field case 16: also by one that read it as enabled before."""
        store, before = disabled.store, disabled.dump()
        writes: list[Callable[[], object]] = [
            lambda: store.tables.create("m.c.one.u"),
            lambda: store.tables.create("u", parent=disabled.one),
            lambda: store.tables.create_many(disabled.one, [{"name": "u"}]),
            lambda: store.tables.create("m.c.one.t", comment="x", if_exists="replace"),
            lambda: store.tables.alter(disabled.table, ms.SetComment("x")),
            lambda: store.tables.rename("m.c.one.t", "u"),
            lambda: store.tables.drop(disabled.table),
            lambda: store.tables.purge(disabled.table),
            lambda: store.schemas.restore("m.c.old"),
            lambda: store.partitions.create(disabled.table, "q", values={}),
            lambda: store.partitions.drop("m.c.one.t", "p"),
            lambda: store.schemas.create("m.c.x.y", parents=True),
        ]
        for write in writes:
            with pytest.raises(ms.NotInUse):
                write()
        assert disabled.dump() == before

    def test_reads_go_on(self, disabled: Ground) -> None:
        assert disabled.store.tables.load("m.c.one.t") == disabled.table
        assert list(disabled.store.schemas.names("m.c")) == ["one", "two"]
        assert disabled.store.tables.create("m.c.one.t", if_exists="return") == disabled.table
        assert disabled.store.schemas.drop("m.c.none") is False

    def test_enabled_again(self, ground: Ground) -> None:
        off = ground.store.catalogs.disable(ground.catalog)
        assert ground.store.catalogs.alter(off, ms.SetComment("itself")).comment == "itself"
        on = ground.store.catalogs.enable(ground.catalog)
        assert (on.in_use, on.version, on.scope_version) == (True, 4, 3)
        assert ground.store.tables.alter(ground.table, ms.SetComment("x")).version == 2
        ground.store.metalakes.disable("m")
        with pytest.raises(ms.NotInUse):
            ground.store.catalogs.disable("m.c")

    def test_disabled_at_that_moment(self, ground: Ground) -> None:
        with interrupted(ground.store, lambda: ground.store.catalogs.disable("m.c")), pytest.raises(ms.NotInUse):
            ground.store.tables.alter("m.c.one.t", ms.SetComment("x"))

    def test_moves_out_of_and_into(self, ground: Ground) -> None:
        ground.store.catalogs.create("m.d", type="model")
        ground.store.catalogs.disable("m.d")
        with pytest.raises(ms.NotInUse):
            ground.store.schemas.rename("m.c.one", "m.d.one")
        ground.store.catalogs.enable("m.d")
        ground.store.catalogs.disable("m.c")
        with pytest.raises(ms.NotInUse):
            ground.store.schemas.rename("m.c.one", "m.d.one")


def test_an_entity_of_history_is_no_guess(store: Store, ground: Ground) -> None:
    """What comes from history or from the feed can be given back; it means the entity's id."""
    entities = [c.entity for c in store.changes() if c.entity_id == ground.table.id]
    (past,) = entities
    assert isinstance(past, Entity)
    assert store.tables.alter(past, ms.SetComment("x")).version == 2
    assert store.partitions.create(past, "q", values={}).version == 1
