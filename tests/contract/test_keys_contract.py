"""Keys of any text promise what operation ids promise: the same tests, with keys in place of UUIDv7s, and their own."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metastore as ms
from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.sqlite.backend import SqliteBackend
from metastore.clock import SYSTEM, Clock
from metastore.port.backend import Backend
from metastore.port.commit import Commit, Committed, Conflicted, Unknown
from metastore.retry.policy import RetryPolicy
from metastore.urls import parse_url
from tests.contract import test_exactly_once_contract as exactly_once
from tests.contract import test_lost_answers_contract as lost_answers
from tests.contract.ground import Ground, prepare

pytestmark = pytest.mark.one_in(3)


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the other modules' tests take a key wherever they take a new operation id."""
    numbers = itertools.count()
    for module in (exactly_once, lost_answers):
        monkeypatch.setattr(module, "new_id", lambda: ms.key(f"request {next(numbers)}", scope="ada"))


@pytest.mark.each_run_on("sqlite")
@pytest.mark.usefixtures("_keys")
class TestRepeats(exactly_once.TestRepeats):
    """A repeat returns, or raises, what the first call did."""


@pytest.mark.each_run_on("sqlite")
@pytest.mark.usefixtures("_keys")
class TestArguments(exactly_once.TestArguments):
    """A repeat with other arguments is refused."""

    test_ids_that_cannot_be_told = None  # type: ignore[assignment]  # a key says no time; see TestTime


@pytest.mark.each_run_on("sqlite")
@pytest.mark.usefixtures("_keys")
class TestLostAnswers(lost_answers.TestLostAnswers):
    """Whatever was lost: applied once."""


class TestKeys:
    def test_other_scopes_and_texts_are_other_operations(self, ground: Ground) -> None:
        made = [
            ground.store.schemas.create(f"m.c.made{n}", operation_id=ms.key(text, scope=scope))
            for n, (text, scope) in enumerate([("k", ""), ("k", "ada"), ("k", "bob"), ("ka", "da"), ("K", "ada")])
        ]
        assert len({one.id for one in made}) == len(made)

    def test_reused_with_other_arguments(self, ground: Ground) -> None:
        own = ms.key("request 1", scope="ada")
        first = ground.store.schemas.create("m.c.made", operation_id=own)
        for _ in range(2):
            with pytest.raises(ms.OperationIdReused, match="other arguments"):
                ground.store.schemas.create("m.c.other", operation_id=own)
            with pytest.raises(ms.OperationIdReused, match="other arguments"):
                ground.store.schemas.drop("m.c.made", operation_id=own)
        assert ground.store.schemas.create("m.c.made", operation_id=own) == first

    def test_the_outcome_is_known_under_the_key(self, ground: Ground) -> None:
        own = ms.key("request 1")
        assert ground.store.outcome(own).state == "unknown"
        made = ground.store.schemas.create("m.c.made", operation_id=own)
        assert ground.store.outcome(ms.key("request 1")) == ms.Outcome("committed", made)
        assert [step.operation_id for step in ground.store.schemas.history(made)] == [own]

    def test_many_threads_with_one_key(self, ground: Ground) -> None:
        """Each round is a change that would fail, or count, the second time."""
        with ThreadPoolExecutor(8) as pool:
            for n in range(5):
                own = ms.key(f"round {n}")
                made = list(
                    pool.map(lambda _, n=n, o=own: ground.store.schemas.create(f"m.c.r{n}", operation_id=o), range(8))
                )
                assert {(one.id, one.version) for one in made} == {(made[0].id, 1)}
                change = ms.SetProperty("round", str(n), expected=None if n == 0 else str(n - 1))
                own = ms.key(f"change {n}")
                changed = list(
                    pool.map(
                        lambda _, c=change, o=own: ground.store.tables.alter("m.c.one.t", c, operation_id=o), range(8)
                    )
                )
                assert {one.version for one in changed} == {n + 2}


@given(st.text(), st.text(), st.text(), st.text())
def test_a_key_is_a_uuid8_and_depends_on_both(text: str, scope: str, other: str, other_scope: str) -> None:
    if not text or not other or "\ud800" <= max(text + scope + other + other_scope) <= "\udfff":
        return
    own = ms.key(text, scope=scope)
    assert (own.version, own.variant) == (8, "specified in RFC 4122")
    assert own == ms.key(text, scope=scope)
    assert (own == ms.key(other, scope=other_scope)) == ((text, scope) == (other, other_scope))


def test_a_key_never_changes() -> None:
    """Another process, and another version of this library, must find what this one wrote."""
    assert ms.key("request 1", scope="ada") == UUID("2bba3cdb-bd95-8854-b35d-349be1536152")
    assert ms.key("é\0") == UUID("8a53c873-d46b-86a1-abe7-09080597e77c")


@pytest.mark.parametrize(
    ("text", "scope"), [("", "ada"), (5, ""), (None, ""), (b"k", ""), ("k", None), ("\ud800", ""), ("k", "\ud800")]
)  # fmt: skip
def test_what_is_no_key(text: Any, scope: Any) -> None:
    with pytest.raises(ms.InvalidArgument):
        ms.key(text, scope=scope)


class _Later(Clock):
    """The system's clock, moved ahead by hand."""

    ahead = 0

    def micros(self) -> int:
        return SYSTEM.micros() + _Later.ahead


class _Keeping:
    """A backend that keeps each commit, so that it can be delivered once more; the answer of some is lost."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.sent: list[Commit] = []
        self.swallow = False

    def commit(self, commit: Commit) -> Any:
        self.sent.append(commit)
        return Unknown("the wire was cut") if self.swallow else self._backend.commit(commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@pytest.fixture(params=["memory", "sqlite"])
def moving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    """Give a store whose time, and whose database's time, can be moved ahead."""
    _Later.ahead, clock = 0, _Later()
    backend: Any = MemoryBackend(clock)
    if request.param == "sqlite":
        backend = SqliteBackend(str(tmp_path / "moving.db"), 30.0, clock)
        backend.migrate()
    store = ms.Store(parse_url("memory://"), _Keeping(backend), RetryPolicy(), "tester", clock)
    yield prepare(store)
    store.close()


def _pass(time: timedelta) -> None:
    _Later.ahead += time // timedelta(microseconds=1)


DAY = timedelta(days=1)


class TestTime:
    def test_hours_later_the_first_result_comes_back(self, moving: Ground) -> None:
        own = ms.key("request 1")
        made = moving.store.schemas.create("m.c.made", operation_id=own)
        assert moving.store.schemas.drop("m.c.made")
        _pass(6 * DAY)
        moving.store.gc(retention=7 * DAY, keep_versions=1)
        assert moving.store.schemas.create("m.c.made", operation_id=own) == made
        assert not moving.store.schemas.exists("m.c.made")

    def test_a_late_message_is_refused_after_gc(self, moving: Ground) -> None:
        """The row that it would meet is gone: the time of its call keeps it out."""
        own = ms.key("request 1")
        keeping: Any = moving.backend
        made = moving.store.schemas.create("m.c.made", operation_id=own)
        original = keeping.sent[-1]
        assert original.operation_id == own
        assert moving.store.schemas.drop("m.c.made")
        _pass(8 * DAY)
        moving.store.schemas.create("m.c.newest")
        moving.store.gc(retention=7 * DAY, keep_versions=1)
        assert not moving.backend.steps(own)
        assert moving.backend.commit(original) == Conflicted("stale_id")
        again = moving.store.schemas.create("m.c.made", operation_id=own)  # a week later it is another request
        assert again.id != made.id
        assert moving.backend.commit(original) in (Conflicted("stale_id"), Conflicted("operation"))

    def test_a_message_that_was_given_up_never_lands(self, moving: Ground) -> None:
        """A repeat takes the operation over; the first call's message comes after it, and again after gc."""
        own = ms.key("request 1")
        keeping: Any = moving.backend
        keeping.swallow = True
        store = moving.store
        with pytest.raises(ms.MetastoreError):
            store.schemas.create("m.c.made", operation_id=own, deadline=0.05)
        keeping.swallow = False
        late = [commit for commit in keeping.sent if commit.operation_id == own]
        made = store.schemas.create("m.c.made", operation_id=own)
        assert store.schemas.drop(made)
        for _ in range(2):
            assert not any(isinstance(keeping._backend.commit(one), Committed) for one in late)
            _pass(9 * DAY)
            store.schemas.create(f"m.c.newest{_Later.ahead}")
            store.gc(retention=7 * DAY, keep_versions=1)
        assert not moving.backend.steps(own)

    def test_a_clock_that_is_ahead_is_refused(self, moving: Ground) -> None:
        session: Any = moving.store._session
        session.clock = type("Ahead", (Clock,), {"micros": lambda self: SYSTEM.micros() + 600_000_000})()
        with pytest.raises(ms.InvalidArgument, match="this machine's clock differs"):
            moving.store.schemas.create("m.c.made", operation_id=ms.key("request 1"))


def test_after_gc(ground: Ground) -> None:
    """Right after a gc that keeps nothing: the first result, or a refusal; never a second application."""
    own = ms.key("request 1")
    made = ground.store.schemas.create("m.c.made", operation_id=own)
    assert ground.store.schemas.drop("m.c.made")
    ground.store.gc(retention=timedelta(0), keep_versions=1)
    try:
        assert ground.store.schemas.create("m.c.made", operation_id=own) == made
    except ms.InvalidArgument as error:
        told = str(error)
        assert "cannot be distinguished from one that gc has forgotten" in told
    assert not ground.store.schemas.exists("m.c.made")


_SPAWN = multiprocessing.get_context("spawn")
_barriers: list[Barrier] = []
ROUNDS = 12


def _begin(barrier: Barrier) -> None:
    _barriers.append(barrier)


def _ask(url: str) -> list[tuple[int, int]]:
    found = []
    with ms.open(url) as store:
        for n in range(ROUNDS):
            _barriers[0].wait(60)
            made = store.schemas.create(f"m.c.r{n}", operation_id=ms.key(f"create {n}", scope="ada"))
            _barriers[0].wait(60)
            change = ms.SetProperty("n", str(n), expected=None if n == 0 else str(n - 1))
            changed = store.tables.alter("m.c.one.t", change, operation_id=ms.key(f"alter {n}", scope="ada"))
            found += [(made.id, made.version), (changed.id, changed.version)]
    return found


@pytest.mark.parametrize("chosen", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_two_processes_with_the_same_key_at_once(chosen: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{chosen}_url")
    with ms.open(url) as store:
        ground = prepare(store)
        with ProcessPoolExecutor(2, _SPAWN, _begin, (_SPAWN.Barrier(2),)) as pool:
            one, other = pool.map(_ask, [url, url])
        assert one == other
        assert store.tables.load("m.c.one.t").version == 1 + ROUNDS
        assert [step.version for step in store.tables.history(ground.table)] == list(range(1, ROUNDS + 2))
        created = [c.path_after for c in store.changes() if c.action == "create"]
        assert len(created) == len(set(created))
        assert store.verify() == []
