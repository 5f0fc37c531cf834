"""The lock tree of one process, and what its shadow records."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import metastore as ms
from metastore import bridge
from metastore.bridge.shadow import Recorder
from metastore.bridge.tree import Tree
from metastore.clock import SYSTEM
from tests.concurrency.test_forks import ended_well, forked

SHORT, LONG = 0.05, 30.0
HEAD = ["Conflicts", "Retries", "Saved s"]


def _free(tree: Tree, names: tuple[str, ...], mode: bridge.Mode) -> bool:
    """Whether another thread gets the lock at once."""
    got: list[bool] = []

    def ask() -> None:
        got.append(_taken(tree, names, mode, SHORT))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return got[0]


def test_who_keeps_whom_out() -> None:
    tree = Tree(SYSTEM)
    with tree.locked(("a", "b"), "write", LONG):
        assert not _free(tree, ("a", "b"), "read")
        assert not _free(tree, ("a", "b", "c"), "read")
        assert not _free(tree, ("a",), "write")
        assert not _free(tree, (), "write")
        assert _free(tree, ("a",), "read")
        assert _free(tree, ("a", "other"), "write")
    with tree.locked(("a", "b"), "read", LONG):
        assert _free(tree, ("a", "b"), "read")
        assert _free(tree, ("a", "b", "c"), "write")
        assert not _free(tree, ("a", "b"), "write")
    assert _free(tree, (), "write")


def test_a_thread_takes_its_lock_again() -> None:
    tree = Tree(SYSTEM)
    with tree.locked(("a",), "write", LONG):
        with tree.locked(("a",), "write", LONG), tree.locked(("a", "b"), "write", LONG):
            assert not _free(tree, ("a",), "read")
        with tree.locked(("a",), "read", LONG):
            pass
        assert not _free(tree, ("a",), "read")
    with (
        tree.locked(("a",), "read", LONG),
        pytest.raises(ms.InvalidArgument, match="reads a and asks to write it"),
        tree.locked(("a",), "write", LONG),
    ):
        pass
    with (
        tree.locked(("a", "b"), "read", LONG),
        pytest.raises(ms.InvalidArgument, match="reads the root and asks to write it"),
        tree.locked((), "write", LONG),
    ):
        pass


def test_nothing_is_left() -> None:
    tree = Tree(SYSTEM)
    with tree.locked(("a", "b"), "write", LONG):
        assert not _free(tree, ("a", "b", "c"), "write")
    assert tree._nodes == {}


def test_a_writer_is_not_overtaken_for_ever() -> None:
    """Readers that come one after another let a waiting writer go first."""
    tree, done = Tree(SYSTEM), threading.Event()

    def read() -> None:
        while not done.is_set():
            with tree.locked(("a",), "read", LONG):
                pass

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for _ in range(20):
        with tree.locked(("a",), "write", LONG):
            pass
    done.set()
    for reader in readers:
        reader.join()


def test_a_new_reader_waits_behind_a_writer_and_one_that_reads_does_not() -> None:
    tree = Tree(SYSTEM)
    writer = threading.Thread(target=lambda: _taken(tree, ("a",), "write", LONG))
    with tree.locked(("a",), "read", LONG):
        writer.start()
        while not tree._nodes["a",].waiting:
            pass
        assert not _free(tree, ("a",), "read")
        with tree.locked(("a",), "read", SHORT):
            pass
    writer.join()


def test_a_writer_that_gives_up_lets_readers_in() -> None:
    """At the root, where nothing above it is given back at the same time."""
    tree, limit = Tree(SYSTEM), 0.5
    writer = threading.Thread(target=lambda: _taken(tree, (), "write", limit))
    with tree.locked((), "read", LONG), ThreadPoolExecutor(1) as pool:
        writer.start()
        while writer.is_alive() and not tree._nodes[()].waiting:
            pass
        assert pool.submit(_taken, tree, (), "read", 20 * limit).result(LONG)
    writer.join()


def _taken(tree: Tree, names: tuple[str, ...], mode: bridge.Mode, limit: float) -> bool:
    """Take a lock and give it back; return whether it was free in time."""
    try:
        with tree.locked(names, mode, limit):
            return True
    except ms.DeadlineExceeded:
        return False


def test_a_report_adds_up_and_begins_with_the_longest_waits() -> None:
    recorder = Recorder()
    recorder.add("short", "write", 0.0001, 1.0, 0)
    recorder.add("long", "write", 0.5, 1.0, 0)
    recorder.add("long", "write", 0.25, 1.0, 3)
    long, short = recorder.report().sites
    assert (long.where, long.sections, long.waited, long.held) == ("long", 2, 2, 2.0)
    assert (long.wait, long.longest_wait, long.wait_saved) == (0.75, 0.5, 0.5)
    assert (long.conflicts, long.retries) == (1, 3)
    assert (short.where, short.sections, short.waited) == ("short", 1, 0)


def _beside(
    store: ms.Store, first: Callable[[bridge.Section], object], second: Callable[[bridge.Bridge], object]
) -> bridge.Report:
    """Run ``second`` while a section that does ``first`` has the schema's lock; return the report."""
    tree = bridge.install(store, "shadow")
    inside, asked = threading.Event(), threading.Event()

    def hold() -> None:
        with bridge.tree_lock("m.c.s", "write", site="first", stage="lock") as section:
            inside.set()
            assert asked.wait(30)
            while tree._tree._nodes["m", "c", "s"].users < 2:
                pass
            first(section)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(30)
    asked.set()
    second(tree)
    thread.join()
    bridge.install()
    return tree.report()


@pytest.fixture
def filled(store: ms.Store) -> ms.Store:
    store.metalakes.create("m")
    store.catalogs.create("m.c", type="relational")
    store.schemas.create("m.c.s")
    store.tables.create("m.c.s.t")
    return store


def _second(tree: bridge.Bridge, mode: bridge.Mode, changes: str | None = None) -> None:
    with tree.tree_lock("m.c.s", mode, changes=changes, site="second"):
        pass


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("first", "mode", "changes", "lost_to"),
    [
        ("create u", "write", "m.c.s.other", 0),
        ("create u", "write", "m.c.s.u", 1),
        ("alter t twice", "write", "m.c.s.t", 2),
        ("alter t twice", "write", "m.c.s.other", 0),
        ("alter t twice", "read", None, 2),
        ("rename s", "write", "m.c.s.t", 1),
        ("nothing", "read", None, 0),
    ],
)
def test_what_a_compare_and_swap_would_have_lost_to(
    filled: ms.Store, first: str, mode: bridge.Mode, changes: str | None, lost_to: int
) -> None:
    tables = filled.tables
    does: dict[str, Callable[[bridge.Section], object]] = {
        "create u": lambda _: tables.create("m.c.s.u"),
        "alter t twice": lambda _: [tables.alter("m.c.s.t", ms.SetProperty("k", str(n))) for n in range(2)],
        "rename s": lambda _: filled.schemas.rename("m.c.s", "r"),
        "nothing": lambda _: None,
    }
    (site,) = _beside(filled, does[first], lambda tree: _second(tree, mode, changes)).sites
    assert (site.where, site.mode, site.sections) == ("second", mode, 1)
    assert (site.conflicts, site.retries) == (int(lost_to > 0), lost_to)
    assert site.wait_saved == (0.0 if lost_to else site.wait)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_report_names_the_call(filled: ms.Store) -> None:
    tree = bridge.Bridge(filled, "shadow")
    with tree.tree_lock("m.c.s.t", "write"):
        pass
    tree.do_with_tree_lock("m.c.s", "read", lambda _: None)
    report = tree.report()
    assert {site.where.split(":")[0] for site in report.sites} == {"test_tree.py"}
    assert {site.where.split()[-1] for site in report.sites} == {"test_the_report_names_the_call"}
    head, *lines = str(report).splitlines()
    assert re.split(r"  +", head.strip()) == ["Call site", "Mode", "Sections", "Waited", "Wait s", "Longest s", *HEAD]
    assert len(lines) == 2
    assert len({len(line) for line in (head, *lines)}) == 1


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_the_locks_of_none_of_its_parents_threads() -> None:
    """It waited for a thread that it does not have, in each call."""
    held, done = threading.Event(), threading.Event()
    locks = bridge.Bridge()

    def hold() -> None:
        with locks.tree_lock("a.b", "write"):
            held.set()
            done.wait(60)

    def enters() -> bool:
        with locks.tree_lock("a.b", "write", timeout=0.1):
            return True

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert held.wait(60)
        try:
            assert ended_well(forked(enters))
        finally:
            done.set()
        holding.result(60)


def test_a_child_leaves_its_parents_block() -> None:
    tree = Tree(SYSTEM)
    with tree.locked(("a",), "write", 1.0):
        tree.clear()
        assert _free(tree, ("a",), "write")
    assert _free(tree, ("a",), "write")


def test_a_bridge_leads_to_a_store() -> None:
    with pytest.raises(ms.InvalidArgument, match="to a store, or to none"):
        bridge.install(5)  # type: ignore[arg-type]
