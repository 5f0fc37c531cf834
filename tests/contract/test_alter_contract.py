"""What every manager promises of altering: changes merge, and are written once."""

from __future__ import annotations

from typing import Any

import pytest

import metastore as ms
from tests.contract.ground import Ground, interrupted


class TestAlter:
    def test_merge(self, ground: Ground) -> None:
        """Two callers with the same entity in hand: both changes land; field case 1."""
        tables = ground.store.tables
        tables.alter(ground.table, ms.SetProperty("a", "1"))
        after = tables.alter(ground.table, ms.SetProperty("b", "2"), ms.SetComment("c"))
        assert (after.version, after.comment, after.properties) == (3, "c", {"a": "1", "b": "2"})
        with interrupted(
            ground.store,
            lambda: tables.alter("m.c.one.t", ms.SetProperty("a", "9")),
            lambda: tables.alter("m.c.one.t", ms.RemoveProperty("b")),
        ):
            mine = tables.alter("m.c.one.t", ms.SetProperty("d", "4"))
        # it lost to the first, was announced, and the second applied it with its own
        assert (mine.version, mine.properties) == (5, {"a": "9", "b": "2", "d": "4"})
        after = tables.load("m.c.one.t")
        assert (after.version, after.properties) == (6, {"a": "9", "d": "4"})

    def test_same_column_twice(self, ground: Ground) -> None:
        tables = ground.store.tables
        tables.alter(ground.table, ms.AddColumn(("x",), "int"))
        with pytest.raises(ms.EntityAlreadyExists):
            tables.alter(ground.table, ms.AddColumn(("x",), "int"))
        assert [c.name for c in tables.alter(ground.table, ms.AddColumn(("y",), "int")).columns] == ["x", "y"]

    def test_equal_writes_nothing(self, ground: Ground) -> None:
        altered = ground.store.tables.alter(ground.table, ms.SetProperty("a", "1"))
        before = ground.dump()
        assert ground.store.tables.alter(altered, ms.SetProperty("a", "1")) == altered
        assert ground.store.tables.alter("m.c.one.t", ms.RemoveProperty("zz"), ms.SetComment(None)) == altered
        assert ground.store.tables.alter(ground.table) == altered
        assert ground.dump() == before

    def test_expected_version(self, ground: Ground) -> None:
        tables = ground.store.tables
        assert tables.alter(ground.table, ms.SetComment("1"), expected_version=1).version == 2
        calls: list[Any] = [
            lambda t: tables.alter(t, ms.SetComment("2"), expected_version=1),
            lambda t: tables.rename(t, "u", expected_version=1),
            lambda t: tables.drop(t, expected_version=1),
        ]
        before = ground.dump()
        for call in calls:
            for target in (ground.table, "m.c.one.t", tables.load("m.c.one.t")):
                with pytest.raises(ms.VersionConflict) as caught:
                    call(target)
                assert (caught.value.path, caught.value.expected, caught.value.found) == ("m.c.one.t", 1, 2)
        assert ground.dump() == before
        tables.drop("m.c.one.t", expected_version=2)
        tables.create("m.c.one.t")
        with pytest.raises(ms.EntityNotFound):
            tables.alter(ground.table, ms.SetComment("x"), expected_version=1)

    def test_expected_version_meets_another_change(self, ground: Ground) -> None:
        tables = ground.store.tables
        first = interrupted(ground.store, lambda: tables.alter("m.c.one.t", ms.SetComment("first")))
        with first, pytest.raises(ms.VersionConflict):
            tables.alter(ground.table, ms.SetComment("second"), expected_version=1)
        assert tables.load(ground.table).comment == "first"

    def test_expected_property(self, ground: Ground) -> None:
        tables = ground.store.tables
        tables.alter(ground.table, ms.SetProperty("at", "1", expected=None))
        tables.alter(ground.table, ms.SetProperty("at", "2", expected="1"))
        with pytest.raises(ms.VersionConflict) as caught:
            tables.alter(ground.table, ms.SetProperty("at", "3", expected="1"))
        assert (caught.value.expected, caught.value.found) == ("1", "2")

    def test_who_and_when(self, ground: Ground) -> None:
        store = ground.store
        made = store.tables.create("m.c.two.t", principal="alice")
        assert (made.created_by, made.modified_by, made.created_at) == ("alice", "alice", made.modified_at)
        after = store.tables.alter(made, ms.SetComment("x"), principal="bob")
        assert (after.created_by, after.modified_by, after.created_at) == ("alice", "bob", made.created_at)
        assert after.modified_at > made.modified_at
        assert after.modified_at.utcoffset() is not None
        assert store.tables.alter(made, ms.SetComment("y")).modified_by == "tester"
        assert store.tables.load(made) == store.tables.load("m.c.two.t")
        assert [v.principal for v in store.tables.history(made)] == ["alice", "bob", "tester"]
        assert [step.principal for step in ground.backend.history(made.id, 1, 1)] == ["bob"]
        assert store.tables.rename(made, "u", principal="eve").modified_by == "eve"
        for bad in ("", "a\x00", 7):
            with pytest.raises(ms.InvalidArgument):
                store.tables.drop(made, principal=bad)  # type: ignore[arg-type]

    def test_wrong_change_or_kind(self, ground: Ground) -> None:
        with pytest.raises(ms.InvalidArgument):
            ground.store.schemas.alter(ground.one, ms.SetLocation("x"))
        with pytest.raises(ms.InvalidArgument):
            ground.store.schemas.alter(ground.table, ms.SetComment("x"))
