"""What every store promises of transactions: what was read is validated, and nothing else."""

# ruff: noqa: PT012  (what raises is the end of the block)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metastore as ms
from metastore import Store
from tests.contract.ground import Ground


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
    "a drop of nothing": (lambda tx: tx.tables.drop("m.c.two.t"), lambda s: s.tables.create("m.c.two.t")),
    "an alter that changes nothing": (
        lambda tx: tx.tables.alter("m.c.one.t", ms.SetComment(None)),
        lambda s: s.tables.alter("m.c.one.t", comment("x")),
    ),
}


class TestValidation:
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
        """Invariant 5, in transactions too: a write is no listing of its parent."""
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
