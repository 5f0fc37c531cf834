"""A token that is not the lease's own does nothing: an older one, and the same number in another holder's hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

import metastore as ms
from metastore import Store
from metastore.backends.sql.tables import metadata
from metastore.leases.book import Refusal, Want
from metastore.port.commit import Committed, Conflicted, Unknown
from metastore.port.conditions import LeaseToken
from metastore.port.leases import DOOMED, STAGED, Mirror, Take, Taken
from tests.contract.ground import Ground, dump, insert

pytestmark = pytest.mark.one_in(3, on="postgres")  # each run tries every case on SQLite

TTL = 60_000_000
NAME = "work"


def _taken(ground: Ground, incarnation: str) -> LeaseToken:
    """Take the lease, and return its token."""
    operation_id = ground.store._session.clock.operation_id()
    answer = ground.backend.leases.take(Take(operation_id, "ada", (NAME,), (NAME,), "ada", incarnation, TTL, None))
    assert isinstance(answer, Taken)
    (row,) = answer.rows
    return LeaseToken(NAME, row.id, row.token, incarnation)


def _broken(ground: Ground) -> None:
    assert ground.backend.leases.break_(NAME, NAME, ground.store._session.clock.operation_id(), "bob")


def _older(ground: Ground) -> tuple[LeaseToken, LeaseToken]:
    """The same process lost the lease, and took it again."""
    mine = _taken(ground, "one")
    _broken(ground)
    return mine, _taken(ground, "one")


def _of_a_lost_future(ground: Ground) -> tuple[LeaseToken, LeaseToken]:
    """A backup was put back after this holder had taken the lease: another process draws the same number."""
    theirs = _taken(ground, "two")
    return replace(theirs, incarnation="one"), theirs


@pytest.fixture(params=[_older, _of_a_lost_future])
def tokens(request: pytest.FixtureRequest, ground: Ground) -> tuple[LeaseToken, LeaseToken]:
    """Give a token that is not the lease's own, and the one that is."""
    made: Callable[[Ground], tuple[LeaseToken, LeaseToken]] = request.param
    return made(ground)


def test_it_does_nothing(ground: Ground, tokens: tuple[LeaseToken, LeaseToken]) -> None:
    wrong, right = tokens
    leases = ground.backend.leases
    before = dump(ground.backend)
    assert leases.renew([wrong], 2 * TTL) is None
    assert leases.release([wrong], [NAME], ground.store._session.clock.operation_id(), "ada") == 0
    assert leases.stage(wrong, uuid4(), ground.table.id, "k", "v", "ada") is False
    refused = ground.send(insert(ground.catalog, "under_a_wrong_token"), leases=(wrong,))
    assert isinstance(refused, Conflicted)
    assert refused.cause == "lease"
    assert dump(ground.backend) == before

    assert isinstance(ground.send(insert(ground.catalog, "under_the_right_token"), leases=(right,)), Committed)
    assert leases.stage(right, uuid4(), ground.table.id, "k", "v", "ada") is True
    assert leases.renew([right], 2 * TTL) is not None
    assert leases.release([right], [NAME], ground.store._session.clock.operation_id(), "ada") == 1
    (free,) = leases.rows([NAME], "", 1)[1]
    assert (free.owner, free.incarnation, free.acquired_at, free.expires_at) == (None,) * 4


def test_one_wrong_token_of_two_is_refused(ground: Ground, tokens: tuple[LeaseToken, LeaseToken]) -> None:
    wrong, right = tokens
    other = Take(
        ground.store._session.clock.operation_id(), "ada", ("other",), ("other",), "ada", right.incarnation, TTL, None
    )
    answer = ground.backend.leases.take(other)
    assert isinstance(answer, Taken)
    beside = LeaseToken("other", answer.rows[0].id, answer.rows[0].token, right.incarnation)
    assert ground.backend.leases.renew([wrong, beside], TTL) is None
    refused = ground.send(insert(ground.catalog, "x"), leases=(beside, wrong))
    assert isinstance(refused, Conflicted)
    assert refused.cause == "lease"


def test_a_refusal_says_how_long_the_lease_is_held(store: Store) -> None:
    """A waiter looks again after that time: it must not ask all the time."""
    store.leases.acquire(NAME, ttl=60.0)
    answer = store.leases._book.take(Want((NAME,), "bob", "another", 60.0))
    assert isinstance(answer, Refusal)
    assert 30 < answer.seconds <= 60


def test_only_one_value_is_doomed(ground: Ground) -> None:
    leases, old = ground.backend.leases, _taken(ground, "one")
    first, second = sorted([uuid4(), uuid4()])
    for one in (first, second):
        assert leases.stage(old, one, ground.table.id, "k", str(one), "ada")
    _broken(ground)
    assert leases.doom(first)
    assert [row.state for row in leases.left_behind(UUID(int=0), 9)] == [DOOMED, STAGED]


def test_the_commits_after_a_position(ground: Ground) -> None:
    token = _taken(ground, "one")
    for name in ("first", "second"):
        ground.send(insert(ground.catalog, name), leases=(token,))
    first, second = ground.backend.leases.fenced(token.id, 0, 9)
    assert ground.backend.leases.fenced(token.id, first.seq, 9) == [second]


def test_what_is_dumped_has_the_leases(ground: Ground) -> None:
    """Else the comparison above would see nothing of a renewal."""
    assert {"lease", "staged"} <= metadata.tables.keys()
    _taken(ground, "one")
    assert dump(ground.backend)["lease"]


def test_a_call_that_changes_nothing_needs_its_lease(store: Store) -> None:
    """Its caller goes on as if it held the lease."""
    store.metalakes.create("m", comment="as it is")
    with store.leases.acquire(NAME) as lease:
        assert store.metalakes.alter("m", ms.SetComment("as it is"), lease=lease).version == 1
        assert store.leases.break_(NAME)
        with pytest.raises(ms.LeaseLost):
            store.metalakes.alter("m", ms.SetComment("as it is"), lease=lease)
        with pytest.raises(ms.LeaseLost):
            store.metalakes.create("m", if_exists="return", lease=lease)
        with pytest.raises(ms.LeaseLost), store.transaction(lease=lease) as tx:
            assert tx.metalakes.load("m").comment == "as it is"


def test_the_audit_names_what_was_written_under_the_lease(store: Store) -> None:
    with store.leases.acquire(NAME) as lease, store.leases.acquire("other") as other:
        store.metalakes.create("m", lease=lease)
        store.metalakes.create("not_under_it", lease=other)
        store.metalakes.drop("m", lease=lease)
    assert [event.path for event in store.leases.audit(NAME) if event.action == "commit"] == ["m", "m"]
    assert [event.path for event in store.leases.audit("other") if event.action == "commit"] == ["not_under_it"]


def _take(ground: Ground, operation_id: UUID, incarnation: str) -> object:
    return ground.backend.leases.take(Take(operation_id, None, (NAME,), (NAME,), "ada", incarnation, TTL, None))


def test_a_call_that_was_forbidden_takes_nothing(ground: Ground) -> None:
    operation_id = uuid4()
    ground.backend.forbid(operation_id)
    assert _take(ground, operation_id, "one") == Conflicted("operation")
    mirror = Mirror(operation_id, None, NAME, NAME, None, "ada", "one")
    assert ground.backend.leases.mirror(mirror) == Conflicted("operation")
    assert list(ground.store.leases.list()) == []


@pytest.mark.parametrize("action", ["break", "release"])
def test_a_repetition_meets_nobody_else(ground: Ground, action: str) -> None:
    """Its answer was lost, and another process took the lease meanwhile."""
    leases, operation_id = ground.backend.leases, uuid4()
    mine = _taken(ground, "one")

    def send() -> object:
        if action == "break":
            return leases.break_(NAME, NAME, operation_id, "bob")
        return leases.release([mine], [NAME], operation_id, "ada")

    assert send() == 1
    theirs = _taken(ground, "two")
    assert send() == 1
    assert leases.renew([theirs], TTL) is not None


@pytest.mark.parametrize("action", ["break", "release"])
def test_who_never_got_an_answer_is_not_told_that_nothing_happened(ground: Ground, action: str) -> None:
    store = ground.store.bind(deadline=0.2)
    lease = store.leases.acquire(NAME)
    book = store.leases._database
    rows = book._rows

    class Losing:
        def __getattr__(self, verb: str) -> Any:
            def lost(*sent: Any) -> Unknown:
                getattr(rows, verb)(*sent)
                return Unknown("cut")

            return lost

    book._rows = Losing()
    with pytest.raises(ms.OutcomeUnknown) as raised:
        store.leases.break_(NAME) if action == "break" else lease.release()
    assert ground.store.outcome(raised.value.operation_id).state == "committed"


def test_what_is_kept_elsewhere_has_no_holder_here(ground: Ground) -> None:
    """Who held a lease of that name has lost it, and nobody waits for the end of its time."""
    mine = _taken(ground, "one")
    mirrored = ground.backend.leases.mirror(Mirror(uuid4(), None, NAME, NAME, None, "bob", "two"))
    assert isinstance(mirrored, LeaseToken)
    assert mirrored.token == mine.token + 1
    assert ground.backend.leases.renew([mine], TTL) is None
    (row,) = ground.backend.leases.rows([NAME], "", 10)[1]
    assert (row.owner, row.incarnation, row.expires_at) == (None, "two", None)
    assert isinstance(_take(ground, uuid4(), "three"), Taken)
