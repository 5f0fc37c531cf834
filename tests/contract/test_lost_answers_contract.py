"""What every store promises when an answer is lost: applied once, and the repeat with its id says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import pytest

import metastore as ms
from metastore import Store
from metastore.clock import SYSTEM
from metastore.deadlines import cleaning
from metastore.errors import BackendUnavailable
from metastore.port.commit import Committed, Unknown
from tests.combine.gate import full_operations
from tests.contract.calls import CALLS, T
from tests.contract.ground import Ground
from tests.contract.intents import new_id

_LONGEST = 30.0
"""How long a test waits for what must come (seconds)."""


@contextmanager
def losing(store: Store, *, calls: tuple[str, ...], really: bool, answers: int | None) -> Iterator[None]:
    """Lose the answer to the next of ``calls``; what it did is done ``really``, or not.

    After that the database cannot be asked; or, with ``answers``, after so many questions it can.
    """
    session = store._session
    backend = session.backend
    lost: list[str] = []
    asked: list[UUID] = []

    class Losing:
        def __getattr__(self, name: str) -> Any:
            original = getattr(backend, name)
            if name == "forbid" and lost:
                return self._forbid
            if name not in calls or lost:
                return original

            def lose(value: Any) -> Any:
                if name == "commit" and not value.writes:
                    return original(value)  # it only asks
                lost.append(name)
                with cleaning(SYSTEM.monotonic() + _LONGEST):  # a busy machine may need more than the call has left
                    assert not really or isinstance(original(value), Committed)
                return Unknown("the wire was cut")

            return lose

        def _forbid(self, operation_id: UUID, life: float) -> int | None:
            asked.append(operation_id)
            if answers is None or len(asked) <= answers:
                raise BackendUnavailable("not there")
            return backend.forbid(operation_id, life)

    session.backend = Losing()
    try:
        with full_operations(store):
            yield
        assert lost
        assert asked
    finally:
        session.backend = backend


LOST = ("create", "alter", "rename", "drop", "restore", "partition", "drop a partition", "purge")


def within(name: str, ground: Ground, own: UUID | None, seconds: float) -> Any:
    """Make the call with another deadline; with a longer one, if it was over before anything was sent."""
    session = ground.store._session
    policy = session.policy
    try:
        for deadline in (seconds, 20 * seconds, _LONGEST):
            session.policy = type(policy)(deadline=deadline)
            with suppress(ms.DeadlineExceeded):
                return CALLS[name](ground, own)
        raise AssertionError(f"{name} had no answer in {_LONGEST} s")
    finally:
        session.policy = policy


class TestLostAnswers:
    @pytest.mark.one_in(3, on="postgres")
    @pytest.mark.parametrize("really", [True, False], ids=["applied", "not applied"])
    @pytest.mark.parametrize("name", LOST)
    def test_repeated_with_its_id(self, ground: Ground, name: str, really: bool) -> None:
        """Whether the caller gave the id, or took it from the error."""
        start = ground.dump()
        for own in (new_id(), None):
            before = len(ground.dump()["operation"])
            with losing(ground.store, calls=("commit",), really=really, answers=None):
                with pytest.raises(ms.OutcomeUnknown) as caught:
                    within(name, ground, own, 0.06)
                assert own in (None, caught.value.operation_id)
            assert ground.store.outcome(caught.value.operation_id).state == ("committed" if really else "unknown")
            found = CALLS[name](ground, caught.value.operation_id)
            after = ground.dump()
            assert CALLS[name](ground, caught.value.operation_id) == found
            assert ground.store.outcome(caught.value.operation_id).result == found
            assert ground.dump() == after
            written = [r for r in after["operation"] if r[0] == str(caught.value.operation_id)]
            assert [r[1] for r in written] == [0]
            assert len(after["operation"]) >= before + 1
            assert after != start
            if own is not None:
                undo(ground, name)

    @pytest.mark.parametrize("really", [True, False], ids=["applied", "not applied"])
    @pytest.mark.parametrize("name", ["create", "alter", "drop", "partition"])
    def test_asked_in_time(self, ground: Ground, name: str, really: bool) -> None:
        own = new_id()
        with losing(ground.store, calls=("commit",), really=really, answers=2):
            found = CALLS[name](ground, own)
        assert found == CALLS[name](ground, own)
        assert [s.ordinal for s in ground.backend.steps(own)] == [0]
        assert ground.store.outcome(own).state == "committed"

    @pytest.mark.parametrize("really", [True, False], ids=["written", "not written"])
    @pytest.mark.parametrize("name", ["alter", "alter nothing"])
    def test_of_what_is_written_down(self, ground: Ground, name: str, really: bool) -> None:
        """An announcement, and a note that nothing changed."""
        for answers in (None, 1):
            own = new_id()
            ground.store._session.hot.note(ground.table.id, ("table", ground.table.names))
            with losing(ground.store, calls=("write_down",), really=really, answers=answers):
                if answers is None:
                    with pytest.raises(ms.OutcomeUnknown) as caught:
                        within(name, ground, own, 0.06)
                    assert caught.value.operation_id == own
                else:
                    CALLS[name](ground, own)
            version = ground.store.tables.load(T).version
            found = CALLS[name](ground, own)
            assert CALLS[name](ground, own) == found
            assert ground.store.outcome(own).state == "committed"
            assert ground.store.tables.load(T).version == version + (name == "alter" and answers is None)
            if name == "alter":
                ground.store.tables.alter(T, ms.DropColumn("c"))


def undo(ground: Ground, name: str) -> None:
    """Make what a call did undone, so that it can be made again."""
    store = ground.store
    undone: dict[str, Callable[[], object]] = {
        "create": lambda: store.tables.drop("m.c.two.x"),
        "alter": lambda: store.tables.alter(T, ms.DropColumn("c")),
        "rename": lambda: store.tables.rename("m.c.one.u", "t"),
        "drop": lambda: store.tables.restore(T),
        "restore": lambda: store.schemas.drop("m.c.old"),
        "purge": lambda: store.schemas.create("m.c.two"),
        "partition": lambda: store.partitions.drop(T, "q"),
        "drop a partition": lambda: store.partitions.create(T, "p", values={}),
    }
    undone[name]()


class TestMissingParents:
    """They are made by operations of their own, before: that must not show."""

    def test_not_made_again(self, ground: Ground) -> None:
        own = new_id()
        made = CALLS["create, parents"](ground, own)
        ground.store.schemas.drop("m.c.a", cascade=True)
        before = ground.dump()
        assert CALLS["create, parents"](ground, own) == made
        assert ground.dump() == before

    def test_not_made_where_the_id_is_refused(self, ground: Ground) -> None:
        before = ground.dump()
        ahead = UUID(int=new_id().int + (600_000 << 80))
        with pytest.raises(ms.InvalidArgument):
            CALLS["create, parents"](ground, ahead)
        assert ground.dump() == before
        with ground.store.transaction() as tx, pytest.raises(ms.InvalidArgument):
            CALLS["create, parents"](Ground(**vars(ground) | {"store": tx}), new_id())
        assert ground.dump() == before

    @pytest.mark.parametrize("really", [True, False], ids=["applied", "not applied"])
    @pytest.mark.parametrize("given", [True, False], ids=["own id", "no id"])
    def test_their_answer_is_lost(self, ground: Ground, given: bool, really: bool) -> None:
        own = new_id() if given else None
        with (
            losing(ground.store, calls=("commit",), really=really, answers=None),
            pytest.raises(ms.OutcomeUnknown) as caught,
        ):
            within("create, parents", ground, own, 0.06)
        found = CALLS["create, parents"](ground, caught.value.operation_id)
        assert (found.kind, found.path) == ("fileset", "m.c.a.b.f")
        assert own in (None, caught.value.operation_id)
