"""Make a call through a proxy that loses one of its messages, and note what the caller is told and what is there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Final, Literal

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres.connect import Pool
from metastore.deadlines import cleans_up
from tests.aio.facade import Facade, Loop
from tests.lost.calls import CALLS
from tests.servers.proxy import ENDS_ROUND_TRIP, PostgresProxy

__all__ = ["WAYS", "Told", "Way", "World", "opened", "wrong"]

Way = Literal["before", "half", "after", "late", "after, then late"]
"""Which part of a message the server gets: nothing; a half; all of it, and its answer is lost.

``late``: the call's time is over before the message, so that it may only clean up from there on.
"""
WAYS: Final[tuple[Way, ...]] = ("before", "half", "after", "late", "after, then late")
DEADLINE: Final = 3.0
"""How long a call may take (seconds)."""
_SHORT: Final = 0.3
"""How long a call may take whose time is over at some message (seconds): it may wait for its own end."""
_ROWS: Final = (
    "SELECT name, seq FROM pin WHERE name = %(of)s",
    "SELECT name, seq FROM consumer WHERE name = %(of)s",
    "SELECT name, token, owner, expires_at FROM lease WHERE name LIKE %(of)s || '%%' ORDER BY name",
    "SELECT entity_id, key, value, state FROM staged WHERE lease = %(of)s",
)


@dataclass(frozen=True)
class Told:
    """What a caller is told about a call, and what is there afterwards."""

    result: object
    error: Exception | None
    events: tuple[str, ...]
    """The changes of the call's principal in the feed."""
    rows: object
    """What the feed does not show: leases, consumers, pins."""
    again: Told | None = None
    """After OutcomeUnknown: what a repeat with the operation's id is told."""
    state: str | None = None
    """After OutcomeUnknown: the state that ``outcome`` tells."""

    def is_like(self, other: Told) -> bool:
        """Whether the same is there."""
        return (self.events, self.rows is None) == (other.events, other.rows is None)


class Lateness:
    """From some message on, the time of the calls is over: only what cleans up is still sent."""

    def __init__(self) -> None:
        self.is_over: Callable[[], bool] = lambda: False

    def after(self, count: int) -> threading.Event:
        """Let the time be over from the message with this number on; return what is set then."""
        reached, left = threading.Event(), iter(range(count - 1))

        def is_over() -> bool:
            if next(left, None) is None:
                reached.set()
            return reached.is_set()

        self.is_over = is_over
        return reached

    def connection(self, pool: Pool, lent: Callable[[Pool], Any]) -> Any:
        """Lend a connection, unless the time is over."""
        if not cleans_up() and self.is_over():
            raise ms.DeadlineExceeded("the deadline passed before the database was asked")
        return lent(pool)


class World:
    """A store whose connections a proxy cuts, and one that looks what is there."""

    def __init__(
        self, judge: ms.Store, store: ms.Store, proxy: PostgresProxy, sql: psycopg.Connection[Any], late: Lateness
    ) -> None:
        self._judge, self._store, self._proxy, self._sql, self._late = judge, store, proxy, sql, late
        self._numbers = count()

    def tried(self, name: str, nth: int = 0, way: Way = "before") -> Told | None:
        """Make a call on a new lake, whose ``nth`` message is lost (0: none); None: it has fewer messages."""
        call, lake = CALLS[name], f"x{next(self._numbers):06d}z"
        made = call.made(self._judge, lake)
        store = self._store.bind(principal=call.by or lake)
        if nth and "late" in way:
            store = store.bind(deadline=_SHORT)
        named = {} if call.held is None else {"held": call.held(store, lake, made)}
        after, before = self._judge.position(), self._rows(lake)

        def make(**more: Any) -> Any:
            return call.act(store, lake, made, **named, **more)

        def there(result: object, error: Exception | None) -> Told:
            events = [f"{one.kind} {one.action}" for one in self._judge.changes(after=after) if lake in str(one)]
            rows = self._rows(lake)
            return Told(result, error, tuple(sorted(events)), rows if rows != before else None)

        self._proxy.reset()
        fired = self._order(nth, way)
        told = _made(make, lake, there, self._reset)
        if fired is not None and not fired.is_set():
            return None
        if isinstance(told.error, ms.OutcomeUnknown):
            known = told.error.operation_id
            told = replace(told, state=self._judge.outcome(known).state)
            store = self._store.bind(principal=call.by or lake)
            told = replace(told, again=_made(lambda: make(operation_id=known), lake, there, self._reset))
        return told

    def _order(self, nth: int, way: Way) -> threading.Event | None:
        if not nth:
            return None
        if way == "late":
            return self._late.after(nth)
        cut = {
            "before": self._proxy.cut_before_send,
            "half": self._proxy.cut_while_sending,
        }.get(way, self._proxy.cut_after_send)
        fired = cut(lambda message: message[:1] in ENDS_ROUND_TRIP, nth=nth).fired
        if way == "after, then late":
            self._late.is_over = fired.is_set
        return fired

    def _reset(self) -> None:
        self._proxy.reset()
        self._late.is_over = lambda: False

    def _rows(self, lake: str) -> list[Any]:
        return [self._sql.execute(text, {"of": lake}).fetchall() for text in _ROWS]


def _made(
    make: Callable[[], Any], lake: str, there: Callable[[object, Exception | None], Told], reset: Callable[[], None]
) -> Told:
    try:
        result = make()
    except Exception as error:  # noqa: BLE001  (it is judged)
        reset()
        return there(None, error)
    reset()
    return there(_plain(result, lake), None)


def _plain(result: Any, lake: str) -> object:
    """Return the part of a result that is the same each time."""
    if hasattr(result, "version"):
        return result.path.replace(lake, "lake") if hasattr(result, "path") else result.name, result.version
    if isinstance(result, str):
        return result.replace(lake, "lake")
    return result if isinstance(result, int) else type(result).__name__


def wrong(name: str, whole: Told, told: Told) -> str | None:
    """Say what is not true of what a caller was told; None: all is true. ``whole``: the call without a loss."""
    call, done = CALLS[name], told.is_like(whole)
    nothing = not told.events and told.rows is None
    if told.error is None:
        return None if done and told.result == whole.result else "it returned, and is not done once, or not so"
    if call.in_parts:
        return None
    if isinstance(told.error, ms.OutcomeUnknown):
        return _wrong_in_doubt(whole, told, done=done, nothing=nothing, repeats=not call.meets_itself)
    if not isinstance(told.error, (ms.BackendUnavailable, ms.DeadlineExceeded)):
        return "the error says nothing of the loss"
    return None if nothing or (call.may_be_done and done) else "the error says that nothing was written"


def _wrong_in_doubt(whole: Told, told: Told, *, done: bool, nothing: bool, repeats: bool) -> str | None:
    if not (done or nothing):
        return "a part is there"
    if (told.state == "committed") != done:
        return "its outcome is another one"
    again = told.again
    if again is None or isinstance(again.error, TypeError):  # the call takes no operation id
        return None
    if not repeats:
        return None if again.is_like(whole) else "the repeat made more"
    return None if again.is_like(whole) and again.result == whole.result else "the repeat with its id"


@contextmanager
def opened(url: str, address: tuple[str, int], *, asynchronous: bool) -> Iterator[World]:
    """Open both stores on a database."""
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        proxy = stack.enter_context(PostgresProxy(*address))
        sql = stack.enter_context(psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True))
        judge = stack.enter_context(ms.open(url, principal="judge"))
        open_it = ms.open
        if asynchronous:
            loop = Loop()
            stack.callback(loop.close)
            open_it = partial(Facade.open, loop)
        store = stack.enter_context(open_it(proxy.url_for(url), principal="victim", deadline=DEADLINE))
        late, patch = Lateness(), stack.enter_context(pytest.MonkeyPatch.context())
        lent = Pool.connection
        patch.setattr(Pool, "connection", lambda pool: late.connection(pool, lent))
        yield World(judge, store, proxy, sql, late)
