"""Schedules of a few holders, compared call by call with the plainest model: all small ones, and many random ones.

The database is the memory model and SQLite, whose clock is given too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.sqlite.backend import SqliteBackend
from metastore.port.commit import Commit, CommitOutcome
from tests.leases.schedules import GivenClock, Model, World
from tests.long import long_unless

Step = tuple[str, int]
EVERY = {"memory": (1, 5), "sqlite": (4, 40)}
"""Of the orders with one event of the clock or the operator, and of those with several, each so many-th is tried."""
BACKENDS = tuple(EVERY)


@cache
def migrated() -> SqliteBackend:
    """Return a database in memory to copy: to migrate takes longer than a schedule."""
    backend = SqliteBackend(None, 30.0, GivenClock())
    backend.migrate()
    return backend


def world_of(name: str, holders: int) -> World:
    clock = GivenClock()
    if name == "memory":
        return World(MemoryBackend(clock), clock, holders)
    backend = SqliteBackend(None, 30.0, clock)
    with migrated().pool.connection() as source, backend.pool.connection() as target:
        source.backup(target)
    return World(backend, clock, holders)


def play(world: World, steps: Sequence[Step]) -> Iterator[tuple[Step, str, str]]:
    """Do what the steps say; yield each with what the store and the model said."""
    model = Model(world)
    for number, (what, n) in enumerate(steps):
        if what == "time":
            world.advance(n)
        elif what in ("wall", "boot"):
            clock = world.clocks[n % len(world.clocks)]
            setattr(clock, what, getattr(clock, what) + (7200.0 if n % 2 else -7200.0))
        elif what == "break":
            yield (what, n), world.break_(), model.break_()
        elif what in ("commit", "stage"):
            yield (what, n), getattr(world, what)(n, f"v{number}"), getattr(model, what)(n, f"v{number}")
        else:
            yield (what, n), getattr(world, what)(n), getattr(model, what)(n)
    lake = world.store.metalakes.load("lake")
    yield ("comment", 0), str(lake.comment), str(model.comment)
    yield ("pointer", 0), str(lake.properties.get("pointer")), str(model.pointer)
    yield ("verify", 0), str(world.store.verify()), "[]"
    left: list[str] = []
    world.store.gc(clean_up=lambda work: left.append(work.value))
    late = [v for (token, v), published in model.staged.items() if not published and token != model.token]
    yield ("left behind", 0), str(sorted(left)), str(sorted(late))


def check(world: World, steps: Sequence[Step]) -> None:
    for step, found, wanted in play(world, steps):
        assert found == wanted, f"{step} after {steps}"


FIRST = [("acquire", 0), ("commit", 0), ("stage", 0), ("publish", 0)]
OTHER = [("acquire", 1), ("commit", 1), ("release", 1)]
TIMES: list[list[Step]] = [[("time", 11)], [("break", 0)], [("release", 0)], [("time", 6), ("renew", 0), ("time", 6)]]


def merges(*lists: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Yield every interleaving of some sequences."""
    if not any(lists):
        yield ()
    for i, one in enumerate(lists):
        if one:
            for rest in merges(*lists[:i], one[1:], *lists[i + 1 :]):
                yield (one[0], *rest)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("others", TIMES, ids=lambda steps: "-".join(what for what, _ in steps))
@pytest.mark.parametrize("backend", long_unless(BACKENDS, lambda backend: backend == "memory"))
def test_every_order_of_two_holders(backend: str, others: list[Step], record_property: Callable[..., None]) -> None:
    number, every = count(), EVERY[backend][len(others) > 1]
    for steps in merges(FIRST, OTHER, others):
        if next(number) % every:
            continue
        check(world_of(backend, 2), steps)
    assert next(number) >= 280
    record_property("orders", next(number))


steps_of_holders = st.one_of(
    st.tuples(st.sampled_from(["acquire", "renew", "release", "commit", "stage", "publish"]), st.integers(0, 3)),
    st.tuples(st.just("acquire"), st.integers(0, 3)),
    st.tuples(st.just("time"), st.sampled_from([1, 3, 9, 11])),
    st.tuples(st.sampled_from(["wall", "boot"]), st.integers(0, 7)),
    st.tuples(st.just("break"), st.just(0)),
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_schedules_of_four_holders(backend: str) -> None:
    @given(st.lists(steps_of_holders, max_size=40))
    def run(steps: list[Step]) -> None:
        check(world_of(backend, 4), steps)

    run()


class _TimeDecides(MemoryBackend):
    """The negative control: a commit asks only whether the lease's time is over, not which token it has."""

    def commit(self, commit: Commit) -> CommitOutcome:
        return super().commit(replace(commit, leases=()))


def test_a_store_that_does_not_check_tokens_is_found_out() -> None:
    clock = GivenClock()
    with pytest.raises(AssertionError, match="commit"):
        check(World(_TimeDecides(clock), clock, 2), [("acquire", 0), ("break", 0), ("acquire", 1), ("commit", 0)])
