"""The end of a call that failed: it says that nothing was applied only if nothing can be applied any more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import metastore as ms
from metastore.errors import BackendRefused, BackendUnavailable
from metastore.operation import intent, record
from metastore.port.commit import Unknown
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from tests.interrupts.raising import Raising
from tests.operation.ground import PATH, StillClock, session_of, store_on, store_with


class _CutOff:
    """The database of ``store`` as a client sees it: once the client has announced a change, it is cut off."""

    def __init__(self, store: Store, before_the_commit: Callable[[], object], answers: bool) -> None:
        self._backend, self._before, self._answers = session_of(store).backend, before_the_commit, answers
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._backend, name)
        return self._sent(value) if callable(value) else value

    def _sent(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def send(*arguments: Any, **options: Any) -> Any:
            if self.cut:
                raise _away()
            return method(*arguments, **options)

        return send

    def commit(self, commit: Any) -> Any:
        self._before()
        return self._backend.commit(commit)

    def write_down(self, entry: Any) -> Any:
        outcome = self._backend.write_down(entry)
        self.cut = True
        return outcome

    def cancel(self, operation_id: Any) -> bool:
        if self._answers:
            self.cut = False
        elif self.cut:
            raise _away()
        return self._backend.cancel(operation_id)


def _away() -> BackendUnavailable:
    error = BackendUnavailable("the network is down")
    error.transient = True
    return error


@pytest.fixture
def store() -> Store:
    return store_with(StillClock())


def _cut_off(store: Store, *, answers: bool) -> Store:
    """Return the store of a client whose change loses once, and that is cut off when it has announced it.

    Its attempts are over long before the deadline, up to which others apply what it has announced.

    ``answers``: the database can be reached again when the call gives up.
    """
    rivals = iter([ms.SetProperty("rival", "1")])

    def meets_a_rival() -> None:
        for change in rivals:
            store.topics.alter(PATH, change)

    backend = _CutOff(store, meets_a_rival, answers)
    return store_on(backend, session_of(store).clock, RetryPolicy(attempts=3))


def test_what_is_announced_may_land_after_the_call(store: Store) -> None:
    """Nobody could withdraw it: the next writer applies it. "Not applied" would be false."""
    topic = store.topics.load(PATH)
    with pytest.raises(ms.OutcomeUnknown) as unknown:
        _cut_off(store, answers=False).topics.alter(topic, ms.SetComment("announced"))
    operation_id = unknown.value.operation_id
    assert store.outcome(operation_id).state == "pending"
    store.topics.alter(PATH, ms.SetProperty("next", "1"))
    found = store.topics.load(PATH)
    assert (found.comment, dict(found.properties)) == ("announced", {"rival": "1", "next": "1"})
    assert store.outcome(operation_id).state == "committed"


def test_what_was_withdrawn_was_not_applied(store: Store) -> None:
    topic = store.topics.load(PATH)
    with pytest.raises(BackendUnavailable, match="network is down"):
        _cut_off(store, answers=True).topics.alter(topic, ms.SetComment("announced"))
    store.topics.alter(PATH, ms.SetProperty("next", "1"))
    assert store.topics.load(PATH).comment != "announced"


@pytest.mark.parametrize("refuses", [False, True], ids=["away for a moment", "refused"])
def test_a_freeze_begins_again_if_the_database_was_away(store: Store, refuses: bool) -> None:
    errors = iter([BackendRefused("permission denied") if refuses else _away()])

    class _AwayOnce(_CutOff):
        def mark(self, mark: Any) -> Any:
            for error in errors:
                raise error
            return self._backend.mark(mark)

    client = store_on(_AwayOnce(store, lambda: None, answers=True), session_of(store).clock)
    if refuses:
        with pytest.raises(BackendRefused), client.schemas.exclusive("lake.c.s"):
            pytest.fail("it is not frozen")
        return
    with client.schemas.exclusive("lake.c.s") as tx:
        tx.topics.alter(PATH, ms.SetComment("frozen"))
    assert store.topics.load(PATH).comment == "frozen"


def test_an_interrupt_leaves_no_intent(store: Store) -> None:
    """Whatever line it meets: what is announced after the call is over, another process would apply."""
    topic, code = store.topics.load(PATH), frozenset((record.__file__, intent.__file__))
    states = set[str]()
    for at in count(1):
        session_of(store).hot.note(topic.id, ("topic", topic.names))
        raising = Raising(code, at, KeyboardInterrupt)
        try:
            raising.run(lambda n=at: store.topics.alter(PATH, ms.SetComment(f"{n}")))  # type: ignore[misc]
        except KeyboardInterrupt as interrupt:
            states.add(store.outcome(vars(interrupt)["operation_id"]).state)
        if raising.left:
            break
    assert states == {"unknown", "cancelled", "committed"}


def test_an_interrupted_call_is_withdrawn_once(store: Store) -> None:
    """Its first attempt lost its answer, and an interrupt hits the full operation, which asks for the outcome."""
    asked = list[Any]()

    class _Interrupted(_CutOff):
        def commit(self, commit: Any) -> Any:
            return Unknown("the network is down")

        def forbid(self, *arguments: Any) -> Any:
            asked.append(arguments)
            raise KeyboardInterrupt if len(asked) == 1 else _away()

    topic = store.topics.load(PATH)
    client = store_on(_Interrupted(store, lambda: None, answers=True), session_of(store).clock)
    with pytest.raises(KeyboardInterrupt):
        client.topics.alter(topic, ms.SetComment("interrupted"))
    assert len(asked) == 2


def test_a_purge_that_has_committed_is_no_error(store: Store) -> None:
    """The database is away when its rows are to be deleted: gc deletes them."""
    topic = store.topics.load(PATH)
    store.topics.drop(topic)
    assert store_on(_AwayAfter(store, "purge"), session_of(store).clock).topics.purge(topic)
    assert store.gc().entities == 1


def test_a_drop_in_steps_that_has_committed_is_no_error(store: Store) -> None:
    client = _AwayAfter(store, "purge")
    assert store_on(client, session_of(store).clock).topics.begin_drop(PATH).finish()
    assert client.cut
    assert list(store.drops.pending()) == []


def test_a_decided_operation_whose_result_cannot_be_read_is_in_doubt(store: Store) -> None:
    """Its commit lost its answer; then the database says that it was applied, and is away when the row is read."""

    class _Lost(_CutOff):
        started = False

        def commit(self, commit: Any) -> Any:
            self._backend.commit(commit)
            self.started = any(write.event.action == "alter" for write in commit.writes)
            return Unknown("the network is down")

        def owned_by_name(self, *arguments: Any) -> Any:
            self.cut = self.started
            if self.cut:
                raise _away()
            return self._backend.owned_by_name(*arguments)

    client = _Lost(store, lambda: None, answers=True)
    drop = store_on(client, session_of(store).clock).topics.begin_drop(PATH)
    with pytest.raises(ms.OutcomeUnknown) as unknown:
        drop.started()
    client.cut = False
    assert store.outcome(unknown.value.operation_id).state == "committed"
    assert next(store.drops.pending()).phase == "started"


class _AwayAfter(_CutOff):
    """The database is away once an event of this action was committed."""

    def __init__(self, store: Store, action: str) -> None:
        super().__init__(store, lambda: None, answers=True)
        self._action = action

    def commit(self, commit: Any) -> Any:
        outcome = self._backend.commit(commit)
        self.cut = any(write.event.action == self._action for write in commit.writes)
        return outcome
