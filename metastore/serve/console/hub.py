"""One look a second at what happens, for all open pages of a server.

The hub reads the feed once for everybody. For users whose rights are checked it reads once more for each user, through
that user's view, so that a stream gets what its user may see at that moment. A stream has a bounded queue: a browser
that does not keep up loses changes, and is told how many. Nothing is read while no page is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from metastore.clock import SYSTEM
from metastore.errors import DeadlineExceeded, HistoryGone, InvalidArgument, MetastoreError
from metastore.kinds.entity import Change
from metastore.serve.console.gauges import Gauges
from metastore.serve.console.render import rendered
from metastore.serve.console.workers import Busy, Workers
from metastore.serve.principals import NotAuthenticated
from metastore.store.views import UserStore

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["Hub", "Item", "Listener", "Wanted", "event_of"]

_LOG = logging.getLogger("metastore.serve")
_EVERY: Final = 1.0
"""How often the hub looks (seconds)."""
_PAGE: Final = 500
_PAGES: Final = 20
"""How many pages of the feed one look reads at most; the next look goes on."""
_QUEUE: Final = 500
"""How many changes wait for one browser at most."""
_SLICE, _PAUSE = 20, 0.005
"""How many streams get what is new before others of the event loop have their turn, and for how long (seconds)."""
_READERS: Final = 2
"""How many reads for pages that come back run at once: pages have the other threads."""
_LONGEST: Final = 3.0
"""How long one read for a page that comes back takes (seconds)."""
_MOST: Final = 2000
"""How many streams a server has at most."""


class Item(NamedTuple):
    """One change, as a page shows it."""

    position: str
    kind: str
    principal: str | None
    paths: tuple[str, ...]
    event: bytes
    """As a stream has it: encoded once for all browsers."""


@dataclass(frozen=True)
class Wanted:
    """What a page shows of the feed."""

    kinds: frozenset[str] = frozenset()
    by: str | None = None
    under: str | None = None
    gauges: bool = False
    """It shows the gauges of contention, not the feed."""

    def has(self, item: Item) -> bool:
        """Whether the page shows a change."""
        if self.gauges or (self.kinds and item.kind not in self.kinds):
            return False
        if self.by is not None and item.principal != self.by:
            return False
        below = None if self.under is None else f"{self.under}."
        return below is None or any(path == self.under or path.startswith(below) for path in item.paths)


@dataclass(eq=False)
class Listener:
    """One open stream."""

    principal: str
    wanted: Wanted
    check: Callable[[], str]
    """Returns who it is; raises if the session is over."""
    waiting: deque[Item] = field(default_factory=deque)
    sent: str = ""
    """The position up to which the browser has everything."""
    skipped: int = 0
    gauges: bytes | None = None
    notices: list[str] = field(default_factory=list)
    is_over: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, items: Sequence[Item]) -> None:
        """Queue changes; if the queue is full, drop what waits, and count it."""
        for item in items:
            if self.wanted.has(item):
                if len(self.waiting) >= _QUEUE:
                    self.skipped += len(self.waiting)
                    self.waiting.clear()
                self.waiting.append(item)
        if self.waiting:
            self.woken.set()

    def tell(self, notice: str) -> None:
        """Send a word about the stream itself: ``away``, ``back``, ``gone``."""
        if notice not in self.notices:
            self.notices.append(notice)
        self.woken.set()

    def end(self, notice: str = "over") -> None:
        """End the stream, after a last word."""
        self.is_over = True
        self.tell(notice)


class Hub:
    """The streams of one server. All but ``_look`` runs on the event loop."""

    def __init__(self, store: Store, view: Callable[[str], Store], workers: Workers) -> None:
        self._store, self._view, self._workers = store, view, workers
        self._listeners: set[Listener] = set()
        self._position: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        self._reading: dict[tuple[str, str, int], asyncio.Task[list[Item]]] = {}
        self._few = asyncio.Semaphore(_READERS)
        self.gauges = Gauges(store)

    def add(self, listener: Listener) -> None:
        """Let a stream hear what happens from now on. Raises Busy if there are too many."""
        if len(self._listeners) >= _MOST:
            raise Busy
        self._listeners.add(listener)
        if self._task is None or self._task.done():
            self._position = None
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, listener: Listener) -> None:
        """Forget a stream."""
        self._listeners.discard(listener)

    def close(self) -> None:
        """End all streams."""
        for listener in self._listeners:
            listener.end("away")
        if self._task is not None:
            self._task.cancel()

    def see(self, principal: str) -> Store:
        """Return the store as a user sees it."""
        return self._view(principal)

    async def caught_up(self, principal: str, after: str, most: int) -> list[Item]:
        """Return what a user sees of the changes after a position, one more than ``most`` if there are more.

        Raises HistoryGone, InvalidArgument for a position of another database, DeadlineExceeded.
        """
        key = (principal, after, most)
        reading = self._reading.get(key)
        if reading is None:  # after a restart all pages come back at once, most of them with the same position
            reading = self._reading[key] = asyncio.get_running_loop().create_task(self._missed(*key))
            reading.add_done_callback(lambda _: self._reading.pop(key, None))
        return await asyncio.shield(reading)

    async def _missed(self, principal: str, after: str, most: int) -> list[Item]:
        async with self._few:
            while True:
                try:
                    return await self._workers.run(partial(_items_after, self._view, principal, after, most))
                except Busy:  # pages are in line; a stream can wait
                    await asyncio.sleep(_EVERY)

    async def _run(self) -> None:
        while self._listeners:
            started = SYSTEM.monotonic()
            self._end_sessions()
            try:
                await self._once()
            except Busy:
                pass
            except MetastoreError as error:
                self._gone(error)
            except Exception:  # noqa: BLE001  (a defect ends no stream; it is logged)
                _LOG.exception("the console's look at the feed failed")
            await asyncio.sleep(max(0.05, _EVERY - (SYSTEM.monotonic() - started)))

    def _end_sessions(self) -> None:
        for listener in list(self._listeners):
            try:
                is_over = listener.check() != listener.principal  # the token may have another owner now
            except (NotAuthenticated, ValueError):
                is_over = True
            if is_over:
                listener.end()
                self._listeners.discard(listener)

    async def _once(self) -> None:
        users = {one.principal for one in self._listeners}
        watchers = {one.principal for one in self._listeners if one.wanted.gauges}
        look = await self._workers.run(partial(self._look, users, watchers))
        if self._is_away:
            self._is_away = False
            self._tell_all("back")
        for count, listener in enumerate(list(self._listeners), 1):
            listener.offer(look.items.get(listener.principal, ()))
            if listener.wanted.gauges:
                if listener.principal in look.admins:
                    listener.gauges = look.gauges
                    listener.woken.set()
                else:
                    listener.end()
            if count % _SLICE == 0:
                await asyncio.sleep(_PAUSE)  # so that calls of the API come between

    def _gone(self, error: MetastoreError) -> None:
        if isinstance(error, HistoryGone | InvalidArgument):  # gc was faster, or the database was restored
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

    def _look(self, users: set[str], watchers: set[str]) -> _Look:
        if self._position is None:
            self._position = self._store.position(back=1)
        before = self._position
        changes = list[Change]()
        position = before
        for _ in range(_PAGES):
            page = self._store.changes_page(after=position, size=_PAGE)
            changes += page.items
            if page.items:
                position = page.items[-1].position
            if page.next_token is None:
                break
        seen: dict[str, Sequence[Item]] = {}
        if changes:
            all_items = [_item(change) for change in changes]
            known = {item.position: item for item in all_items}
            for user in users:
                view = self._view(user)
                if isinstance(view, UserStore):
                    seen[user] = _seen(view, before, position, known)
                else:
                    seen[user] = all_items
        self._position = position
        self.gauges.count(len(changes))
        admins = {one for one in watchers if not isinstance(self._view(one), UserStore)}
        gauges = event_of("gauges", rendered("gauges.html", self.gauges.values())) if admins else None
        return _Look(seen, admins, gauges)


class _Look(NamedTuple):
    items: dict[str, Sequence[Item]]
    admins: set[str]
    gauges: bytes | None


def _seen(view: Store, after: str, until: str, known: dict[str, Item]) -> list[Item]:
    """Return the changes up to a position that a user sees now."""
    found = list[Item]()
    position: str | None = after
    while position is not None and position < until:
        page = view.changes_page(after=position, size=_PAGE)
        found += [known[one.position] for one in page.items if one.position in known]
        position = page.next_token
    return found


def _item(change: Change) -> Item:
    paths = tuple([path for path in (change.path_before, change.path_after) if path is not None])
    html = rendered("change.html", {"change": change})
    return Item(change.position, change.kind, change.principal, paths, event_of("change", html, change.position))


def event_of(name: str, data: str, position: str = "") -> bytes:
    """Return an event as a stream has it. Its data are one line: HTML takes a blank for a line's end."""
    key = f"id: {position}\n" if position else ""
    line = data.strip().replace("\r", " ").replace("\n", " ")
    return f"event: {name}\n{key}data: {line}\n\n".encode()


def _items_after(view: Callable[[str], Store], principal: str, after: str, most: int) -> list[Item]:
    store = view(principal)
    found = list[Item]()
    position: str | None = after
    ends = SYSTEM.monotonic() + _LONGEST
    while position is not None and len(found) <= most:
        if SYSTEM.monotonic() > ends:  # of a user who sees little, or a page that was away for long
            raise DeadlineExceeded(f"the changes after {after} take more than {_LONGEST:g} s to read")
        page = store.changes_page(after=position, size=min(_PAGE, most + 1))
        found += [_item(change) for change in page.items]
        position = page.next_token
    return found[: most + 1]
