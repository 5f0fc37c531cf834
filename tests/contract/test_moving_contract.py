"""What every manager promises: renaming, moving, dropping, restoring, purging, disabling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

import metastore as ms
from metastore.port.backend import Backend
from metastore.port.records import Lookup, Resolved
from tests.contract.ground import Ground, interrupted

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite


@pytest.fixture
def deep(ground: Ground) -> Ground:
    """``m.c.one.in.deep.t`` and a second catalog ``m.d``, beside the ground."""
    ground.store.tables.create("m.c.one.in.deep.t", parents=True)
    ground.store.catalogs.create("m.d", type="relational")
    return ground


class TestRename:
    def test_rename(self, ground: Ground) -> None:
        renamed = ground.store.schemas.rename("m.c.one", "uno")
        assert (renamed.path, renamed.version, renamed.scope_version, renamed.id) == ("m.c.uno", 2, 2, ground.one.id)
        assert renamed == ground.store.schemas.load(ground.one)
        assert ground.store.tables.load(ground.table).path == "m.c.uno.t"
        assert ground.store.tables.load("m.c.uno.t").version == 1, "one row changes, whatever lies below"
        assert not ground.store.tables.exists("m.c.one.t")
        ground.store.schemas.create("m.c.one")

    def test_taken(self, ground: Ground) -> None:
        ground.store.schemas.create("m.c.two.one")
        before = ground.dump()
        for target in ("m.c.one", ground.one):
            for to in ("two", "m.c.two", ("two",), "m.c.two.one"):
                with pytest.raises(ms.EntityAlreadyExists):
                    ground.store.schemas.rename(target, to)
        assert ground.dump() == before

    def test_own_name_writes_nothing(self, ground: Ground) -> None:
        before = ground.dump()
        assert ground.store.schemas.rename("m.c.one", "one") == ground.one
        assert ground.store.schemas.rename(ground.one, "m.c.one") == ground.one
        assert ground.dump() == before

    def test_name_taken_at_that_moment(self, ground: Ground) -> None:
        first = interrupted(ground.store, lambda: ground.store.schemas.create("m.c.uno"))
        with first, pytest.raises(ms.EntityAlreadyExists):
            ground.store.schemas.rename(ground.one, "uno")
        assert ground.store.schemas.exists("m.c.one")

    def test_while_the_parent_is_renamed(self, ground: Ground) -> None:
        """By path: what named m.c.one does not commit once it has another name. By entity: it is that id."""
        move = [
            lambda: ground.store.schemas.rename("m.c.one", "uno"),
            lambda: ground.store.schemas.rename("m.c.uno", "one"),
        ]
        with interrupted(ground.store, move[0]), pytest.raises(ms.EntityNotFound):
            ground.store.tables.rename("m.c.one.t", "u")
        with interrupted(ground.store, move[1]):
            assert ground.store.tables.rename(ground.table, "u").path == "m.c.one.u"


class TestMove:
    def test_to_another_parent(self, deep: Ground) -> None:
        moved = deep.store.schemas.rename("m.c.one", "m.d.uno")
        assert (moved.path, moved.id, moved.version, moved.scope_version) == ("m.d.uno", deep.one.id, 2, 2)
        assert [t.path for t in deep.store.tables.list("m.d.uno.in.deep")] == ["m.d.uno.in.deep.t"]
        assert list(deep.store.schemas.names("m.c")) == ["two"]
        table = deep.store.tables.rename("m.d.uno.in.deep.t", "m.c.two.t")
        assert table.path == "m.c.two.t"
        assert deep.store.schemas.rename(moved, "m.c.two.nested").path == "m.c.two.nested"
        assert deep.store.schemas.exists("m.c.two.nested.in.deep")

    def test_below_itself(self, deep: Ground) -> None:
        before = deep.dump()
        for to in ("m.c.one.x", "m.c.one.in.x", "m.c.one.in.deep.x", "m.c.one.in"):
            for target in ("m.c.one", deep.one):
                with pytest.raises(ms.InvalidArgument):
                    deep.store.schemas.rename(target, to)
        assert deep.dump() == before
        assert deep.store.schemas.rename("m.c.one.in.deep", "m.c.one.x").path == "m.c.one.x"

    def test_two_that_cross(self, deep: Ground) -> None:
        first = interrupted(deep.store, lambda: deep.store.schemas.rename("m.c.two", "m.c.one.two"))
        with first, pytest.raises((ms.InvalidArgument, ms.EntityNotFound)):
            deep.store.schemas.rename("m.c.one", "m.c.two.one")
        assert deep.store.schemas.exists("m.c.one.two")

    def test_missing_parent_or_wrong_depth(self, ground: Ground) -> None:
        for to, error in (
            ("m.c.none.t", ms.EntityNotFound),
            ("x.c.one.t", ms.EntityNotFound),
            ("m.t", ms.InvalidArgument),
        ):
            with pytest.raises(error):
                ground.store.tables.rename(ground.table, to)
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.rename("m.c.one.none", "x")

    def test_between_catalogs_that_compare_differently(self, ground: Ground) -> None:
        """A table's own name can be folded again; what is below a schema can not."""
        ground.store.catalogs.create("m.f", type="relational", fold_case=True)
        ground.store.schemas.create("m.f.s")
        before = ground.dump()
        with pytest.raises(ms.InvalidArgument):
            ground.store.schemas.rename("m.c.one", "m.f.one")
        assert ground.dump() == before
        moved = ground.store.tables.rename("m.c.one.t", "m.f.S.T")
        assert moved.path == "m.f.s.T"
        assert ground.store.tables.load("m.f.s.t") == moved
        ground.store.tables.rename(moved, "m.c.one.Up")
        assert not ground.store.tables.exists("m.c.one.up")

    def test_a_catalog_to_another_metalake(self, ground: Ground) -> None:
        ground.store.metalakes.create("n")
        folding = ground.store.catalogs.create("m.f", type="relational", fold_case=True)
        ground.store.schemas.create("m.f.s")
        assert ground.store.catalogs.rename("m.c", "n.c").path == "n.c"
        assert ground.store.tables.exists("n.c.one.t")
        assert ground.store.catalogs.rename(folding, "n.f").path == "n.f"
        assert ground.store.schemas.exists("n.f.S")
        assert ground.store.metalakes.rename("n", "o").path == "o"


class TestDrop:
    def test_not_empty(self, deep: Ground) -> None:
        """Field case 23, whatever the kind of the child."""
        deep.store.filesets.create("m.c.two.f")
        before = deep.dump()
        drops: list[Callable[[], object]] = [
            lambda: deep.store.metalakes.drop("m"),
            lambda: deep.store.catalogs.drop(deep.catalog),
            lambda: deep.store.schemas.drop("m.c.one"),
            lambda: deep.store.schemas.drop(deep.two),
            lambda: deep.store.schemas.purge("m.c.one.in"),
        ]
        for drop in drops:
            with pytest.raises(ms.NotEmpty):
                drop()
        assert deep.dump() == before

    def test_cascade(self, deep: Ground) -> None:
        """Field case 31: one event, of the root of what is dropped."""
        count = len(list(deep.store.changes()))
        assert deep.store.catalogs.drop("m.c", cascade=True)
        assert [(c.action, c.path_before, c.path_after) for c in list(deep.store.changes())[count:]] == [
            ("drop", "m.c", None)
        ]
        for gone in (deep.one, deep.two):
            with pytest.raises(ms.EntityNotFound):
                deep.store.schemas.load(gone)
            assert not deep.store.schemas.drop(gone)
        with pytest.raises(ms.EntityNotFound):
            deep.store.tables.alter(deep.table, ms.SetComment("x"))
        assert deep.store.catalogs.restore("m.c").id == deep.catalog.id
        assert deep.store.tables.load(deep.table) == deep.table

    def test_again_after_a_refusal(self, ground: Ground) -> None:
        """A refused commit leaves nothing behind, in the connection neither."""
        many = [ground.store.schemas.create(f"m.c.n{n}") for n in range(12)]
        for n in range(0, 12, 2):
            assert ground.store.schemas.drop(many[n])
            with pytest.raises(ms.NotEmpty):
                ground.store.schemas.drop(ground.one)
            assert ground.store.schemas.drop(many[n + 1])

    def test_nothing_there(self, ground: Ground) -> None:
        """Field case 20: also below a missing parent."""
        before = ground.dump()
        for target in ("m.c.none", "m.none.x", "none.c.x", "m.c.old", ground.old):
            assert ground.store.schemas.drop(target) is False
        assert ground.store.schemas.purge("m.c.none") is False
        assert ground.dump() == before

    def test_child_made_at_that_moment(self, ground: Ground) -> None:
        with interrupted(ground.store, lambda: ground.store.tables.create("m.c.two.t")), pytest.raises(ms.NotEmpty):
            ground.store.schemas.drop(ground.two)

    def test_another_under_the_same_name(self, ground: Ground) -> None:
        """Field case 5: the old holder's change fails, the new entity is untouched."""
        assert ground.store.tables.drop(ground.table)
        new = ground.store.tables.create("m.c.one.t")
        assert new.id != ground.table.id
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.alter(ground.table, ms.SetComment("x"))
        with pytest.raises(ms.EntityNotFound):
            ground.store.tables.rename(ground.table, "u")
        assert ground.store.tables.drop(ground.table) is False
        assert ground.store.tables.load("m.c.one.t") == new


class Between:
    """A backend that does something before its second path is resolved."""

    def __init__(self, backend: Backend, action: Callable[[], object]) -> None:
        self._backend = backend
        self._action = action
        self._resolved = 0

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        self._resolved += 1
        if self._resolved == 2:
            self._action()
        return self._backend.resolve(lookups)

    def in_one_go(self, work: Callable[[], Any], *, for_many: bool = False) -> Any:
        """Work in the caller's task: what the test does in between may call the store, whose only thread is free."""
        return work()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def test_a_common_ancestor_that_moves_between_the_two_reads_of_a_move(ground: Ground) -> None:
    """What the feed says of a move was true at its commit: the old path too, of an ancestor that moved meanwhile."""
    store, session = ground.store, ground.store._session
    for path in ("m.c.p.both", "m.c.q"):
        store.schemas.create(path, parents=True, if_exists="return")
    store.tables.create("m.c.p.both.t")
    backend = session.backend

    def move_the_ancestor() -> None:
        session.backend = backend
        store.schemas.rename("m.c.p.both", "m.c.q.both")

    session.backend = cast(Backend, Between(backend, move_the_ancestor))
    with pytest.raises(ms.EntityNotFound):
        store.tables.rename("m.c.p.both.t", "m.c.q.both.u")
    session.backend = backend
    assert store.tables.exists("m.c.q.both.t")
    assert store.verify() == []
