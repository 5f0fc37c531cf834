"""What every book of leases promises, whatever keeps it: field cases 41, 43, 44, 45, 46, 47, 48, 49, 51, 55, 56."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

import metastore as ms
from metastore.leases.book import Want
from metastore.leases.leases import Leases
from tests.leases.worlds import World, in_memory, in_sqlite, object_azure, object_local, object_memory, object_s3

pytestmark = pytest.mark.one_in(2)

KINDS: dict[str, Callable[[pytest.FixtureRequest], World]] = {
    "memory": lambda _: in_memory(),
    "sqlite": lambda request: in_sqlite(request.getfixturevalue("tmp_path")),
    "postgres": lambda request: request.getfixturevalue("postgres_world"),
    "object-memory": lambda _: object_memory(),
    "object-local": lambda request: object_local(request.getfixturevalue("tmp_path")),
    "object-s3": lambda r: object_s3(r.getfixturevalue("locks_server"), r.getfixturevalue("bucket")),
    "object-azure": lambda request: object_azure(request.getfixturevalue("azurite")),
    "hudi": lambda r: object_s3(r.getfixturevalue("locks_server"), r.getfixturevalue("bucket"), "hudi"),
}
"""Each returns a world; one more kind of book is one more line here."""

TTL = 30.0
LONG = 60.0
"""Longer than a ttl and any margin."""


# Azure's server takes ten seconds to start in each process of the tests; its protocol is that of S3
_LONG = ("object-azure",)


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.long) if kind in _LONG else kind for kind in KINDS])
def world(request: pytest.FixtureRequest) -> World:
    return KINDS[request.param](request)


def acquire(leases: Leases, world: World, owner: str = "ada", **options: object) -> ms.Lease:
    return leases.acquire(world.name, owner=owner, ttl=TTL, **options)  # type: ignore[arg-type]


def test_41_created_when_absent_refused_while_valid_taken_over_when_expired(world: World) -> None:
    first, second = world.leases(), world.leases()
    mine = acquire(first, world)
    with pytest.raises(ms.LeaseHeld) as refused:
        acquire(second, world, "bob")
    assert (refused.value.owner, refused.value.name) == ("ada", world.name)
    assert refused.value.expires_at is not None
    world.go(LONG)
    theirs = acquire(second, world, "bob")
    if world.tokens:
        assert (mine.token, theirs.token) == (1, 2)
    with pytest.raises(ms.LeaseLost):
        mine.check()
    holder = first.holder(world.name)
    assert holder is not None
    assert (holder.owner, holder.token) == ("bob", theirs.token)


def test_41_taken_at_once_when_it_was_given_back_or_broken(world: World) -> None:
    first, second, third = world.leases(), world.leases(), world.leases()
    acquire(first, world).release()
    lease = acquire(second, world, "bob")
    assert third.break_(world.name)
    assert not third.break_(world.name)
    assert third.holder(world.name) is None
    token = acquire(third, world, "eve").token
    assert token == (5 if world.tokens else None)  # 1, released 2, 3, broken 4
    with pytest.raises(ms.LeaseLost):
        lease.renew()
    assert lease.lost.is_set()


def test_43_somebody_elses_answer_on_renew_is_a_loss_and_the_holder_is_told(world: World) -> None:
    first, second = world.leases(), world.leases()
    told: list[ms.Lease] = []
    lease = acquire(first, world, on_lost=told.append)
    second.break_(world.name)
    theirs = acquire(second, world, "bob")
    with pytest.raises(ms.LeaseLost):
        lease.renew()
    assert told == [lease]
    assert lease.lost.is_set()
    with pytest.raises(ms.LeaseLost):
        lease.tokens()
    theirs.renew()


def test_43_a_renewal_lets_it_last(world: World) -> None:
    first, second = world.leases(), world.leases()
    lease = acquire(first, world)
    before = lease.expires_at
    for _ in range(4):
        world.go(TTL * 0.7)
        lease.renew()
    assert lease.expires_at > before
    with pytest.raises(ms.LeaseHeld):
        acquire(second, world, "bob")
    assert lease.release()


def test_44_without_its_heartbeat_it_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = world.leases()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            acquire(leases, world, renew_every=1.0)
        lease = acquire(leases, world)
        with pytest.raises(RuntimeError), lease:
            pytest.fail("it has no heartbeat")
    assert leases.holder(world.name) is None


def test_45_the_same_holder_gets_it_again_and_anew_when_it_is_over(world: World) -> None:
    leases = world.leases()
    first = acquire(leases, world)
    assert acquire(leases, world) is first
    with pytest.raises(ms.LeaseHeld):
        acquire(leases, world, "bob")
    world.go(LONG)
    again = acquire(leases, world)
    assert again is not first
    assert again.token == (2 if world.tokens else None)
    again.check()


def test_46_release_may_be_repeated_and_a_late_one_touches_nobody(world: World) -> None:
    first, second = world.leases(), world.leases()
    lease = acquire(first, world)
    assert lease.release()
    assert not lease.release()
    late = acquire(first, world, "late")
    world.go(LONG)
    theirs = acquire(second, world, "bob")
    assert not late.release()
    with pytest.raises(ms.LeaseLost):
        late.renew()
    theirs.renew()
    holder = first.holder(world.name)
    assert holder is not None
    assert holder.owner == "bob"


def test_46_a_late_release_does_not_touch_another_lease_of_the_same_process(world: World) -> None:
    leases = world.leases()
    late = acquire(leases, world)
    world.go(LONG)
    acquire(leases, world, "bob").renew()
    assert not late.release()
    holder = leases.holder(world.name)
    assert holder is not None
    assert holder.owner == "bob"


def test_47_without_a_timeout_it_is_tried_once_and_with_one_the_error_says_who(world: World) -> None:
    first, second = world.real(), world.real()
    acquire(first, world)
    with pytest.raises(ms.LeaseHeld, match="ada until") as refused:
        acquire(second, world, "bob", timeout=0.3)
    assert refused.value.expires_at is not None
    holder = second.holder(world.name)
    assert holder is not None
    assert (holder.owner, holder.waiting) == ("ada", 0)


def test_48_when_the_thread_ends_the_heartbeat_does(world: World) -> None:
    first, second = world.leases(), world.leases()
    found: list[ms.Lease] = []
    thread = threading.Thread(target=lambda: found.append(acquire(first, world, renew_every=0.02)))
    thread.start()
    thread.join()
    (lease,) = found
    assert lease._heart.beating is not None
    lease._heart.beating.join(10)
    assert not lease._heart.beating.is_alive()
    with pytest.raises(ms.LeaseHeld):
        acquire(second, world, "bob")
    world.go(LONG)
    acquire(second, world, "bob")


def test_49_a_hundred_times(world: World) -> None:
    leases = world.leases()
    tokens = []
    for _ in range(100):
        lease = acquire(leases, world)
        tokens.append(lease.token)
        assert lease.release()
    assert tokens == ([*range(1, 201, 2)] if world.tokens else [None] * 100)


def test_49_a_hundred_heartbeats(world: World) -> None:
    leases = world.real()
    for _ in range(100):
        with acquire(leases, world, renew_every=0.001):
            pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease ")]
    assert leases.holder(world.name) is None


def test_49_ten_holders_and_a_list_that_nothing_else_protects(world: World) -> None:
    inside: list[int] = []
    wrong: list[str] = []
    turns = [0] * 10
    tokens: list[int | None] = []
    end = threading.Event()

    def work(number: int) -> None:
        leases = world.real()
        while not end.is_set():
            try:
                with acquire(leases, world, f"holder {number}", timeout=10.0) as lease:
                    inside.append(number)
                    tokens.append(lease.token)
                    if inside != [number]:
                        wrong.append(f"{inside}")
                    inside.remove(number)
                    turns[number] += 1
            except ms.MetastoreError as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    end.wait(1.5)
    end.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(turns) >= 10
    if world.tokens:
        assert tokens == sorted(set(tokens), key=tokens.index)
        assert all(a < b for a, b in pairwise(tokens) if a is not None and b is not None)


def test_51_an_audit_trail_in_which_no_two_holders_overlap(world: World) -> None:
    if not world.own:
        with pytest.raises(ms.InvalidArgument):
            list(world.leases().audit(world.name))
        return
    first, second = world.leases(), world.leases()
    acquire(first, world).release()
    acquire(first, world)
    world.go(LONG)
    acquire(second, world, "bob")
    first.break_(world.name)
    trail = list(second.audit(world.name))
    assert [(event.action, event.token, event.owner) for event in trail] == [
        ("acquire", 1, "ada"),
        ("release", 2, "ada"),
        ("acquire", 3, "ada"),
        ("takeover", 4, "bob"),
        ("break", 5, "bob"),
    ]
    assert all(a.time <= b.time for a, b in pairwise(trail))
    held = None
    for event in trail:
        assert (event.action == "acquire") == (held is None)
        held = event.token if event.action in ("acquire", "takeover") else None


def test_55_a_lost_release_and_a_crashed_holder_heal_by_themselves(world: World) -> None:
    crashed, other = world.leases(), world.leases()
    acquire(crashed, world)
    del crashed
    with pytest.raises(ms.LeaseHeld) as refused:
        acquire(other, world, "bob")
    assert refused.value.expires_at is not None
    world.go(TTL + 5.0)  # no more than the ttl and what clocks may differ
    acquire(other, world, "bob")


def test_56_a_new_incarnation_of_the_same_process_inherits_nothing(world: World) -> None:
    before, after = world.leases(), world.leases()
    lease = acquire(before, world, "server-1")
    with pytest.raises(ms.LeaseHeld):
        acquire(after, world, "server-1")
    world.go(LONG)
    again = acquire(after, world, "server-1")
    assert again.incarnation != lease.incarnation
    if world.tokens:
        assert again.token == 2
    assert not lease.release()
    again.renew()


def test_waiters_are_served_in_the_order_of_their_arrival(world: World) -> None:
    if not world.own:
        return  # Hudi's files have no queue: docs/leases-object-storage.md
    watcher = world.real()
    lease = acquire(watcher, world)
    served: list[int] = []

    def wait(number: int) -> None:
        with acquire(world.real(), world, f"waiter {number}", timeout=60.0):
            served.append(number)

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        assert eventually(lambda n=number: waiting(watcher, world) == n + 1)  # type: ignore[misc]
    with pytest.raises(ms.LeaseHeld):  # who does not wait does not come first either
        acquire(world.real(), world, "hasty")
    lease.release()
    for thread in threads:
        thread.join(60)
    assert served == [0, 1, 2, 3]
    assert watcher.holder(world.name) is None


def waiting(leases: Leases, world: World) -> int:
    holder = leases.holder(world.name)
    return 0 if holder is None else holder.waiting


def eventually(condition: Callable[[], bool]) -> bool:
    from tests.servers.process import wait_until

    return wait_until(condition, 20)


def test_a_dead_waiter_is_passed_over(world: World) -> None:
    if not world.own:
        return
    first, second = world.leases(), world.leases()
    lease = acquire(first, world)
    dead = world.leases()
    queue = dead._book.queue(Want((world.name,), "dead", "dead", TTL))
    queue.__enter__()
    lease.release()
    with pytest.raises(ms.LeaseHeld, match="waited longer"):
        acquire(second, world, "bob")
    world.go(LONG)
    acquire(second, world, "bob")


def test_all_or_none(world: World) -> None:
    names = [world.name, f"{world.name}-2", f"{world.name}-3"]
    first, second = world.leases(), world.leases()
    theirs = first.acquire(names[2], owner="ada", ttl=TTL)
    with pytest.raises(ms.LeaseHeld) as refused:
        second.acquire_many(names, owner="bob", ttl=TTL)
    assert refused.value.name == names[2]
    assert [first.holder(name) for name in names[:2]] == [None, None]
    theirs.release()
    both = second.acquire_many(names, owner="bob", ttl=TTL)
    assert list(both) == names
    both.renew()
    assert both.release()
    assert [first.holder(name) for name in names] == [None] * 3


def test_many_who_want_several_do_not_wait_for_each_other(world: World) -> None:
    names = [f"{world.name}-{letter}" for letter in "abc"]
    done: list[int] = []

    def work(number: int) -> None:
        mine = [names[number % 3], names[(number + 1) % 3]]
        with world.real().acquire_many(mine, owner=f"holder {number}", ttl=TTL, timeout=60.0):
            done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == [0, 1, 2, 3, 4, 5]


def test_who_has_what(world: World) -> None:
    leases = world.leases()
    assert leases.holder(world.name) is None
    acquire(leases, world)
    leases.acquire(f"{world.name}-ü", owner="bob", ttl=TTL)
    if world.own:
        assert [(holder.name, holder.owner, holder.expired) for holder in leases.list()] == [
            (world.name, "ada", False),
            (f"{world.name}-ü", "bob", False),
        ]
    world.go(LONG)
    assert leases.holder(world.name) is None
    if world.own:
        assert [holder.expired for holder in leases.list()] == [True, True]


def test_a_process_below_joins_by_the_token(world: World) -> None:
    if not world.tokens:
        return
    leases, below = world.leases(), world.leases()
    lease = acquire(leases, world)
    assert lease.token is not None
    joined = below.join(world.name, lease.token)
    assert (joined.owner, joined.token) == ("ada", lease.token)
    assert not joined.release()
    lease.release()
    with pytest.raises(ms.LeaseLost):
        below.join(world.name, lease.token)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"ttl": 0}, "ttl"),
        ({"ttl": -1.0}, "ttl"),
        ({"ttl": 9.0, "renew_every": 3.0}, "renew_every"),
        ({"timeout": -1}, "timeout"),
        ({"name": ""}, "name"),
        ({"name": "x\n"}, "name"),
        ({"owner": ""}, "owner"),
    ],
)
def test_bad_input(world: World, options: dict[str, object], word: str) -> None:
    leases = world.leases()
    arguments = {"name": world.name, **options}
    with pytest.raises(ms.InvalidArgument, match=word):
        leases.acquire(**arguments)  # type: ignore[arg-type]
    assert leases.holder(world.name) is None
