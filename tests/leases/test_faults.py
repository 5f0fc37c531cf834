"""The network between a holder and the database fails: field cases 42, 43, 50, 55."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest

import metastore as ms
from tests.concurrency.checks import violations
from tests.concurrency.raw import rows
from tests.concurrency.silent import Swallower
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import S, furnish
from tests.long import long_unless
from tests.servers.process import wait_until
from tests.servers.proxy import ENDS_ROUND_TRIP, PostgresProxy

pytestmark = pytest.mark.postgres
PATH = f"{S}.t"


class Ground:
    """A holder behind a bad network, and somebody with a good one."""

    def __init__(self, holder: ms.Store, direct: ms.Store, url: str) -> None:
        self.holder, self.direct, self.url, self.number = holder, direct, url, 0

    def token(self) -> int:
        return int(rows(self.url, "SELECT coalesce(max(token), 0) FROM lease WHERE name = 'work'")[0][0])

    def acquired(self, ttl: float = 30.0) -> ms.Lease:
        return self.holder.leases.acquire("work", ttl=ttl)


Step = Callable[[Ground, Callable[[], None]], None]
"""Prepares, calls the function that makes the network bad, does one thing, and checks what came of it."""


def acquire(ground: Ground, fault: Callable[[], None]) -> None:
    before = ground.token()
    fault()
    lease = ground.acquired()
    assert lease.token == ground.token() == before + 1
    holder = ground.direct.leases.holder("work")
    assert holder is not None
    assert (holder.token, holder.incarnation) == (lease.token, lease.incarnation)
    assert abs(lease.expires_at - holder.expires_at) < timedelta(milliseconds=10)
    ground.direct.tables.alter(PATH, ms.SetComment("works"), lease=ground.direct.leases.join("work", before + 1))
    assert lease.release()


def acquire_two(ground: Ground, fault: Callable[[], None]) -> None:
    fault()
    with ground.holder.leases.acquire_many(["work", "more"]) as leases:
        found = {holder.name: holder.token for holder in ground.direct.leases.list()}
        assert found == dict(leases)
        ground.holder.tables.alter(PATH, ms.SetComment(str(dict(leases))), lease=leases)
    assert list(ground.direct.leases.list()) == []


def acquire_what_is_held(ground: Ground, fault: Callable[[], None]) -> None:
    with ground.direct.leases.acquire("work") as lease:
        fault()
        with pytest.raises(ms.LeaseHeld) as held:
            ground.acquired()
        assert held.value.owner == lease.owner
        assert ground.token() == lease.token


def renew(ground: Ground, fault: Callable[[], None]) -> None:
    lease = ground.acquired()
    before = lease.expires_at
    fault()
    lease.renew()
    assert lease.expires_at > before
    assert lease.expires_at == ground.direct.leases.holder("work").expires_at  # type: ignore[union-attr]
    lease.release()


def renew_what_is_lost(ground: Ground, fault: Callable[[], None]) -> None:
    lease = ground.acquired()
    ground.direct.leases.break_("work")
    with ground.direct.leases.acquire("work") as other:
        fault()
        with pytest.raises(ms.LeaseLost):
            lease.renew()
        assert ground.token() == other.token


def release(ground: Ground, fault: Callable[[], None]) -> None:
    lease = ground.acquired()
    fault()
    assert lease.release() is True  # also where the first answer was lost
    assert ground.direct.leases.holder("work") is None
    assert ground.token() == (lease.token or 0) + 1
    assert lease.release() is False


def break_(ground: Ground, fault: Callable[[], None]) -> None:
    lease = ground.direct.leases.acquire("work")
    fault()
    assert ground.holder.leases.break_("work") is True
    assert ground.token() == (lease.token or 0) + 1
    with pytest.raises(ms.LeaseLost):
        lease.renew()


def stage(ground: Ground, fault: Callable[[], None]) -> None:
    with ground.acquired() as lease:
        table = ground.direct.tables.load(PATH)
        fault()
        lease.stage(table, "location", f"s3://{ground.number}")
        assert rows(ground.url, f"SELECT value FROM staged WHERE token = {lease.token}") == [(f"s3://{ground.number}",)]


def publish(ground: Ground, fault: Callable[[], None]) -> None:
    with ground.acquired() as lease:
        table = ground.direct.tables.load(PATH)
        lease.stage(table, "location", f"s3://{ground.number}")
        fault()
        (found,) = lease.publish(ms.SetComment(str(ground.number)))
        assert found.version == table.version + 1
        assert ground.direct.tables.load(PATH).properties["location"] == f"s3://{ground.number}"


def commit(ground: Ground, fault: Callable[[], None]) -> None:
    with ground.acquired() as lease:
        before = ground.direct.tables.load(PATH)
        fault()
        found = ground.holder.tables.alter(PATH, ms.SetComment(f"commit {ground.number}"), lease=lease)
        assert found.version == before.version + 1
        assert ground.direct.tables.load(PATH).version == found.version


def commit_when_lost(ground: Ground, fault: Callable[[], None]) -> None:
    lease = ground.acquired()
    table = ground.direct.tables.load(PATH)
    ground.direct.leases.break_("work")
    fault()
    with pytest.raises(ms.LeaseLost):
        ground.holder.tables.alter(table, ms.SetComment("late"), lease=lease)
    assert ground.direct.tables.load(PATH) == table


STEPS: list[Step] = [
    *(acquire, acquire_two, acquire_what_is_held, renew, renew_what_is_lost, release, break_),
    *(stage, publish, commit, commit_when_lost),
]
HOW = ("cut_before_send", "cut_while_sending", "cut_after_send")


@pytest.fixture
def furnished(postgres_url: str) -> str:
    with ms.open(postgres_url) as store:
        furnish(store)
    return postgres_url


@pytest.fixture
def proxied(furnished: str, postgres_address: tuple[str, int]) -> Iterator[tuple[PostgresProxy, Ground]]:
    with ExitStack() as stack:
        proxy = stack.enter_context(PostgresProxy(*postgres_address))
        holder = stack.enter_context(ms.open(proxy.url_for(furnished), principal="holder"))
        direct = stack.enter_context(ms.open(furnished, principal="direct"))
        yield proxy, Ground(holder, direct, furnished)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("step", STEPS)
def test_cut_at_every_message(proxied: tuple[PostgresProxy, Ground], step: Step) -> None:
    """All of the message is lost, or its second half, or the answer to it: it is settled before it returns."""
    proxy, ground = proxied
    fired = 0
    pool: Any = ground.holder._session.backend.leases._pool  # type: ignore[attr-defined]
    for how, fresh in product(HOW, (True, False)):
        for nth in range(1, 30):
            ground.number += 1
            if fresh:
                pool.forget()  # on a new connection nothing is prepared: other messages
            cuts: list[Any] = []

            def fault(how: str = how, nth: int = nth, cuts: list[Any] = cuts) -> None:
                cuts.append(getattr(proxy, how)(lambda message: message[:1] in ENDS_ROUND_TRIP, nth=nth))

            step(ground, fault)
            proxy.reset()
            if not cuts[0].fired.is_set():
                break
            fired += 1
        else:
            raise AssertionError("it never comes to an end")
    assert fired >= len(HOW)
    assert late_commits(ground.url) == []
    assert violations(ground.url) == []


def test_a_break_whose_answer_was_lost_breaks_nobody_else(proxied: tuple[PostgresProxy, Ground]) -> None:
    """The break is sent again after another holder has acquired: that lease is not the one to break."""
    proxy, ground = proxied
    first = ground.direct.leases.acquire("work")
    ground.holder.leases.holder("work")
    rows_of = ground.holder._session.backend.leases
    pool: Any = rows_of._pool  # type: ignore[attr-defined]
    forget = pool.forget
    taken: list[ms.Lease] = []

    def next_one() -> None:
        """Between the two sendings."""
        forget()
        taken.append(ground.direct.leases.acquire("work", owner="the next"))

    pool.forget = next_one
    cut = proxy.cut_after_send(lambda message: message[:1] in ENDS_ROUND_TRIP)
    assert ground.holder.leases.break_("work") is True
    assert cut.fired.is_set()
    (second,) = taken
    second.renew()
    with pytest.raises(ms.LeaseLost):
        first.renew()
    assert [event.action for event in ground.direct.leases.audit("work")] == ["acquire", "break", "acquire"]


def test_a_noted_token_whose_answer_was_lost_is_in_doubt(
    proxied: tuple[PostgresProxy, Ground], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away behind the lost answer: an error that says that nothing was written would be false."""
    proxy, ground = proxied
    ground.holder.leases.holder("work")
    pool: Any = ground.holder._session.backend.leases._pool  # type: ignore[attr-defined]

    def away() -> None:
        away_for_now = ms.BackendUnavailable("the server is away")
        away_for_now.transient = True
        monkeypatch.setattr(pool, "connection", Mock(side_effect=away_for_now))

    monkeypatch.setattr(pool, "forget", away)
    proxy.cut_after_send(lambda message: message[:1] in ENDS_ROUND_TRIP)
    with pytest.raises(ms.OutcomeUnknown) as unknown:
        ground.holder.bind(deadline=0.2).leases.mirror("elsewhere", 7, "owner", "incarnation")
    assert ground.direct.outcome(unknown.value.operation_id).state == "committed"


# --- nothing is answered, and nobody hangs up

TTL, DEADLINE, LATE = 1.5, 1.0, 4.0
WORDS: dict[str, bytes] = {
    "acquire": b"INSERT INTO lease AS",
    "renew": b"UPDATE lease l SET expires_at",
    "release": b"'release'",
    "stage": b"INSERT INTO staged",
    "publish": b"UPDATE staged",
    "alter": b"UPDATE entity",
}
"""What the statement of each step has in it."""


def act(store: ms.Store, lease: ms.Lease | None, what: str, table: ms.Entity) -> object:
    if lease is None:
        return store.leases.acquire("work", ttl=TTL)
    acts: dict[str, Callable[[], object]] = {
        "renew": lease.renew,
        "release": lease.release,
        "stage": lambda: lease.stage(table, "location", "s3://late"),
        "publish": lambda: lease.publish(ms.SetComment("late")),
        "alter": lambda: store.tables.alter(table, ms.SetComment("late"), lease=lease, deadline=DEADLINE),
    }
    return acts[what]()


@contextmanager
def swallower(address: tuple[str, int]) -> Iterator[Swallower]:
    host, port = address
    proxy = Swallower(port, host)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.mark.parametrize("lost", ["question", "answer"])
@pytest.mark.parametrize("what", long_unless(WORDS, lambda what: what in ("acquire", "renew", "publish")))
def test_black_holed(furnished: str, postgres_address: tuple[str, int], what: str, lost: str) -> None:
    """The holder knows nothing, and nobody else has to: the lease is free, at the latest, after its ttl."""
    with swallower(postgres_address) as hole, ms.open(furnished) as direct:
        table = direct.tables.load(PATH)
        with ms.open(hole.url_for(furnished), deadline=DEADLINE) as store:
            lease = None if what == "acquire" else store.leases.acquire("work", ttl=TTL)
            if what == "publish":
                act(store, lease, "stage", table)
            hole.swallow_at(WORDS[what], *(["there", "back"] if lost == "question" else ["back"]))
            began = time.monotonic()
            with pytest.raises((ms.OutcomeUnknown, ms.DeadlineExceeded, ms.BackendUnavailable, ms.LeaseLost)):
                act(store, lease, what, table)
            assert time.monotonic() - began < max(TTL, DEADLINE) + LATE
            with direct.leases.acquire("work", ttl=30.0, timeout=2 * TTL + LATE) as other:
                assert time.monotonic() - began < 2 * TTL + LATE
                hole.recover()
                if lease is not None:
                    assert lease.lost.is_set() or what == "release"
                    with pytest.raises(ms.LeaseLost):
                        store.tables.alter(PATH, ms.SetComment("later"), lease=lease)
                    assert lease.release() is False
                else:
                    with pytest.raises(ms.LeaseHeld):
                        store.leases.acquire("work")
                direct.tables.alter(PATH, ms.SetProperty("by", "other"), lease=other)
                other.renew()
    ((count,),) = rows(furnished, "SELECT count(*) FROM operation WHERE changes LIKE '%\"late\"%'")
    assert count <= (lost == "answer" and what in ("publish", "alter"))
    assert late_commits(furnished) == []
    assert violations(furnished) == []


@pytest.mark.parametrize("directions", [("there", "back"), ("back",)], ids=["cut off", "answers lost"])
def test_the_holder_is_told_in_time_while_a_renewal_hangs(
    furnished: str, postgres_address: tuple[str, int], directions: tuple[str, ...]
) -> None:
    """By its own clock, which began before the request; the next one has it soon after, and is not disturbed."""
    told: list[float] = []
    with ExitStack() as stack:
        hole = stack.enter_context(swallower(postgres_address))
        direct = stack.enter_context(ms.open(furnished))
        with ms.open(hole.url_for(furnished), deadline=30.0) as store:
            lease = store.leases.acquire("work", ttl=TTL, renew_every=TTL / 6, on_lost=lambda _: told.append(now()))
            now = time.monotonic
            assert _is_renewed(lease)
            hole.swallow(*directions)
            cut_at = now()
            waiting = direct.leases.acquire  # waits in line from now on
            assert wait_until(lambda: bool(told), TTL + LATE)  # nobody looks
            assert lease.lost.is_set()
            assert told[0] - cut_at <= TTL + LATE  # the renewal itself would hang for 30 s
            with pytest.raises(ms.LeaseLost):
                lease.check()
            began = now()
            with suppress(ms.DeadlineExceeded):
                lease.release()
            assert now() - began < 1.0 + 1.0 + LATE  # a renewal in flight, and one try
            with waiting("work", ttl=30.0, timeout=2 * TTL) as other:
                hole.recover()
                with pytest.raises(ms.LeaseLost):
                    store.tables.alter(PATH, ms.SetComment("late"), lease=lease)
                assert lease.release() is False
                other.renew()
                holder = direct.leases.holder("work")
                assert holder is not None
                assert holder.token == other.token
    assert late_commits(furnished) == []


def _is_renewed(lease: ms.Lease) -> bool:
    before = lease.expires_at
    return wait_until(lambda: lease.expires_at > before, 5.0)


def test_a_heartbeat_lives_through_a_short_failure(furnished: str, postgres_address: tuple[str, int]) -> None:
    """Unknown is not lost: it is tried again until the own time is over."""
    with PostgresProxy(*postgres_address) as proxy, ms.open(proxy.url_for(furnished)) as store:
        with store.leases.acquire("work", ttl=5.0, renew_every=0.02) as lease:
            for _ in range(5):
                proxy.cut_all()
                assert _is_renewed(lease)
            store.tables.alter(PATH, ms.SetComment("goes on"), lease=lease)
        assert not lease.lost.is_set()
        assert rows(furnished, "SELECT token, owner FROM lease") == [(2, None)]
