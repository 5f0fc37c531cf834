"""One open stream of changes to a browser: what its page shows, and what waits to be sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metastore.serve.principals import Principal

__all__ = ["Item", "Listener", "Wanted", "event_of"]

_QUEUE: Final = 500
"""How many changes wait for one browser at most."""


class Item(NamedTuple):
    """One change, as a page shows it."""

    position: str
    kind: str
    action: str
    principal: str | None
    paths: tuple[str, ...]
    event: bytes
    """The event that a stream sends, encoded once for all browsers."""


@dataclass(frozen=True)
class Wanted:
    """The part of the feed that a page shows."""

    kinds: frozenset[str] = frozenset()
    by: str | None = None
    did: str | None = None
    under: str | None = None
    gauges: bool = False
    """The page shows the gauges of contention, not the feed."""

    def has(self, item: Item) -> bool:
        """Whether the page shows a change."""
        if self.gauges or (self.kinds and item.kind not in self.kinds):
            return False
        if self.by not in (None, item.principal) or self.did not in (None, item.action):
            return False
        below = None if self.under is None else f"{self.under}."
        return below is None or any(path == self.under or path.startswith(below) for path in item.paths)


@dataclass(eq=False)
class Listener:
    """One open stream."""

    principal: Principal
    wanted: Wanted
    check: Callable[[], Principal]
    """Returns the principal of the stream; raises if the session is over."""
    waiting: deque[Item] = field(default_factory=deque)
    sent: str = ""
    """The position up to which the browser has everything."""
    skipped: int = 0
    more: bool = False
    """Whether the stream missed more changes than ``skipped`` counts."""
    gauges: bytes | None = None
    notices: list[str] = field(default_factory=list)
    is_over: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, items: Sequence[Item]) -> None:
        """Queue changes; if the queue is full, drop the waiting ones, and count them."""
        for item in items:
            if self.wanted.has(item):
                if len(self.waiting) >= _QUEUE:
                    self.skipped += len(self.waiting)
                    self.waiting.clear()
                self.waiting.append(item)
        if self.waiting:
            self.woken.set()

    def catch_up(self, items: Sequence[Item], *, more: bool) -> None:
        """Queue the changes from before the stream began; if there are ``more``, only report that."""
        if more:
            self.skipped, self.more = self.skipped + len(items), True
            self.woken.set()
        else:
            self.offer(items)

    def tell(self, notice: str) -> None:
        """Send a notice about the stream itself: ``away``, ``back``, ``gone``."""
        if notice not in self.notices:
            self.notices.append(notice)
        self.woken.set()

    def end(self, notice: str = "over") -> None:
        """End the stream, after a last notice."""
        self.is_over = True
        self.tell(notice)


def event_of(name: str, data: str, position: str = "") -> bytes:
    """Return a server-sent event. Its data must be one line, so a blank replaces each line break of the HTML."""
    key = f"id: {position}\n" if position else ""
    line = data.strip().replace("\r", " ").replace("\n", " ")
    return f"event: {name}\n{key}data: {line}\n\n".encode()
