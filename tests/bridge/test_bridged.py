"""Bridged sections: exclusive in the shape of the tree, fenced, and validated."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import metastore as ms
from metastore import bridge
from metastore.bridge.exclusive import Exclusive
from tests.concurrency.checks import seed
from tests.concurrency.raw import rows

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

ms_path = str | tuple[str, ...]
TABLE = "lake.cat.s.t"


@pytest.fixture
def two(url: str) -> Iterator[tuple[ms.Store, ms.Store]]:
    """Give two servers: stores of their own on one database."""
    seed(url)
    with ms.open(url) as one, ms.open(url) as other:
        one.tables.create(TABLE)
        yield one, other


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        (TABLE, TABLE),
        ("lake.cat.s", TABLE),
        (TABLE, "lake.cat"),
        ((), TABLE),
        (TABLE, ()),
        ("lake.cat.s", ("LAKE", "Cat", "S")),
    ],
)
def test_a_section_keeps_others_out(two: tuple[ms.Store, ms.Store], held: ms_path, asked: ms_path) -> None:
    one, other = (bridge.Bridge(store, "bridged") for store in two)
    with (
        one.tree_lock(held, "write"),
        pytest.raises(ms.DeadlineExceeded),
        other.tree_lock(asked, "write", timeout=0.2),
    ):
        pytest.fail("both are inside")
    with other.tree_lock(asked, "write"):
        pass


@pytest.mark.parametrize("asked", ["lake.cat.s.u", "lake.cat.sister", "lake.cat.s.t2"])
def test_siblings_go_on(two: tuple[ms.Store, ms.Store], asked: str) -> None:
    one, other = (bridge.Bridge(store, "bridged") for store in two)
    with one.tree_lock(TABLE, "write"), other.tree_lock(asked, "write", timeout=1.0) as section:
        assert section.token is not None


def test_sections_nest(two: tuple[ms.Store, ms.Store]) -> None:
    one = bridge.Bridge(two[0], "bridged")
    with one.tree_lock("lake.cat.s", "write") as outer, one.tree_lock(TABLE, "write") as inner:
        two[0].tables.alter(TABLE, ms.SetComment("mine"), lease=inner.lease)
        two[0].tables.alter(TABLE, ms.SetComment("mine again"), lease=outer.lease)
        with one.tree_lock("lake.cat.s", "read"):
            two[0].tables.alter(TABLE, ms.SetComment("while I read"), lease=inner.lease)
    assert list(two[0].leases.list()) == []


def paused(store: ms.Store, url: str) -> ms.Lease:
    """Hold what a section holds, as a process that was paused until its time was over: by the database's clock."""
    lease = store.leases.acquire(f"tree:{TABLE}", ttl=30.0)
    assert rows(url, "UPDATE lease SET expires_at = 0 RETURNING token") == [(lease.token,)]
    return lease


@pytest.mark.parametrize("taken", [TABLE, "lake.cat.s"])
def test_a_section_that_was_taken_over_writes_nothing(two: tuple[ms.Store, ms.Store], url: str, taken: str) -> None:
    """A holder that lost its lease, as after a pause: the next one goes on, and its late commit is refused."""
    one, other = two
    sections = bridge.Bridge(one, "bridged", ttl=5.0)
    with ExitStack() as held:
        lease = paused(one, url)
        with bridge.Bridge(other, "bridged", ttl=5.0).tree_lock(taken, "write", timeout=20.0) as section:
            other.tables.alter(TABLE, ms.SetProperty("by", "the next"), lease=section.lease)
        with pytest.raises(ms.LeaseLost):
            one.tables.alter(TABLE, ms.SetProperty("by", "the paused"), lease=lease)
        held.close()
    assert one.tables.load(TABLE).properties == {"by": "the next"}
    with sections.tree_lock(TABLE, "write") as section:
        one.tables.alter(TABLE, ms.SetProperty("by", "a new one"), lease=section.lease)


def test_without_fencing_the_paused_one_overwrites(two: tuple[ms.Store, ms.Store], url: str) -> None:
    """The negative control: the same without the lease in the commit."""
    one, other = two
    paused(one, url)
    with bridge.Bridge(other, "bridged", ttl=5.0).tree_lock(TABLE, "write", timeout=20.0) as section:
        other.tables.alter(TABLE, ms.SetProperty("by", "the next"), lease=section.lease)
    one.tables.alter(TABLE, ms.SetProperty("by", "the paused"))
    assert one.tables.load(TABLE).properties == {"by": "the paused"}


def test_those_below_are_fenced_only_by_a_take_over(
    two: tuple[ms.Store, ms.Store], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: a section above that merely waits for the time of the one below lets it write later."""
    one, other = two
    monkeypatch.setattr(Exclusive, "_fenced", lambda *_: True)
    lease = paused(one, url)
    with bridge.Bridge(other, "bridged", ttl=5.0).tree_lock("lake.cat.s", "write", timeout=20.0):
        held = next(holder for holder in other.leases.list() if holder.name == f"tree:{TABLE}")
        assert (held.expired, held.token) == (True, lease.token), "its late commit would be accepted"


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.tables.alter(TABLE, ms.SetComment("new")),
        lambda store: store.tables.create("lake.cat.s.u"),
        lambda store: store.tables.drop(TABLE),
        lambda store: store.schemas.rename("lake.cat.s", "r"),
        lambda store: store.catalogs.rename("lake.cat", "other"),
    ],
)
def test_a_read_that_something_changed_is_refused(two: tuple[ms.Store, ms.Store], change: object) -> None:
    one, other = two
    assert callable(change)
    with (
        pytest.raises(ms.VersionConflict, match="committed at or below it during the read"),
        bridge.Bridge(one, "bridged").tree_lock("lake.cat.s", "read"),
    ):
        change(other)


def test_a_read_is_not_hurt_by_others(two: tuple[ms.Store, ms.Store]) -> None:
    one, other = two
    other.schemas.create("lake.cat.r")
    with bridge.Bridge(one, "bridged").tree_lock("lake.cat.s", "read"):
        other.tables.create("lake.cat.r.t")
        other.catalogs.alter("lake.cat", ms.SetComment("of a place above"))
        other.schemas.drop("lake.cat.r", cascade=True)


def test_a_function_that_reads_runs_again(two: tuple[ms.Store, ms.Store]) -> None:
    one, other = two
    runs: list[object] = []

    def read(_: bridge.Section) -> list[str]:
        found = list(one.tables.names("lake.cat.s"))
        if not runs:
            other.tables.create("lake.cat.s.late")
        runs.append(found)
        return found

    assert bridge.Bridge(one, "bridged").do_with_tree_lock("lake.cat.s", "read", read) == ["late", "t"]
    assert runs == [["t"], ["late", "t"]]


@pytest.mark.parametrize("inner", [TABLE, "lake.cat.tags"])
def test_what_a_read_writes_itself_does_not_count(two: tuple[ms.Store, ms.Store], inner: str) -> None:
    """As in the tree: a call that reads a path locks another one below or beside it, and writes."""
    one, other = two
    tree, runs = bridge.Bridge(one, "bridged"), list[int]()

    def write(_: bridge.Section) -> None:
        runs.append(len(runs))
        with tree.tree_lock(inner, "write") as section:
            one.tables.alter(TABLE, ms.SetProperty("runs", str(len(runs))), lease=section.lease)

    tree.do_with_tree_lock("lake.cat.s", "read", write, timeout=5.0)
    assert (runs, one.tables.load(TABLE).version) == ([0], 2)
    with tree.tree_lock("lake.cat", "write") as above, tree.tree_lock("lake.cat.s", "read"):
        one.tables.alter(TABLE, ms.SetComment("in a section above"), lease=above.lease)
    with pytest.raises(ms.VersionConflict, match="1 changes committed"), tree.tree_lock("lake.cat.s", "read"):
        write_beside(tree, one, other)


def write_beside(tree: bridge.Bridge, one: ms.Store, other: ms.Store) -> None:
    with tree.tree_lock("lake.cat.s.u", "write") as section:
        one.tables.create("lake.cat.s.u", lease=section.lease)
        other.tables.alter(TABLE, ms.SetComment("of another"))


def test_an_error_of_a_block_that_read_two_instants_is_not_the_callers(two: tuple[ms.Store, ms.Store]) -> None:
    one, other = two
    runs: list[object] = []

    def read(_: bridge.Section) -> ms.Table:
        (name,) = one.tables.names("lake.cat.s")
        if not runs:
            other.tables.rename(f"lake.cat.s.{name}", "renamed")
        runs.append(name)
        return one.tables.load(f"lake.cat.s.{name}")

    tree = bridge.Bridge(one, "bridged")
    assert tree.do_with_tree_lock("lake.cat.s", "read", read).name == "renamed"
    assert runs == ["t", "renamed"]
    with pytest.raises(ZeroDivisionError), tree.tree_lock("lake.cat.s", "read"):
        raise ZeroDivisionError


def test_many_stores_and_levels_are_never_inside_together(url: str) -> None:
    """Six stores enter sections at three levels, at random; no two that exclude each other overlap."""
    seed(url)
    paths = [("lake", "cat"), ("lake", "cat", "s"), ("lake", "cat", "s", "t"), ("lake", "cat", "s", "u")]
    inside: list[tuple[str, ...]] = []
    overlaps: list[object] = []
    guard = threading.Lock()

    def client(number: int) -> None:
        with ms.open(url) as store:
            sections = bridge.Bridge(store, "bridged", ttl=20.0)
            for n in range(6):
                names = paths[(number * 7 + n * 3) % len(paths)]
                with sections.tree_lock(names, "write", timeout=60.0):
                    with guard:
                        both = [o for o in inside if o[: len(names)] == names or names[: len(o)] == o]
                        overlaps.extend((names, one) for one in both)
                        inside.append(names)
                    time.sleep(0.001)
                    with guard:
                        inside.remove(names)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == []


def test_wrong_arguments(store: ms.Store) -> None:
    with pytest.raises(ms.InvalidArgument, match="needs a store"):
        bridge.Bridge(None, "shadow")
    with pytest.raises(ms.InvalidArgument, match="a stage is one of lock, shadow, bridged"):
        bridge.Bridge(store, "other")  # type: ignore[arg-type]
    tree = bridge.Bridge(store)
    with pytest.raises(ms.InvalidArgument, match="for 'read' or for 'write'"), tree.tree_lock("a", "both"):  # type: ignore[arg-type]
        pass
    with pytest.raises(ms.InvalidArgument, match="positive number of seconds"), tree.tree_lock("a", "read", timeout=0):
        pass


def test_a_path_too_long_for_a_lease(store: ms.Store) -> None:
    path = tuple(f"{n}" * 100 for n in range(4))
    with bridge.Bridge(store, "bridged").tree_lock(path, "write"):
        assert [len(holder.name) for holder in store.leases.list()] == [len("tree:") + 201]
