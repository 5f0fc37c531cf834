"""What every store promises where freezes meet others: in turn, nested, and after their time."""

# ruff: noqa: PT012  (what raises is the end of the block)

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic

import pytest

import metastore as ms
from metastore import Store
from tests.contract.ground import Ground
from tests.contract.intents import announce, eventually, mark, unmarked

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

ONE, T = "m.c.one", "m.c.one.t"
X = ms.SetComment("x")


@pytest.fixture
def other(ground: Ground, url: str) -> Iterator[Store]:
    """Another store on the same database; in memory it is the same one."""
    if url.startswith("memory"):
        yield ground.store
        return
    with ms.open(url, principal="other") as opened:
        yield opened


class TestNested:
    def test_nested(self, ground: Ground, other: Store) -> None:
        store = ground.store
        store.tables.create("m.c.one.in.t", parents=True)
        with store.schemas.exclusive("m.c.one.in") as tx:
            tx.tables.alter("m.c.one.in.t", X)
            with pytest.raises(ms.ScopeFrozen) as caught:
                other.tables.create("m.c.one.in.new", deadline=1.0)
            assert caught.value.operation == tx._id
            other.tables.create("m.c.one.beside")
        assert other.tables.load("m.c.one.in.t").comment == "x"
        with store.schemas.exclusive(ONE) as tx:
            for path in ("m.c.one.in.new", "m.c.one.new"):
                with pytest.raises(ms.ScopeFrozen) as caught:
                    other.tables.create(path, deadline=1.0)
                assert caught.value.operation == tx._id
            with pytest.raises(ms.ScopeFrozen) as caught:
                other.schemas.exclusive("m.c.one.in", timeout=1.0).__enter__()
            assert caught.value.operation == tx._id
            tx.schemas.drop("m.c.one.in", cascade=True)
        assert not other.schemas.exists("m.c.one.in")

    def test_a_freeze_above(self, ground: Ground, other: Store) -> None:
        """It is an exclusive operation on an ancestor."""
        ground.store.schemas.create("m.c.one.in")
        with pytest.raises(ms.VersionConflict) as caught, ground.store.schemas.exclusive("m.c.one.in") as tx:
            tx.tables.create("m.c.one.in.t")
            with other.schemas.exclusive(ONE):
                pass
        assert caught.value.path == ONE
        assert not other.tables.exists("m.c.one.in.t")

    def test_a_rival_below(self, ground: Ground, other: Store) -> None:
        """Who waits for the scope above has no mark of its own meanwhile: the holder writes all that is below."""
        ground.store.tables.create("m.c.one.in.t", parents=True)
        inner = ground.store.schemas.load("m.c.one.in")
        waiting = Event()

        def rival() -> None:
            waiting.set()
            with other.schemas.exclusive("m.c.one.in", timeout=30.0) as tx:
                tx.tables.alter("m.c.one.in.t", ms.SetProperty("rival", "1"))

        with ThreadPoolExecutor(1) as pool:
            with ground.store.schemas.exclusive(ONE) as tx:
                tx.tables.create("m.c.one.in.new")
                tx.tables.alter("m.c.one.in.t", X)
                second = pool.submit(rival)
                assert waiting.wait(10)
                ends = monotonic() + 0.2  # it may look before it marks
                eventually(lambda: ground.backend.marked([inner.id]) or monotonic() > ends)
                began = monotonic()
            assert monotonic() - began < 15  # half of what it would take if the rival were waited for
            second.result(30)
        assert other.tables.exists("m.c.one.in.new")
        found = other.tables.load("m.c.one.in.t")
        assert (found.comment, dict(found.properties)) == ("x", {"rival": "1"})


class TestOthers:
    def test_a_mark_in_the_way(self, ground: Ground) -> None:
        """It waits for its time; an expired one is cleared."""
        living = mark(ground, ground.one)
        with pytest.raises(ms.ScopeFrozen) as caught, ground.store.schemas.exclusive(ONE, timeout=1.0):
            raise AssertionError
        assert caught.value.operation == living
        assert [m.mark for m in ground.backend.marked([ground.one.id])] == [living]
        mark(ground, ground.two, 0.02)
        with ground.store.schemas.exclusive("m.c.two", timeout=5.0) as tx:
            tx.tables.create("m.c.two.new")
        assert ground.store.schemas.load("m.c.two").scope_version == 3, "cleared, frozen"

    def test_two_in_turn(self, ground: Ground, other: Store) -> None:
        entered, begun, leave = Event(), Event(), Event()

        def first() -> None:
            with ground.store.schemas.exclusive(ONE) as tx:
                tx.tables.alter(T, ms.SetProperty("first", "1"))
                entered.set()
                assert leave.wait(10)

        def second() -> str | None:
            begun.set()
            with other.schemas.exclusive(ONE, timeout=10.0) as tx:
                seen = tx.tables.load(T)
                tx.tables.alter(seen, ms.SetProperty("second", "2"))
                return seen.properties.get("first")

        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(first)
            assert entered.wait(10)
            two = pool.submit(second)
            assert begun.wait(10)
            assert not two.done()
            leave.set()
            one.result(10)
            assert two.result(10) == "1", "the second sees what the first did"
        assert other.tables.load(T).properties == {"first": "1", "second": "2"}
        assert other.schemas.load(ONE).scope_version == 3

    def test_past_its_ttl(self, ground: Ground, other: Store) -> None:
        """Nobody came: it is applied. Somebody came: it is not."""
        for come in (False, True):
            block = ground.store.schemas.exclusive(ONE, ttl=0.02)
            tx = block.__enter__()
            tx.tables.create(f"m.c.one.n{come}")
            eventually(lambda: ground.backend.marked([ground.one.id])[0].seconds < 0)
            if come:
                other.tables.alter(T, X)
                with pytest.raises(ms.VersionConflict):
                    block.__exit__(None, None, None)
            else:
                block.__exit__(None, None, None)
            assert unmarked(ground, ground.one)
        assert list(other.tables.names(ONE)) == ["nFalse", "t"]

    def test_intents_wait_for_the_end(self, ground: Ground, other: Store) -> None:
        """What is announced on a table meanwhile is applied after the block, on what the block left."""
        with ground.store.schemas.exclusive(ONE) as tx:
            tx.tables.alter(T, ms.SetProperty("k", "v"))
            own = announce(ground, ground.table, "announced")
        assert other.outcome(own).state == "pending"
        found = other.tables.alter(T, ms.SetProperty("l", "w"))
        assert (found.version, found.comment, dict(found.properties)) == (4, "announced", {"k": "v", "l": "w"})
