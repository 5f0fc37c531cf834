"""A lock-tree catalog goes through all stages under load, and back; the old one loses updates with two processes."""

from __future__ import annotations

import threading

import pytest

import metastore as ms
from metastore import bridge
from tests.bridge.catalog import Catalog, LockTreeCatalog, PlainCatalog
from tests.concurrency.checks import seed, violations
from tests.concurrency.workers import Job, Team, Turn, outcome

pytestmark = pytest.mark.one_in(3)

SCHEMA = "lake.cat.s"
ROUNDS = 6


def catalog(store: ms.Store, stage: bridge.Stage | None) -> Catalog:
    """Return the catalog at a stage; None: after the last one."""
    return PlainCatalog(store) if stage is None else LockTreeCatalog(store, bridge.Bridge(store, stage, ttl=20.0))


def work(turn: Turn, stage: bridge.Stage | None, number: int) -> int:
    """Two threads of one process create, count and rename; return how often a name was taken."""
    one = catalog(turn.store, stage)
    taken: list[str] = []
    failures: list[BaseException] = []

    def client(thread: int) -> None:
        try:
            for n in range(ROUNDS):
                one.count_up(f"{SCHEMA}.hot")
                taken.append(outcome(one.create, f"{SCHEMA}.t{n}"))
                one.create(f"{SCHEMA}.own_{number}_{thread}_{n}")
                one.rename(f"{SCHEMA}.own_{number}_{thread}_{n}", f"mine_{number}_{thread}_{n}")
        except BaseException as error:  # noqa: BLE001  (the main thread raises it)
            failures.append(error)

    turn.meet()
    threads = [threading.Thread(target=client, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return taken.count("EntityAlreadyExists")


def total(turn: Turn, stage: bridge.Stage | None) -> list[int]:
    """Add up again and again while the others write; return what was seen."""
    one, seen = catalog(turn.store, stage), []
    turn.meet()
    while turn.go_on():
        seen.append(one.total(SCHEMA))
    return seen


@pytest.mark.parametrize("stage", ["bridged", None])
def test_two_processes_lose_nothing(url: str, team: Team, stage: bridge.Stage | None) -> None:
    seed(url)
    with ms.open(url) as store:
        store.tables.create(f"{SCHEMA}.hot")
        *taken, seen = team.run(url, [*(Job(work, stage, n) for n in range(2)), Job(total, stage, background=True)])
        assert int(store.tables.load(f"{SCHEMA}.hot").properties["n"]) == 4 * ROUNDS
        assert sum(taken) == 3 * ROUNDS, "of four that create one name, one does"
        assert len([n for n in store.tables.names(SCHEMA) if n.startswith("mine_")]) == 4 * ROUNDS
    assert seen == sorted(seen), "a total that went back was not of one instant"
    assert violations(url) == []


def lose(turn: Turn, stage: bridge.Stage) -> None:
    """Count up once; both processes read before either writes, if the locks let them."""
    LockTreeCatalog(turn.store, bridge.Bridge(turn.store, stage)).count_up(f"{SCHEMA}.hot", turn.meet)


@pytest.mark.parametrize("stage", ["lock", "shadow"])
def test_the_lock_tree_alone_loses_updates(url: str, team: Team, stage: bridge.Stage) -> None:
    """The negative control: what the tests above find is there."""
    seed(url)
    with ms.open(url) as store:
        store.tables.create(f"{SCHEMA}.hot")
        team.run(url, [Job(lose, stage)] * 2)
        assert store.tables.load(f"{SCHEMA}.hot").properties["n"] == "1"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("stage", bridge.STAGES)
def test_one_process_goes_through_all_stages_and_back(url: str, team: Team, stage: bridge.Stage) -> None:
    seed(url)
    with ms.open(url) as store:
        store.tables.create(f"{SCHEMA}.hot")
        (taken,) = team.run(url, [Job(work, stage, 0)])
        assert taken == ROUNDS
        assert int(store.tables.load(f"{SCHEMA}.hot").properties["n"]) == 2 * ROUNDS


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_call_sites_move_one_by_one(store: ms.Store) -> None:
    """A bridged writer keeps out a call that still has the old lock, and the other way round."""
    tree = bridge.Bridge(store, "lock")
    inside, out = threading.Event(), threading.Event()
    order: list[str] = []

    def bridged() -> None:
        with tree.tree_lock("lake.c.s.t", "write", stage="bridged"):
            inside.set()
            assert out.wait(30)
            order.append("bridged")

    thread = threading.Thread(target=bridged)
    thread.start()
    assert inside.wait(30)
    with (
        pytest.raises(ms.DeadlineExceeded, match=r"lake\.c\.s\.t was not free in time"),
        tree.tree_lock("lake.c.s.t", "read", timeout=0.05),
    ):
        order.append("too early")
    out.set()
    with tree.tree_lock("lake.c.s.t", "read"):
        order.append("read")
    thread.join()
    assert order == ["bridged", "read"]
