"""Drops in steps by real processes: killed between any two steps, two that finish, a roll-back beside a finish.

The data lies in a folder, one below it for each id. A handler destroys it by the id, and may do so again and again.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore import Store
from metastore.kinds.drop import Drop
from metastore.managers.drops import steps
from metastore.managers.drops.pending import PendingDrop
from metastore.managers.drops.row import read_drop
from tests.concurrency.checks import seed, violations
from tests.concurrency.workers import FORKSERVER, Job, Team, Turn

pytestmark = pytest.mark.one_in(3)

KINDS = ("table", "column", "partition", "catalog")
POINTS = ("before", "announced", "started", "half destroyed", "destroyed", "finished")
TTL = 0.2


Step = Callable[[PendingDrop], Any]


def data_of(folder: Path, pending: PendingDrop) -> Path:
    """Return where the data of a drop lies: by id, never by name."""
    part = pending.column or pending.partition
    return folder / str(pending.entity_id) / (part or "")


def destroy(folder: Path, pending: PendingDrop) -> None:
    """Destroy the data, as every handler does: again and again, if need be."""
    shutil.rmtree(data_of(folder, pending), ignore_errors=True)


def make(store: Store, folder: Path, kind: str, name: str) -> int:
    """Make an entity of a kind, with data; return its id."""
    if kind == "catalog":
        made: Any = store.catalogs.create(f"lake.{name}", type="relational")
        store.tables.create(f"lake.{name}.s.t", parents=True)
    else:
        columns = [ms.Column("a", "int"), ms.Column("part", "int")]
        made = store.tables.create(f"lake.cat.s.t{name}", columns=columns)
        store.partitions.create(made, "part", values={"a": "1"})
    for part in ("part", "other"):
        (folder / str(made.id) / part).mkdir(parents=True)
        for n in range(4):
            (folder / str(made.id) / part / str(n)).write_text("data")
    return int(made.id)


def begin(store: Store, kind: str, name: str, ttl: float) -> PendingDrop:
    """Announce the drop of what ``make`` has made, or of a part of it."""
    if kind == "catalog":
        return store.catalogs.begin_drop(f"lake.{name}", ttl=ttl)
    path = f"lake.cat.s.t{name}"
    if kind == "partition":
        return store.partitions.begin_drop(path, "part", ttl=ttl)
    return store.tables.begin_drop(path, column="part" if kind == "column" else None, ttl=ttl)


def die_at(url: str, folder: Path, kind: str, name: str, point: str) -> None:
    """Drop in steps, and kill this process after one of them."""

    def reached(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    with ms.open(url, principal="victim") as store:
        reached("before")
        pending = begin(store, kind, name, TTL)
        reached("announced")
        pending.started()
        reached("started")
        files = sorted(file for file in data_of(folder, pending).rglob("*") if file.is_file())
        for file in files[: len(files) // 2]:
            file.unlink()
        reached("half destroyed")
        destroy(folder, pending)
        reached("destroyed")
        pending.finish()
        reached("finished")


def kill_all(url: str, folder: Path, kinds: tuple[str, ...]) -> dict[tuple[str, str], int]:
    """Let a process die at each point of the drop of each kind; return the ids."""
    with ms.open(url) as store:
        ids = {
            (kind, point): make(store, folder, kind, f"{kind}{n}") for kind in kinds for n, point in enumerate(POINTS)
        }
    victims = [
        FORKSERVER.Process(target=die_at, args=(url, folder, kind, f"{kind}{n}", point))
        for kind in kinds
        for n, point in enumerate(POINTS)
    ]
    for victim in victims:
        victim.start()
    for victim in victims:
        victim.join()
        assert victim.exitcode == -signal.SIGKILL
    return ids


def is_there(store: Store, kind: str, number: int) -> bool:
    """Whether what was to be dropped is there."""
    name = f"{kind}{number}"
    if kind == "catalog":
        return store.catalogs.exists(f"lake.{name}") and store.tables.exists(f"lake.{name}.s.t")
    if kind == "partition":
        return store.partitions.exists(f"lake.cat.s.t{name}", "part")
    path = f"lake.cat.s.t{name}"
    if not store.tables.exists(path):
        return False
    return kind == "table" or "part" in [column.name for column in store.tables.load(path).columns]


def has_data(folder: Path, kind: str, entity_id: int) -> bool:
    """Whether all of the data is there; AssertionError if only some of it is."""
    places = [
        folder / str(entity_id) / part for part in (("part",) if kind in ("column", "partition") else ("part", "other"))
    ]
    counts = [len(list(place.glob("*"))) for place in places]
    assert set(counts) in ({4}, {0}), counts
    return counts[0] == 4


@pytest.mark.each_run_on("postgres")
def test_killed_between_any_two_steps(url: str, tmp_path: Path) -> None:
    """Field cases 63, 64: The next process finishes what was announced, whatever the handler; nothing is left half."""
    seed(url)
    ids = kill_all(url, tmp_path, KINDS)
    with ms.open(url, principal="next") as store:
        while list(store.drops.pending()):
            store.drops.resume(lambda pending: destroy(tmp_path, pending))
        for (kind, point), entity_id in ids.items():
            there = is_there(store, kind, POINTS.index(point))
            assert there == has_data(tmp_path, kind, entity_id) == (point == "before"), (kind, point)
    assert violations(url) == []


@pytest.mark.each_run_on("sqlite")
def test_killed_and_rolled_back(url: str, tmp_path: Path) -> None:
    """Field case 63: What had not started can be rolled back by the next process; what had, only finished."""
    seed(url)
    ids = kill_all(url, tmp_path, ("table", "column"))
    with ms.open(url, principal="next") as store:
        for pending in list(store.drops.pending()):
            while not pending.held:
                with suppress(ms.DropPending):
                    pending.take_over()
            if pending.phase == "announced":
                pending.roll_back()
                continue
            with pytest.raises(ms.DropPending):
                pending.roll_back()
            destroy(tmp_path, pending)
            assert pending.finish()
        for (kind, point), entity_id in ids.items():
            there = is_there(store, kind, POINTS.index(point))
            assert there == has_data(tmp_path, kind, entity_id) == (point in ("before", "announced")), (kind, point)
    assert violations(url) == []


def resume_all(turn: Turn, folder: Path, count: int) -> int:
    """Resume until nothing is pending; return how many drops this process has finished."""
    finished = 0
    turn.meet()
    while list(turn.store.drops.pending()):
        finished += turn.store.drops.resume(lambda pending: destroy(folder, pending))
    return finished


def test_two_finishers_at_once(url: str, team: Team, tmp_path: Path) -> None:
    """Of several processes that resume the same drops, exactly one finishes each."""
    seed(url)
    count = 6
    with ms.open(url) as store:
        ids = [make(store, tmp_path, "table", str(n)) for n in range(count)]
        for n in range(count):
            begin(store, "table", str(n), 0.05)
    finished = team.run(url, [Job(resume_all, tmp_path, count) for _ in range(3)])
    assert sum(finished) == count
    with ms.open(url) as store:
        purged = [change.entity_id for change in store.changes(kinds=["table"]) if change.action == "purge"]
        assert sorted(purged) == sorted(ids)
    assert violations(url) == []


# --- races of two that have one token


def race(url: str, rounds: int, left: Step, right: Step) -> list[tuple[str, ...]]:
    """Let two threads, each with a store of its own, take one step each of the same drop; return what each came to."""
    results: list[tuple[str, ...]] = []
    with ms.open(url) as one, ms.open(url) as other:
        for n in range(rounds):
            table = one.tables.create(f"lake.cat.s.t{n}")
            mine = one.tables.begin_drop(table)
            row = read_drop(other._session.backend, mine._drop.name)
            assert isinstance(row, Drop)
            theirs = PendingDrop(other._session, row, held=True)
            results.append(at_once([partial(left, mine), partial(right, theirs)]))
            with suppress(ms.MetastoreError):
                mine.finish()
    return results


def at_once(calls: list[Callable[[], Any]]) -> tuple[str, ...]:
    """Make calls at once; return "ok", the value if it is False, or the error's name, of each."""
    ready, results = threading.Barrier(len(calls)), [""] * len(calls)

    def run(n: int) -> None:
        ready.wait()
        try:
            results[n] = "False" if calls[n]() is False else "ok"
        except ms.MetastoreError as error:
            results[n] = type(error).__name__

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(results)


RACES: dict[str, tuple[Step, Step, set[tuple[str, ...]]]] = {
    "roll back x finish": (
        lambda pending: pending.roll_back(),
        lambda pending: pending.finish(),
        {("ok", "EntityNotFound"), ("EntityNotFound", "ok")},
    ),
    "roll back x start": (
        lambda pending: pending.roll_back(),
        lambda pending: pending.started(),
        {("ok", "EntityNotFound"), ("DropPending", "ok")},
    ),
    "finish x finish": (
        lambda pending: pending.finish(),
        lambda pending: pending.finish(),
        {("ok", "False"), ("False", "ok")},
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_exactly_one_wins(url: str, name: str) -> None:
    seed(url)
    left, right, allowed = RACES[name]
    assert set(race(url, 12, left, right)) <= allowed
    assert violations(url) == []


def test_a_token_that_is_not_checked_lets_the_old_holder_finish(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: without the token, a process that was taken over destroys what the next one rolls back."""
    seed(sqlite_url)
    with ms.open(sqlite_url) as store:
        store.tables.create("lake.cat.s.t")
        old = store.tables.begin_drop("lake.cat.s.t", ttl=0.01)
        (new,) = store.drops.pending()
        while not new.held:
            with suppress(ms.DropPending):
                new.take_over()
        with pytest.raises(ms.DropPending):
            old.started()
        monkeypatch.setattr(steps, "_mine", lambda backend, known: read_drop(backend, known.name))
        old.started()
        with pytest.raises(ms.DropPending):
            new.roll_back()
        assert old.finish()


@pytest.mark.postgres
def test_an_index_without_what_is_dropping_lets_a_newcomer_take_the_name(postgres_url: str) -> None:
    """Negative control: the name stays taken by the index alone."""
    seed(postgres_url)
    with ms.open(postgres_url, deadline=1.5) as store:
        table = store.tables.create("lake.cat.s.t")
        pending = store.tables.begin_drop(table)
        with pytest.raises(ms.DropPending):
            store.tables.create("lake.cat.s.t")
        with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
            connection.execute("DROP INDEX guard_live_name")
            columns = "(parent_id, family, key)"
            connection.execute(f"CREATE UNIQUE INDEX guard_live_name ON guard {columns} WHERE state = 0")
        assert store.tables.create("lake.cat.s.t").id != table.id
        with pytest.raises((ms.DropPending, ms.DeadlineExceeded, ms.OutcomeUnknown)):
            pending.roll_back()


# --- others that are away (62)


def idle(url: str, ready: Any) -> None:
    """Open a store, say so, and wait for the end."""
    with ms.open(url) as store:
        list(store.tables.names("lake.cat.s"))
        ready.send(None)
        signal.pause()


@pytest.fixture
def others(url: str) -> Iterator[list[int]]:
    """Give processes that have a store open: one that is killed, and one that is stopped."""
    seed(url)
    found = []
    for _ in range(2):
        ours, theirs = FORKSERVER.Pipe()
        process = FORKSERVER.Process(target=idle, args=(url, theirs))
        process.start()
        ours.recv()
        found.append(process)
    killed, stopped = found
    os.kill(killed.pid or 0, signal.SIGKILL)
    os.kill(stopped.pid or 0, signal.SIGSTOP)
    yield [process.pid or 0 for process in found]
    stopped.kill()
    for process in found:
        process.join()


def test_others_that_are_away_do_not_matter(url: str, others: list[int], tmp_path: Path) -> None:
    """Field case 62: A drop in steps goes through while one process is crashed and one does not answer."""
    with ms.open(url) as store:
        entity_id = make(store, tmp_path, "table", "x")
        began = time.monotonic()
        pending = begin(store, "table", "x", 60.0)
        pending.started()
        destroy(tmp_path, pending)
        assert pending.finish()
        assert time.monotonic() - began < 20.0
        assert not has_data(tmp_path, "table", entity_id)
    assert len(others) == 2


def test_a_cache_that_validates_sees_each_step(url: str) -> None:
    seed(url, "lake.cat.s.t")
    path = "lake.cat.s.t"
    with ms.open(url) as store, ms.open(url, cache=ms.Cache("validate")) as cached:
        for end in ("roll back", "finish"):
            table = cached.tables.load(path)
            pending = store.tables.begin_drop(path)
            for target in (path, table):
                with pytest.raises(ms.DropPending):
                    cached.tables.load(target)
            if end == "roll back":
                pending.roll_back()
                assert cached.tables.load(path).id == table.id
            else:
                pending.finish()
                with pytest.raises(ms.EntityNotFound):
                    cached.tables.load(path)
        assert cached.tables.create(path).id == store.tables.load(path).id
