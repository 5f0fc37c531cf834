"""What every store promises of transactions: what was read is validated, and nothing else."""

# ruff: noqa: PT012  (what raises is the end of the block)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.ground import Ground

pytestmark = pytest.mark.one_in(3)


def comment(text: str) -> ms.SetComment:
    return ms.SetComment(text)


Step = Callable[[Store], object]

READS: dict[str, tuple[Callable[[Any], object], Step]] = {
    "an entity that is altered": (
        lambda tx: tx.tables.load("m.c.one.t"),
        lambda s: s.tables.alter("m.c.one.t", comment("x")),
    ),
    "an entity that is dropped": (lambda tx: tx.tables.load("m.c.one.t"), lambda s: s.tables.drop("m.c.one.t")),
    "a path that is renamed": (lambda tx: tx.tables.load("m.c.one.t"), lambda s: s.schemas.rename("m.c.one", "x")),
    "an ancestor that is moved away": (
        lambda tx: tx.tables.load("m.c.one.t"),
        lambda s: s.schemas.rename("m.c.one", "m.c.two.x"),
    ),
    "a name that is taken": (lambda tx: tx.tables.exists("m.c.one.new"), lambda s: s.tables.create("m.c.one.new")),
    "a name below what is not there": (
        lambda tx: tx.tables.exists("m.c.new.t"),
        lambda s: s.tables.create("m.c.new.t", parents=True),
    ),
    "a listing with one more": (lambda tx: list(tx.tables.names("m.c.one")), lambda s: s.tables.create("m.c.one.new")),
    "a listing with one less": (lambda tx: list(tx.tables.list("m.c.one")), lambda s: s.tables.drop("m.c.one.t")),
    "an empty listing": (lambda tx: list(tx.tables.names("m.c.two")), lambda s: s.tables.create("m.c.two.new")),
    "a listing one of which is altered": (
        lambda tx: list(tx.tables.list("m.c.one")),
        lambda s: s.tables.alter("m.c.one.t", comment("x")),
    ),
    "a listing of metalakes": (lambda tx: list(tx.metalakes.names()), lambda s: s.metalakes.create("n")),
    "one of many": (
        lambda tx: tx.tables.load_many(["m.c.one.t", "m.c.two.t"]),
        lambda s: s.tables.create("m.c.two.t"),
    ),
    "an owned row": (
        lambda tx: tx.partitions.load("m.c.one.t", "p"),
        lambda s: s.partitions.drop("m.c.one.t", "p"),
    ),
    "an owned row that is not there": (
        lambda tx: tx.partitions.exists("m.c.one.t", "q"),
        lambda s: s.partitions.create("m.c.one.t", "q", values={}),
    ),
    "a listing of owned rows": (
        lambda tx: list(tx.partitions.list("m.c.one.t")),
        lambda s: s.partitions.create("m.c.one.t", "q", values={}),
    ),
    "a listing of what was dropped": (
        lambda tx: list(tx.tables.dropped("m.c.one")),
        lambda s: s.tables.drop("m.c.one.t"),
    ),
    "a drop of nothing": (lambda tx: tx.tables.drop("m.c.two.t"), lambda s: s.tables.create("m.c.two.t")),
    "an alter that changes nothing": (
        lambda tx: tx.tables.alter("m.c.one.t", ms.SetComment(None)),
        lambda s: s.tables.alter("m.c.one.t", comment("x")),
    ),
}


def recreate(ground: Ground) -> None:
    """Let another partition take the place of the one that is there, at the same version."""
    ground.store.partitions.drop("m.c.one.t", "p")
    ground.store.partitions.create("m.c.one.t", "p", values={"other": "row"})


def drop_again(ground: Ground) -> None:
    """Drop another schema of the name that was dropped already."""
    ground.store.schemas.drop(ground.store.schemas.create("m.c.old"))


Read = Callable[[Any, Ground], object]

CAUGHT: dict[str, tuple[type[ms.MetastoreError], Read, Callable[[Ground], object]]] = {
    "a drop of what is not empty": (
        ms.NotEmpty,
        lambda tx, _: tx.schemas.drop("m.c.one"),
        lambda g: g.store.tables.drop("m.c.one.t"),
    ),
    "a purge of what is not empty": (
        ms.NotEmpty,
        lambda tx, g: tx.schemas.purge(g.one),
        lambda g: g.store.tables.rename("m.c.one.t", "m.c.two.t"),
    ),
    "a restore of what was never dropped": (
        ms.EntityNotFound,
        lambda tx, _: tx.schemas.restore("m.c.two.never"),
        lambda g: g.store.schemas.drop(g.store.schemas.create("m.c.two.never")),
    ),
    "a restore of a metalake that was never dropped": (
        ms.EntityNotFound,
        lambda tx, _: tx.metalakes.restore("never"),
        lambda g: g.store.metalakes.drop(g.store.metalakes.create("never")),
    ),
    "a restore of what is live": (
        ms.EntityNotFound,
        lambda tx, g: tx.tables.restore("m.c.one.t", id=g.table.id),
        lambda g: g.store.tables.drop("m.c.one.t"),
    ),
    "a restore to a name that is taken": (
        ms.EntityAlreadyExists,
        lambda tx, _: tx.schemas.restore("m.c.old", to="two"),
        lambda g: g.store.schemas.drop("m.c.two"),
    ),
    "a load of what was dropped": (
        ms.EntityNotFound,
        lambda tx, g: tx.schemas.load(g.old),
        lambda g: g.store.schemas.restore("m.c.old"),
    ),
    "a load of what is not there": (
        ms.EntityNotFound,
        lambda tx, _: tx.tables.load("m.c.two.t"),
        lambda g: g.store.tables.create("m.c.two.t"),
    ),
    "a version that is not there": (
        ms.EntityNotFound,
        lambda tx, g: tx.tables.load(g.table, version=2),
        lambda g: g.store.tables.alter("m.c.one.t", comment("x")),
    ),
    "a name that is taken": (
        ms.EntityAlreadyExists,
        lambda tx, _: tx.tables.create("m.c.one.t"),
        lambda g: g.store.tables.drop("m.c.one.t"),
    ),
    "a name that is taken, of many": (
        ms.EntityAlreadyExists,
        lambda tx, g: tx.tables.create_many(g.one, [{"name": "u"}, {"name": "t"}]),
        lambda g: g.store.tables.drop("m.c.one.t"),
    ),
    "a rename to a name that is taken": (
        ms.EntityAlreadyExists,
        lambda tx, _: tx.schemas.rename("m.c.one", "two"),
        lambda g: g.store.schemas.drop("m.c.two"),
    ),
    "a move below itself": (
        ms.InvalidArgument,
        lambda tx, g: tx.schemas.rename(g.one, "m.c.one.below"),
        lambda g: g.store.schemas.rename("m.c.one", "uno"),
    ),
    "another version than is expected": (
        ms.VersionConflict,
        lambda tx, _: tx.tables.alter("m.c.one.t", comment("x"), expected_version=2),
        lambda g: g.store.tables.alter("m.c.one.t", comment("y")),
    ),
    "another property than is expected": (
        ms.VersionConflict,
        lambda tx, g: tx.tables.alter(g.table, ms.SetProperty("k", "2", expected="1")),
        lambda g: g.store.tables.alter("m.c.one.t", ms.SetProperty("k", "1")),
    ),
    "a catalog that is disabled": (
        ms.NotInUse,
        lambda tx, _: tx.schemas.create("m.off.new"),
        lambda g: g.store.catalogs.enable("m.off"),
    ),
    "an owned row that is there": (
        ms.EntityAlreadyExists,
        lambda tx, _: tx.partitions.create("m.c.one.t", "p", values={}),
        lambda g: g.store.partitions.drop("m.c.one.t", "p"),
    ),
    "an owned row that is not there": (
        ms.EntityNotFound,
        lambda tx, _: tx.partitions.load("m.c.one.t", "q"),
        lambda g: g.store.partitions.create("m.c.one.t", "q", values={}),
    ),
    "a model's version that is not there": (
        ms.EntityNotFound,
        lambda tx, _: tx.models.load_version("m.c.one.model", 1),
        lambda g: g.store.models.add_version("m.c.one.model", uris={"u": "s3://x"}),
    ),
    "an alias that is not there": (
        ms.EntityNotFound,
        lambda tx, _: tx.models.load_version("m.c.one.model", "best"),
        lambda g: g.store.models.add_version("m.c.one.model", uris={"u": "s3://x"}, aliases=["best"]),
    ),
}

WRITES: dict[str, tuple[Read, Callable[[Ground], object]]] = {
    "a restore of the newest": (lambda tx, _: tx.schemas.restore("m.c.old"), drop_again),
    "a drop of what is empty": (
        lambda tx, _: tx.schemas.drop("m.c.two"),
        lambda g: g.store.tables.create("m.c.two.t"),
    ),
    "an owned row that is written": (
        lambda tx, _: tx.partitions.put_many("m.c.one.t", [tx.partitions.row("p", {"mine": "1"}, {})]),
        recreate,
    ),
    "an owned row that is dropped": (lambda tx, _: tx.partitions.drop("m.c.one.t", "p"), recreate),
    "an owned row that is left, of two": (
        lambda tx, _: tx.partitions.put_many("m.c.one.t", [tx.partitions.row(n, {}, {}) for n in "pq"]),
        recreate,
    ),
}


class TestCaught:
    """An error that is caught is a read: what it said must still be so when the transaction commits."""

    @pytest.fixture
    def ground(self, ground: Ground) -> Ground:
        ground.store.catalogs.create("m.off", type="relational")
        ground.store.catalogs.disable("m.off")
        ground.store.models.create("m.c.one.model")
        ground.store.tables.create("m.c.one.other")
        ground.store.tables.drop("m.c.one.other")
        return ground

    @pytest.fixture(params=CAUGHT)
    def case(
        self, ground: Ground, request: pytest.FixtureRequest
    ) -> tuple[type[ms.MetastoreError], Read, Callable[[Ground], object]]:
        found = CAUGHT[request.param]
        if found[0] is ms.NotEmpty:
            ground.store.models.drop("m.c.one.model")
        return found

    @pytest.mark.one_in(3, on="postgres")
    def test_it_is_not_so_any_more(self, ground: Ground, case: Any) -> None:
        error, read, change = case
        with pytest.raises(ms.VersionConflict, match="was not applied"), ground.store.transaction() as tx:
            with pytest.raises(error):
                read(tx, ground)
            tx.metalakes.create("mine")
            change(ground)
            before = ground.dump()
        assert ground.dump() == before

    @pytest.mark.one_in(3, on="postgres")
    def test_it_is_still_so(self, ground: Ground, case: Any) -> None:
        error, read, _ = case
        with ground.store.transaction() as tx:
            with pytest.raises(error):
                read(tx, ground)
            tx.metalakes.create("mine")
            ground.store.metalakes.alter("m", comment("of no concern"))
        assert ground.store.metalakes.exists("mine")

    @pytest.mark.parametrize("name", WRITES)
    def test_what_a_write_rests_on(self, ground: Ground, name: str) -> None:
        write, change = WRITES[name]
        with pytest.raises(ms.VersionConflict), ground.store.transaction() as tx:
            write(tx, ground)
            change(ground)
            before = ground.dump()
        assert ground.dump() == before

    def test_an_error_that_rests_on_two_instants_is_not_raised(self, ground: Ground) -> None:
        """At each instant there was a table in one of the two schemas."""
        store, moved = ground.store, list[ms.Entity]()
        store.models.drop("m.c.one.model")

        def drop_both(tx: Any) -> None:
            tx.schemas.drop("m.c.two")
            if not moved:
                moved.append(store.tables.rename("m.c.one.t", "m.c.two.t"))
            tx.tables.load("m.c.one.t")

        with pytest.raises(ms.NotEmpty, match="two is not empty"):
            store.run(drop_both)


class TestValidation:
    @pytest.mark.one_in(3, on="postgres")
    @pytest.mark.parametrize("writes", [True, False])
    @pytest.mark.parametrize("name", READS)
    def test_what_was_read_has_changed(self, ground: Ground, name: str, writes: bool) -> None:
        read, change = READS[name]
        with pytest.raises(ms.VersionConflict), ground.store.transaction() as tx:
            read(tx)
            if writes:
                tx.schemas.create("m.c.mine")
            change(ground.store)
            before = ground.dump()
        assert ground.dump() == before
        with ground.store.transaction() as tx:
            ground.store.metalakes.create("unrelated")
            tx.schemas.create("m.c.mine")
        assert ground.store.schemas.exists("m.c.mine")

    @pytest.mark.one_in(3, on="postgres")
    @pytest.mark.parametrize("name", READS)
    def test_what_was_read_stays(self, ground: Ground, name: str) -> None:
        read, _ = READS[name]
        with ground.store.transaction() as tx:
            read(tx)
            tx.schemas.create("m.c.two.mine")
            ground.store.catalogs.alter("m.c", comment("of no concern"))
        assert ground.store.schemas.exists("m.c.two.mine")

    def test_write_skew(self, ground: Ground) -> None:
        """Two that each read both and write one: the second is refused."""
        for target in ("m.c.one", "m.c.two"):
            ground.store.schemas.alter(target, comment("on call"))

        def leave(tx: Any, who: str) -> None:
            on_call = [s for s in ("m.c.one", "m.c.two") if tx.schemas.load(s).comment == "on call"]
            if len(on_call) > 1:
                tx.schemas.alter(who, comment("off"))

        with pytest.raises(ms.VersionConflict), ground.store.transaction() as first:
            leave(first, "m.c.one")
            with ground.store.transaction() as second:
                leave(second, "m.c.two")
        assert [ground.store.schemas.load(s).comment for s in ("m.c.one", "m.c.two")] == ["on call", "off"]

    def test_siblings_do_not_conflict(self, ground: Ground) -> None:
        """Invariant 5, in transactions too: a write is not a listing of its parent."""
        with ground.store.transaction() as tx:
            tx.tables.alter("m.c.one.t", comment("mine"))
            ground.store.tables.create("m.c.one.theirs")
            ground.store.schemas.alter("m.c.one", comment("theirs"))
        assert ground.store.tables.load("m.c.one.t").comment == "mine"

    def test_disabled_meanwhile(self, ground: Ground) -> None:
        with pytest.raises(ms.VersionConflict), ground.store.transaction() as tx:
            tx.tables.alter("m.c.one.t", comment("x"))
            ground.store.catalogs.disable("m.c")
        with pytest.raises(ms.NotInUse):
            ground.store.run(lambda tx: tx.tables.alter("m.c.one.t", comment("x")))
