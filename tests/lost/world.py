"""Make a call through a proxy that loses one of its messages, and note what the caller is told and what is there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Final, Literal

import psycopg

import metastore as ms
from tests.aio.facade import Facade, Loop
from tests.lost.calls import CALLS
from tests.servers.proxy import ENDS_ROUND_TRIP, Cut, PostgresProxy

__all__ = ["WAYS", "Told", "Way", "World", "opened", "wrong"]

Way = Literal["before", "half", "after"]
"""Which part of a message the server gets: nothing; a half; all of it, and its answer is lost."""
WAYS: Final[tuple[Way, ...]] = ("before", "half", "after")
DEADLINE: Final = 3.0
"""How long a call may take (seconds)."""
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


class World:
    """A store whose connections a proxy cuts, and one that looks what is there."""

    def __init__(self, judge: ms.Store, store: ms.Store, proxy: PostgresProxy, sql: psycopg.Connection[Any]) -> None:
        self._judge, self._store, self._proxy, self._sql = judge, store, proxy, sql
        self._numbers = count()

    def tried(self, name: str, nth: int = 0, way: Way = "before") -> Told | None:
        """Make a call on a new lake, whose ``nth`` message is lost (0: none); None: it has fewer messages."""
        call, lake = CALLS[name], f"x{next(self._numbers):06d}z"
        made = call.made(self._judge, lake)
        store = self._store.bind(principal=call.by or lake)
        named = {} if call.held is None else {"held": call.held(store, lake, made)}
        after, before = self._judge.position(), self._rows(lake)

        def make(**more: Any) -> Any:
            return call.act(store, lake, made, **named, **more)

        def there(result: object, error: Exception | None) -> Told:
            events = [f"{one.kind} {one.action}" for one in self._judge.changes(after=after) if lake in str(one)]
            rows = self._rows(lake)
            return Told(result, error, tuple(sorted(events)), rows if rows != before else None)

        self._proxy.reset()
        cut = self._order(nth, way)
        told = _made(make, lake, there)
        self._proxy.reset()
        if cut is not None and not cut.fired.is_set():
            return None
        if isinstance(told.error, ms.OutcomeUnknown):
            known = told.error.operation_id
            told = replace(told, state=self._judge.outcome(known).state)
            told = replace(told, again=_made(lambda: make(operation_id=known), lake, there))
        return told

    def _order(self, nth: int, way: Way) -> Cut | None:
        if not nth:
            return None
        cut = {
            "before": self._proxy.cut_before_send,
            "half": self._proxy.cut_while_sending,
            "after": self._proxy.cut_after_send,
        }[way]
        return cut(lambda message: message[:1] in ENDS_ROUND_TRIP, nth=nth)

    def _rows(self, lake: str) -> list[Any]:
        return [self._sql.execute(text, {"of": lake}).fetchall() for text in _ROWS]


def _made(make: Callable[[], Any], lake: str, there: Callable[[object, Exception | None], Told]) -> Told:
    try:
        result = make()
    except Exception as error:  # noqa: BLE001  (it is judged)
        return there(None, error)
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
    done = told.is_like(whole)
    nothing = not told.events and told.rows is None
    if told.error is None:
        return None if done and told.result == whole.result else "it returned, and is not done once, or not so"
    if CALLS[name].in_parts:
        return None
    if isinstance(told.error, ms.OutcomeUnknown):
        return _wrong_in_doubt(whole, told, done=done, nothing=nothing)
    if not isinstance(told.error, (ms.BackendUnavailable, ms.DeadlineExceeded)):
        return "the error says nothing of the loss"
    return None if nothing else "the error says that nothing was written"


def _wrong_in_doubt(whole: Told, told: Told, *, done: bool, nothing: bool) -> str | None:
    if not (done or nothing):
        return "a part is there"
    if (told.state == "committed") != done:
        return "its outcome is another one"
    again = told.again
    if again is None or isinstance(again.error, TypeError):  # the call takes no operation id
        return None
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
        yield World(judge, store, proxy, sql)
