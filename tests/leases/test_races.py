"""Field case 54: a take-over that races a commit comes before it or after it, never in its middle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from uuid import uuid4

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres import alter, create, fragments, general_commit_sql
from metastore.backends.sqlite import commit as sqlite_commit
from metastore.port.commit import Commit, CommitOutcome, Conflicted
from metastore.port.conditions import LeaseToken
from tests.concurrency.checks import violations
from tests.concurrency.raw import dsn, is_sqlite, rows, waiting_for_locks
from tests.concurrency.workers import Job, Team, Turn
from tests.leases.fencing import late_commits
from tests.leases.kinds_of_work import S, furnish
from tests.long import long_unless
from tests.servers.process import wait_until

pytestmark = pytest.mark.one_in(3)

PATH = f"{S}.t"
Work = Callable[[ms.Store, ms.Lease], object]


def _transaction(store: ms.Store, lease: ms.Lease) -> object:
    with store.transaction(lease=lease) as tx:
        tx.tables.alter(PATH, ms.SetComment("slow"))
        tx.tables.create(f"{S}.slow")
    return None


def _publish(store: ms.Store, lease: ms.Lease) -> object:
    lease.stage(store.tables.load(PATH), "location", "s3://slow")
    return lease.publish()


ENTITY = "SELECT FROM entity WHERE id = (SELECT id FROM guard WHERE name = 't' AND state = 0) FOR UPDATE"
GUARD = "SELECT FROM guard WHERE name = 't' AND state = 0 FOR KEY SHARE"
NAME = """INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
    SELECT 999999, parent_id, kind, family, 'slow', 'slow', fold, 0, true, 1 FROM guard WHERE name = 't'"""
SLOW: dict[str, tuple[str, Work]] = {
    "create": (NAME, lambda s, lease: s.tables.create(f"{S}.slow", lease=lease)),
    "create_many": (NAME, lambda s, lease: s.tables.create_many(S, [{"name": "slow"}, {"name": "b"}], lease=lease)),
    "alter": (ENTITY, lambda s, lease: s.tables.alter(PATH, ms.SetComment("slow"), lease=lease)),
    "partition": (
        "SELECT FROM owned WHERE name = 'old' FOR UPDATE",
        lambda s, lease: s.partitions.drop(PATH, "old", lease=lease),
    ),
    "transaction": (ENTITY, _transaction),
    "publish": (ENTITY, _publish),
    "drop": (GUARD, lambda s, lease: s.tables.drop(PATH, lease=lease)),
    "rename": (GUARD, lambda s, lease: s.tables.rename(PATH, "slow", lease=lease)),
    "drop cascade": (
        "SELECT FROM guard WHERE name = 's' AND state = 0 FOR KEY SHARE",
        lambda s, lease: s.schemas.drop(S, cascade=True, lease=lease),
    ),
}
"""What keeps a commit waiting inside the database, and the commit."""


TTL_IN_THE_MIDDLE = 3.0
"""Within it a commit must come as far as the row that it waits for, on a busy machine too."""


@contextmanager
def in_the_middle(url: str, blocker: str) -> Iterator[None]:
    """Let a commit of the block wait for a row, until the block ends."""
    with psycopg.connect(dsn(url)) as connection:
        connection.execute(blocker)
        yield
        connection.rollback()


def taken_in_the_middle(url: str, what: str, how: str = "break") -> tuple[str, bool]:
    """Break the lease, or take it over, while a commit under it waits. Return how that ended, and whether we waited."""
    blocker, work = SLOW[what]
    with ms.open(url, principal="slow") as slow, ms.open(url, principal="next") as store, ThreadPoolExecutor(2) as pool:
        lease = slow.leases.acquire("work", ttl=30.0 if how == "break" else TTL_IN_THE_MIDDLE)
        with in_the_middle(url, blocker):
            committing = pool.submit(work, slow, lease)
            assert wait_until(lambda: waiting_for_locks(url) == 1, 20)
            if how == "break":
                breaking: Future[object] = pool.submit(store.leases.break_, "work")
            else:
                assert wait_until(lambda: store.leases.holder("work") is None, 20)
                breaking = pool.submit(store.leases.acquire, "work", owner="the next")
            assert wait_until(lambda: breaking.done() or waiting_for_locks(url) == 2, 20)
            waited = not breaking.done()
            if not waited:  # it has passed the commit: so may the next one
                breaking.result()
                next_one = store.leases.acquire("work") if how == "break" else breaking.result()
                assert isinstance(next_one, ms.Lease)
                store.metalakes.alter("pond", ms.SetComment("next"), lease=next_one)
        assert breaking.result()
        ended = "committed"
        try:
            committing.result()
        except ms.LeaseLost:
            ended = "lost"
    return ended, waited


@pytest.mark.parametrize("how", ["break", "takeover"])
@pytest.mark.parametrize("what", long_unless(SLOW, lambda what: what in ("alter", "partition", "transaction")))
def test_a_take_over_waits_for_a_commit_in_the_middle(postgres_url: str, what: str, how: str) -> None:
    with ms.open(postgres_url) as store:
        furnish(store)
    ended, waited = taken_in_the_middle(postgres_url, what, how)
    assert late_commits(postgres_url) == []
    assert violations(postgres_url) == []
    first = what in ("create", "create_many", "alter")  # these hold the lease's row before they wait for another
    assert (ended, waited) in ([("committed", True)] if first else [("committed", True), ("lost", False)])


def _looks_only(statement: str) -> str:
    fenced = fragments.FENCED
    assert fenced in statement
    return statement.replace(fenced, fenced.replace(" FOR KEY SHARE", ""))


def look_without_holding(patch: pytest.MonkeyPatch) -> None:
    """Check the token by a plain SELECT, without a row lock."""
    patch.setattr(alter, "ALTER_FENCED", _looks_only(alter.ALTER_FENCED))
    patch.setattr(create, "CREATE_FENCED", _looks_only(create.CREATE_FENCED))
    patch.setattr(general_commit_sql, "FENCED", _looks_only(fragments.FENCED))
    general_commit_sql.statement_of.cache_clear()


@pytest.mark.parametrize("what", ["create", "alter", "partition", "transaction"])
def test_the_check_finds_a_token_that_is_only_looked_at(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The negative control, found by the check of our own and by verify: the old token commits after the new one."""
    with ms.open(postgres_url) as store:
        furnish(store)
    with monkeypatch.context() as patch:
        look_without_holding(patch)
        try:
            assert taken_in_the_middle(postgres_url, what) == ("committed", False)
        finally:
            general_commit_sql.statement_of.cache_clear()
    assert late_commits(postgres_url) != []
    with ms.open(postgres_url) as store:
        assert {violation.invariant for violation in store.verify()} == {9}


TTL, PROCESSES, SECONDS = 0.05, 4, 1.2


def commit_while_it_lasts(turn: Turn, number: int, broken: bool) -> dict[str, int]:
    """Take the lease, and commit under it until it is lost; some of the commits are sent late. Count how they ended."""
    store, dice, counts = turn.store, random.Random(number), {"committed": 0, "lost": 0}
    with pytest.MonkeyPatch.context() as patch:
        _send_late(patch, turn, dice, broken)
        turn.meet()
        began = time.monotonic()
        while (now := time.monotonic() - began) < SECONDS or (now < 60 and not _seen(counts)):
            with suppress(ms.LeaseHeld, ms.LeaseLost):  # the latter: the answer came after its time
                _hold_once(store, dice, f"{S}.t{number}", counts)
    return counts


def _seen(counts: dict[str, int]) -> bool:
    """Tell whether each end has come often enough, which takes longer on a busy machine."""
    return counts["committed"] > 2 and counts["lost"] > 0


def _hold_once(store: ms.Store, dice: random.Random, path: str, counts: dict[str, int]) -> None:
    # a busy machine may need longer than that to commit at all
    ttl = TTL if counts["committed"] > 2 else dice.uniform(TTL, 20 * TTL)
    lease = store.leases.acquire("work", ttl=ttl, timeout=1.0)
    with suppress(ms.LeaseLost):
        for _ in range(dice.randrange(1, 9)):
            store.tables.alter(path, ms.SetComment(str(uuid4())), lease=lease)
            counts["committed"] += 1
    counts["lost"] += lease.lost.is_set()
    if dice.random() < 0.7:
        lease.release()
    if dice.random() < 0.2:
        store.leases.break_("work")


def _send_late(patch: pytest.MonkeyPatch, turn: Turn, dice: random.Random, broken: bool) -> None:
    """Let some commits come late. Broken: the token is compared before, in a question of its own."""
    backend = turn.store._session.backend
    original = backend.commit

    def has_all(value: Commit) -> bool:
        return all(_has(turn.url, lease) for lease in value.leases)

    def commit(value: Commit) -> CommitOutcome:
        if broken and not has_all(value):
            return Conflicted("lease")
        if broken and dice.random() < 0.5:
            wait_until(lambda: not has_all(value), 1.0)
        elif dice.random() < 0.3:
            time.sleep(dice.uniform(0.5 * TTL, 2 * TTL))
        return original(value)

    patch.setattr(backend, "commit", commit)
    if broken:
        _accept_all(patch, turn.url)


def _has(url: str, lease: LeaseToken) -> bool:
    return rows(url, f"SELECT token FROM lease WHERE name = '{lease.name}'") == [(lease.token,)]


def _accept_all(patch: pytest.MonkeyPatch, url: str) -> None:
    """Let the statement write down its leases, and require nothing of them."""
    if is_sqlite(url):
        patch.setattr(sqlite_commit, "check_leases", lambda *_: None)
        return
    fenced = fragments.FENCED
    any_token = fenced[: fenced.index("AND token")] + ")"
    patch.setattr(alter, "ALTER_FENCED", alter.ALTER_FENCED.replace(fenced, any_token))


def race(team: Team, url: str, *, broken: bool = False) -> list[dict[str, int]]:
    with ms.open(url) as store:
        furnish(store)
        for n in range(PROCESSES):
            store.tables.create(f"{S}.t{n}")
    counts: list[dict[str, int]] = team.run(url, [Job(commit_while_it_lasts, n, broken) for n in range(PROCESSES)])
    return counts


def test_commits_race_take_overs_and_breaks(team: Team, url: str) -> None:
    counts = race(team, url)
    assert late_commits(url) == []
    assert violations(url) == []
    ((noted,),) = rows(url, "SELECT count(*) FROM operation WHERE fences IS NOT NULL")
    assert noted == sum(count["committed"] for count in counts) > 5
    assert sum(count["lost"] for count in counts) > 0, counts
    ((over,),) = rows(url, "SELECT count(*) FROM operation WHERE action = 'takeover'")
    assert over > 0


@pytest.mark.long
def test_the_race_finds_a_token_that_is_checked_before(team: Team, url: str) -> None:
    """The negative control: the token is compared in a question of its own, before the commit is sent."""
    counts = race(team, url, broken=True)
    assert late_commits(url) != [], counts
    with ms.open(url) as store:
        assert 9 in [violation.invariant for violation in store.verify()]
