"""Read the feed once a second, for all open pages of a server.

The hub reads the feed once for everybody. For users with checked rights it reads once more for each user, through that
user's view. So a stream gets the changes that its user may see at that moment. A stream has a bounded queue: a browser
that does not keep up loses changes, and is told how many. Nothing is read while no page is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from metastore import errors
from metastore.clock import SYSTEM
from metastore.errors import HistoryGone, InvalidArgument, MetastoreError, UnreadableRow
from metastore.feed.feed import order_of
from metastore.kinds.entity import Change
from metastore.serve.console.gauges import Gauges
from metastore.serve.console.listener import Item, Listener, event_of
from metastore.serve.console.render import rendered
from metastore.serve.console.workers import Busy, Workers
from metastore.serve.principals import IssuerAway, NotAuthenticated, Principal
from metastore.store.views import UserStore

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Hub"]

_LOG = logging.getLogger("metastore.serve")
_EVERY: Final = 1.0
"""How often the hub looks (seconds)."""
_PAGE, _PAGES = 500, 30
"""The page size of the feed for one user, and the pages of one look: each reads a few thousand changes at most."""
_CHANGES: Final = 10_000
"""How many changes one look reads at most; the next look continues there."""
_SLICE, _PAUSE = 10, 0.005
"""How many streams get the new changes before the hub pauses for other tasks, and for how long (seconds)."""
_CAUGHT_UP: Final = 300
"""How many changes a page that reconnects gets; if there are more, it is told to reload."""
_LONGEST: Final = 3.0
"""How long one read for a user takes (seconds)."""
_MOST: Final = 2000
"""How many streams a server has at most."""
_MOST_EACH: Final = 200
"""How many of them one user has at most, so that some are left for others."""
_AWAY: Final = (errors.BackendUnavailable, errors.StoreClosed)
"""After these errors, all streams wait. After any other error of a read for one user, such as a membership that cannot
be written, only this user's streams learn that they missed something."""


class Hub:
    """The streams of one server. Its methods run on the event loop, except ``_look`` and what that calls."""

    def __init__(self, store: Store, view: Callable[[Principal], Store], workers: Workers) -> None:
        self._store, self._view, self._workers = store, view, workers
        self._listeners: set[Listener] = set()
        self._position: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        self._new: list[Listener] = []
        self._arrived = asyncio.Event()
        self.gauges = Gauges(store)

    def add(self, listener: Listener) -> None:
        """Add a stream: it gets the changes since its position, and all later ones. Raises Busy."""
        everybody = [one.principal for one in (*self._listeners, *self._new)]
        if len(everybody) >= _MOST or everybody.count(listener.principal) >= _MOST_EACH:
            raise Busy
        self._new.append(listener)
        self._arrived.set()
        if self._task is None or self._task.done():
            self._position = None
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, listener: Listener) -> None:
        """Forget a stream."""
        self._listeners.discard(listener)
        if listener in self._new:
            self._new.remove(listener)

    def close(self) -> None:
        """End all streams."""
        for listener in [*self._listeners, *self._new]:
            listener.end("away")
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._listeners or self._new:
            ends = SYSTEM.monotonic() + _EVERY
            self._end_sessions()
            await self._safely(self._once)
            while (left := ends - SYSTEM.monotonic()) > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), left)
                if self._arrived.is_set():
                    self._arrived.clear()
                    await self._safely(self._welcome)

    async def _safely(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Busy:  # too many pages wait for a thread; streams can wait
            pass
        except MetastoreError as error:
            self._gone(error)
        except Exception:  # noqa: BLE001  (a defect ends no stream; it is logged)
            _LOG.exception("the console's look at the feed failed")

    async def _welcome(self) -> None:
        """Give new streams the changes between their position and the hub's. Later looks give them all later changes.

        This never runs at the same time as a look, so no change is lost between the two. After a restart all pages
        reconnect at once, most of them with the same position: one read serves all of these.
        """
        position = self._position
        if position is None:  # no look has finished yet
            return
        groups: dict[tuple[Principal, str], list[Listener]] = {}
        for one in self._new:
            groups.setdefault((one.principal, "" if one.wanted.gauges else one.sent), []).append(one)
        for (principal, after), members in groups.items():
            missed = await self._since(principal, after, position)
            for one in members:
                if missed is None:
                    one.end("gone")
                elif one in self._new and not one.is_over:
                    self._new.remove(one)
                    self._listeners.add(one)
                    one.catch_up(missed[0], more=missed[1])

    async def _since(self, principal: Principal, after: str, position: str) -> tuple[list[Item], bool] | None:
        """Return the changes that a stream missed since ``after``, and whether there are more; None: they are gone."""
        try:
            if after and order_of(after) < order_of(position):
                return await self._workers.run(partial(_items_between, self._view, principal, after, position))
            if after:
                await self._workers.run(partial(_check, self._view, principal, after))
        except (HistoryGone, InvalidArgument):
            return None
        except _AWAY:
            raise
        except MetastoreError as error:
            _missed(error)
            return [], True
        return [], False

    def _end_sessions(self) -> None:
        for listener in [*self._listeners, *self._new]:
            try:
                is_over = listener.check() != listener.principal  # the token may have another owner now
            except (NotAuthenticated, IssuerAway, ValueError):
                is_over = True
            if is_over:
                listener.end()
                self.remove(listener)

    async def _once(self) -> None:
        """Look once. A stream that arrives meanwhile is added afterwards, with all changes up to the new position."""
        listeners = list(self._listeners)
        users = {one.principal for one in listeners}
        watchers = {one.principal for one in listeners if one.wanted.gauges}
        look = await self._workers.run(partial(self._look, users, watchers))
        if self._is_away:
            self._is_away = False
            self._tell_all("back")
        self._arrived.set()  # pages may have arrived before the first look, or while the database was away
        for count, listener in enumerate(listeners, 1):
            listener.offer(look.items.get(listener.principal, ()))
            if listener.principal in look.missed and not listener.wanted.gauges:
                listener.catch_up((), more=True)
            if listener.wanted.gauges:
                if listener.principal in look.admins:
                    listener.gauges = look.gauges
                    listener.woken.set()
                else:
                    listener.end()
            if count % _SLICE == 0:
                await asyncio.sleep(_PAUSE)  # gives calls of the API a turn

    def _gone(self, error: MetastoreError) -> None:
        if isinstance(error, HistoryGone | InvalidArgument):  # gc removed the position, or the database was restored
            self._position = None
            self._tell_all("gone")
        elif not self._is_away:
            _LOG.warning("the console's streams wait for the database: %s", error)
            self._is_away = True
            self._tell_all("away")

    def _tell_all(self, notice: str) -> None:
        for listener in self._listeners:
            listener.tell(notice)

    # --- in a thread

    def _look(self, users: set[Principal], watchers: set[Principal]) -> _Look:
        if self._position is None:
            self._position = self._store.position(back=1)
        before = self._position
        changes = list(self._store.changes(after=before, limit=_CHANGES, unreadable=_left_out))
        position = changes[-1].position if changes else before
        seen: dict[Principal, Sequence[Item]] = {}
        missed = set[Principal]()
        if changes:
            all_items = [_item(change) for change in changes]
            known = {item.position: item for item in all_items}
            for user in users:
                try:
                    view = self._view(user)
                    seen[user] = _seen(view, before, position, known) if isinstance(view, UserStore) else all_items
                except _AWAY:
                    raise
                except (MetastoreError, _TooMuch) as error:
                    _missed(error)
                    missed.add(user)
        self._position = position
        self.gauges.count(len(changes))
        admins = {one for one in watchers if self._is_admin(one)}
        gauges = event_of("gauges", rendered("gauges.html", self.gauges.values())) if admins else None
        return _Look(seen, missed, admins, gauges)

    def _is_admin(self, principal: Principal) -> bool:
        try:
            return not isinstance(self._view(principal), UserStore)
        except _AWAY:
            raise
        except MetastoreError:
            return False


class _Look(NamedTuple):
    items: dict[Principal, Sequence[Item]]
    missed: set[Principal]
    admins: set[Principal]
    gauges: bytes | None


def _seen(view: Store, after: str, until: str, known: dict[str, Item]) -> list[Item]:
    """Return the changes up to a position that a user sees now."""
    return [known[one.position] for one in _between(view, after, until) if one.position in known]


def _between(store: Store, after: str, until: str) -> Iterator[Change]:
    """Yield the changes between two positions that a user sees, from a bounded number of pages."""
    position, last, ends = after, order_of(until), SYSTEM.monotonic() + _LONGEST
    for _ in range(_PAGES):
        if SYSTEM.monotonic() > ends:
            break
        try:
            page = store.changes_page(after=position, size=_PAGE)
        except UnreadableRow:
            changes = store.changes(after=position, unreadable=_left_out)
            yield from takewhile(lambda one: order_of(one.position) <= last, changes)
            return
        yield from takewhile(lambda one: order_of(one.position) <= last, page.items)
        if page.next_token is None or order_of(page.next_token) >= last:
            return
        position = page.next_token
    raise _TooMuch


class _TooMuch(Exception):
    """There are too many changes between two positions to read them all."""


def _missed(error: Exception) -> None:
    _LOG.info("a user's streams miss changes: %s: %s", type(error).__name__, error)


def _left_out(error: MetastoreError) -> None:
    """Leave out a damaged row, because it must not end all streams. ``metastore verify`` reports it."""
    _LOG.info("the console leaves out a damaged change: %s", error)


def _item(change: Change) -> Item:
    paths = tuple([path for path in (change.path_before, change.path_after) if path is not None])
    html = rendered("change.html", {"change": change})
    return Item(
        change.position, change.kind, change.action, change.principal, paths, event_of("change", html, change.position)
    )


def _items_between(
    view: Callable[[Principal], Store], principal: Principal, after: str, until: str
) -> tuple[list[Item], bool]:
    """Return the changes between two positions that a user may see, and whether there are more than a page gets."""
    found = list[Item]()
    try:
        for one in _between(view(principal), after, until):
            if len(found) == _CAUGHT_UP:
                return found, True
            found.append(_item(one))
    except _TooMuch:
        return found, True
    return found, False


def _check(view: Callable[[Principal], Store], principal: Principal, after: str) -> None:
    """Raise InvalidArgument if ``after`` is not a position of this database.

    It may be newer than the hub's position.
    """
    view(principal).changes_page(after=after, size=1)
