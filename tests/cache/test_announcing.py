"""A writer's announcements: who is given up for them, and what becomes of those that nobody will use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn, cast
from uuid import UUID, uuid4

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres import members as sql
from metastore.backends.postgres import silence
from metastore.backends.postgres.announcing import Announcing, Pass, Unannounced
from metastore.backends.postgres.parameters import Statement
from metastore.cache.leased import Leased
from metastore.cache.membership import Shown
from metastore.clock import Clock
from metastore.port.batches import AlterStep, AlterTogether, Batch
from metastore.port.commit import Conflicted, Unknown
from metastore.port.intents import Help, Resolution
from metastore.port.members import Covered
from tests.cache.kept import lake, leased
from tests.concurrency.raw import dsn

TTL = 10_000_000


class _Fast(Clock):
    """A clock that each look moves on by a second."""

    def __init__(self) -> None:
        object.__setattr__(self, "now", 0.0)

    def monotonic(self) -> float:
        object.__setattr__(self, "now", self.now + 1.0)  # type: ignore[attr-defined]
        return self.now  # type: ignore[attr-defined]

    def sleep(self, seconds: float) -> None:
        pass


class _Members:
    """One member, as the database shows it. It renews at the moment between the judgement and the eviction."""

    def __init__(self) -> None:
        self.renewals, self.there, self.evictions = 1, True, list[Any]()
        self.announcing = Announcing(self.ask, 1e6, _Fast())

    def rows(self) -> list[Any]:
        return [(7, "one", self.renewals, TTL, False)] if self.there else []

    def ask(self, text: str, parameters: dict[str, Any]) -> list[Any]:
        if text == sql.ANNOUNCE:
            return [(100, "")]
        if text == silence.ACKNOWLEDGED:
            return self.rows()
        if text == silence.EVICT:
            if not self.evictions:  # it was stopped, and goes on; another thread of the writer sees that first
                self.renewals += 1
                self.announcing.silence.noted(self.rows(), 1e3)
            self.evictions.append(parameters["renewals"])
            self.there = self.there and parameters["renewals"] != self.renewals
            return [] if self.there else [(1,)]
        return [(0,)]


def test_a_member_that_renews_after_it_was_judged_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    members = _Members()
    monkeypatch.setattr(members.announcing, "_watch", lambda: None)
    members.announcing._announced(Covered(ids=frozenset([1])))
    assert members.evictions == [1, 2], "the first one was of the renewals that were seen, and changed nothing"


def test_the_renewals_of_an_eviction_are_those_that_were_judged() -> None:
    members = _Members()
    (judged,) = members.announcing.silence.noted(members.rows(), 0.0)
    members.renewals = 2
    members.announcing.silence.noted(members.rows(), 1.0)
    members.evictions.append("begun")
    members.announcing.silence.give_up(members.ask, judged)
    assert members.there


@pytest.fixture
def announcing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Announcing]:
    """Give what announces in a database with a member. No thread watches it: so nothing else takes anything away."""
    lake(postgres_url)
    monkeypatch.setattr(Announcing, "_watch", lambda self: None)
    with leased(postgres_url), ms.open(postgres_url) as store:
        yield cast(Any, store._session.backend)._announcing


def _left(url: str) -> list[int]:
    with psycopg.connect(dsn(url), autocommit=True) as raw:
        return [row[0] for row in raw.execute("SELECT id FROM cache_announcement ORDER BY id").fetchall()]


def _sent(url: str, announcing: Announcing, operations: list[UUID], outcome: object = None) -> object:
    """Send a commit that writes nothing, for these operations; an error is raised in its transaction."""
    again = operations[0] if len(operations) == 1 else None

    def send(may: Pass) -> object:
        with psycopg.connect(dsn(url)) as raw:
            for statement in may.around([Statement("SELECT 1", {})], again):
                raw.execute(statement.text.encode(), statement.parameters)
            if isinstance(outcome, Exception):
                raise outcome
        return outcome

    return announcing.send(send, lambda: Covered(ids=frozenset([1])), lambda: operations)


def test_a_batch_that_wrote_nothing_takes_its_announcement_away(postgres_url: str, announcing: Announcing) -> None:
    """Its requests go with other batches. A member would keep nothing of what it covers as long as it is there."""
    _sent(postgres_url, announcing, [uuid4(), uuid4()], [])
    assert _left(postgres_url) == []


@pytest.mark.usefixtures("announcing")
@pytest.mark.parametrize("helps", [False, True], ids=["alter", "help"])
def test_a_batch_of_one_that_lost_takes_its_announcement_away(postgres_url: str, *, helps: bool) -> None:
    """Its request goes with another batch, too: nobody uses the announcement again."""
    with ms.open(postgres_url) as store:
        table, backend, one = store.tables.load("lake.c.s.t"), cast(Any, store._session.backend), uuid4()
        own, doc = table.record.chain[-1], table.record.doc
        if helps:
            backend.help(Help((), own.id, 99, table.path, (Resolution(one, "alter", None, doc),)))
        else:
            steps = (AlterStep(one, None, doc, "[]"),)
            late = AlterTogether((), own.id, 99, own.scope_version, "table", table.path, steps)
            backend.write_together(Batch(alters=[late]), 50)
        assert _left(postgres_url) == []


@pytest.mark.usefixtures("announcing")
def test_bulk_that_makes_nothing_takes_its_announcement_away(postgres_url: str) -> None:
    with ms.open(postgres_url) as store:
        assert store.tables.create_many("lake.c.s", [{"name": "t"}], if_exists="return") == 0
        assert _left(postgres_url) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ms.BackendUnavailable("cut")], ids=["interrupt", "cut"])
def test_an_announcement_whose_answer_was_lost_is_withdrawn(
    postgres_url: str, announcing: Announcing, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    ask = announcing._ask

    def lost(text: str, parameters: dict[str, Any]) -> list[Any]:
        rows = ask(text, parameters)
        if text == sql.ANNOUNCE:
            raise error
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(announcing, "_ask", lost)
        with pytest.raises(type(error)):
            _sent(postgres_url, announcing, [uuid4()])
    assert _left(postgres_url)
    announcing._clear_away()  # what the thread that watches does
    assert _left(postgres_url) == []


def test_an_announcement_that_is_sent_again_must_be_acknowledged_again(postgres_url: str) -> None:
    """Its connection was lost, and nobody knows whether the first one arrived."""
    lake(postgres_url)
    with psycopg.connect(dsn(postgres_url), autocommit=True) as raw:
        parameters = sql.announce_parameters(Covered(ids=frozenset([1])))
        xids = [raw.execute(sql.ANNOUNCE.encode(), parameters).fetchone() for _ in range(2)]
        assert xids[0] != xids[1]
        found = raw.execute("SELECT id, xid FROM cache_announcement").fetchall()
        assert [(row[0], row[1]) for row in found] == [(parameters["id"], cast(Any, xids[1])[0])]


def test_what_could_not_be_withdrawn_is_withdrawn_later(
    postgres_url: str, announcing: Announcing, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sent(postgres_url, announcing, [uuid4()], Conflicted("self"))

    def cut(*_: object) -> NoReturn:
        raise ms.BackendUnavailable("cut")

    with monkeypatch.context() as patch, suppress(ms.BackendUnavailable):
        patch.setattr(announcing, "_ask", cut)
        announcing._clear_away(keeps=False)
    assert _left(postgres_url)
    announcing._clear_away()
    assert _left(postgres_url) == []


def test_one_operation_that_lost_uses_its_announcement_again(postgres_url: str, announcing: Announcing) -> None:
    one, other = uuid4(), uuid4()
    _sent(postgres_url, announcing, [one], Conflicted("self"))
    kept = _left(postgres_url)
    _sent(postgres_url, announcing, [one], Conflicted("self"))
    assert _left(postgres_url) == kept != []
    _sent(postgres_url, announcing, [one, other], [])  # it goes with a batch now
    assert _left(postgres_url) == []


@pytest.mark.parametrize("outcome", [RuntimeError("sent, perhaps"), Unknown("cut")], ids=["error", "unknown"])
@pytest.mark.parametrize("count", [1, 2])
def test_what_nobody_will_use_is_withdrawn(postgres_url: str, announcing: Announcing, outcome: Any, count: int) -> None:
    operations = [uuid4() for _ in range(count)]
    _sent(postgres_url, announcing, operations[:1], Conflicted("self"))
    with suppress(RuntimeError):
        _sent(postgres_url, announcing, operations, outcome)
    announcing._clear_away()  # what the thread that watches does
    assert _left(postgres_url) == []


def test_an_announcement_that_a_commit_uses_is_not_forgotten(postgres_url: str, announcing: Announcing) -> None:
    """However long the commit takes before it logs its first change. Else it would announce again for ever."""

    def send(may: Pass) -> list[int]:
        first = may.around([Statement("SELECT 1", {})], uuid4())[0]
        with psycopg.connect(dsn(postgres_url)) as raw, psycopg.connect(dsn(postgres_url), autocommit=True) as member:
            raw.execute(first.text.encode(), first.parameters)
            member.execute("UPDATE cache_announcement SET at = 0")
            member.execute(sql.FORGET.encode())
            return _left(postgres_url)

    assert len(announcing.send(send, lambda: Covered(ids=frozenset([1])), lambda: [uuid4()])) == 1


def test_a_short_ttl_takes_no_announcement_of_a_writer_that_waits(postgres_url: str) -> None:
    """It waits for a member with a long one. Without its announcement it would announce again until its deadline."""
    lake(postgres_url)
    with (
        leased(postgres_url, ttl=60.0) as slow,
        leased(postgres_url, ttl=0.2) as fast,
        psycopg.connect(dsn(postgres_url), autocommit=True) as raw,
    ):
        raw.execute(sql.ANNOUNCE.encode(), sql.announce_parameters(Covered(ids=frozenset([1]))))

        def tidied_at(age: float) -> list[int]:
            raw.execute("UPDATE cache_announcement SET at = %s", [int((time.time() - age) * 1e6)])
            for store in (slow, fast):
                backend = cast(Any, store._session.backend)
                wake = backend.cache_members.wake()
                backend.cache_members.tidy(wake)
                wake.close()
            return _left(postgres_url)

        assert len(tidied_at(30.0)) == 1, "a call with the default deadline may wait"
        assert len(tidied_at(2 * 61.2)) == 1, "so long it may wait for the slow member"
        assert tidied_at(200.0) == []


def test_a_write_beside_a_slow_member_and_one_with_a_short_ttl(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one takes longer to acknowledge than announcements would live for the one with the short ttl."""
    lake(postgres_url)
    with leased(postgres_url) as slow, leased(postgres_url, ttl=0.2), ms.open(postgres_url) as other:
        member = cast(Leased, slow._session.cache)._member
        see = member._see

        def seen(*arguments: Any) -> Shown:
            time.sleep(1.0)
            return see(*arguments)

        monkeypatch.setattr(member, "_see", seen)
        other.tables.alter("lake.c.s.t", ms.SetComment("new"), deadline=6.0)


def test_the_error_at_the_deadline_says_that_it_was_announced_again(
    postgres_url: str, announcing: Announcing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time somebody takes the announcement away. No member is to blame."""
    times = iter([True, True, False])

    def send(_: Pass) -> object:
        if not next(times):
            monkeypatch.setattr(announcing, "_timeout", 0.0)
        raise Unannounced

    with pytest.raises(ms.DeadlineExceeded, match=r"refused 3 times, because .* was removed") as error:
        announcing.send(send, lambda: Covered(ids=frozenset([1])), lambda: [uuid4()])
    assert "did not acknowledge" not in str(error.value)


def test_closing_withdraws_what_is_kept(postgres_url: str, announcing: Announcing) -> None:
    _sent(postgres_url, announcing, [uuid4()], Conflicted("self"))
    assert _left(postgres_url)
    announcing.close()
    assert _left(postgres_url) == []


def test_closing_withdraws_what_a_call_under_way_leaves(postgres_url: str) -> None:
    """The store is closed after the change was announced, and before its commit is sent."""
    lake(postgres_url)
    with leased(postgres_url), ms.open(postgres_url) as writer:
        announcing = cast(Any, writer._session.backend)._announcing
        wait = announcing._wait

        def waited(xid: int) -> None:
            wait(xid)
            writer.close()

        announcing._wait = waited
        with pytest.raises(ms.StoreClosed):
            writer.tables.alter("lake.c.s.t", ms.SetComment("late"))
        assert _left(postgres_url) == []
