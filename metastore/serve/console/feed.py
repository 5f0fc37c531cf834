"""The feed: the newest changes first, of a place, kinds or a principal; and the consumers with their lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from metastore.clock import SYSTEM
from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError, UnreadableRow
from metastore.feed.feed import order_of
from metastore.kinds.entity import Change, Entity
from metastore.kinds.registry import KINDS, OWNED_KINDS
from metastore.past.consumers import Lag
from metastore.serve.console.asked import Asked, Shown, url
from metastore.serve.console.words import command, done

__all__ = ["feed"]

_SIZE: Final = 50
_STEPS: Final = (64, 1_000, 20_000)
"""How many changes a page searches, counted back from its end. If they do not fill the page, it takes the next step."""
_SECONDS: Final = 0.5
"""How long a page searches if a filter hides many changes (seconds)."""
_PAGE: Final = 200
_CONSUMERS: Final = 20
_ACTIONS: Final = tuple([(one, done(one)) for one in ("create", "alter", "rename", "move", "drop", "restore", "purge")])


@dataclass(frozen=True)
class Reader:
    """A consumer of the feed."""

    name: str
    position: str
    lag: Lag


@dataclass(frozen=True)
class Place:
    """The subject of a feed: an entity, wherever it is now, or a path at which an entity was."""

    path: str
    kind: str | None
    target: Entity | str


@dataclass(frozen=True)
class Found:
    """Changes, the newest first. ``reached``: the position back to which the feed was searched; None: its beginning."""

    changes: Sequence[Change]
    reached: str | None


def feed(asked: Asked) -> Shown:
    """Return the newest changes, or those before a position."""
    under = _place(asked) if asked.text("under") else None
    kinds = [kind for kind in asked.query.get("kinds", "").replace(",", " ").split() if kind]
    known = {*KINDS, *OWNED_KINDS}
    for kind in kinds:
        if kind not in known and not kind.isidentifier():
            raise InvalidArgument(f"there is no kind {kind[:40]!r}")
    by, before, did = asked.text("by"), asked.text("before"), asked.text("did")
    found = _newest(asked, under, kinds, (by, did), before)
    newest = found.changes[0].position if found.changes else asked.whole.position(back=1)
    oldest = found.changes[-1].position if len(found.changes) == _SIZE else found.reached
    following = {
        "under": under and under.path,
        "kind": under and under.kind,
        "kinds": ",".join(kinds),
        "by": by,
        "did": did,
    }
    values = {
        "changes": found.changes,
        "under": under,
        "kinds": ",".join(kinds),
        "by": by or "",
        "did": did or "",
        "actions": _ACTIONS,
        "before": before,
        "older": None if oldest is None else url("feed", **following, before=oldest),
        "live": None
        if before
        else url("stream", after=newest, under=under and under.path, by=by, did=did, kinds=",".join(kinds)),
        "newest": url("feed", **following),
        "all_kinds": sorted(known),
        "consumers": [] if asked.is_restricted or under or by or did or kinds or before else _consumers(asked),
    }
    words = [("--under", under.path)] if under else []
    words += [("--kind", kind) for kind in kinds]
    shown = command("changes", *[word for pair in words for word in pair], "--follow")
    return Shown("feed.html", f"Feed of {under.path}" if under else "Feed", values, shown)


def _place(asked: Asked) -> Place:
    path = asked.query["under"]
    try:
        found = asked.found(path, asked.text("kind"))
    except EntityNotFound:  # the entity was dropped or renamed: the feed still has its changes
        return Place(path, None, path)
    return Place(found.path, found.kind, found)


def _newest(
    asked: Asked, under: Place | None, kinds: Sequence[str], only: tuple[str | None, str | None], before: str | None
) -> Found:
    """Return the newest changes. ``only``: those of a principal, and of an action."""
    by, did = only
    ends = SYSTEM.monotonic() + _SECONDS
    beginning = asked.whole.position(back=1 << 62)
    found, start = deque[Change](maxlen=_SIZE), beginning
    until = None if before is None else order_of(before)
    for back in _STEPS:
        start = asked.whole.position(back=back, before=before)
        found.clear()
        try:
            for one in _after(asked, start, kinds, under, ends + _SECONDS):
                if until is not None and order_of(one.position) >= until:
                    break
                if by in (None, one.principal) and did in (None, one.action):
                    found.append(one)
        except EntityNotFound:  # the path does not exist now, and nothing was there since ``start``
            if not found and (start == beginning or back == _STEPS[-1]):
                raise
        if len(found) == _SIZE or start == beginning or SYSTEM.monotonic() > ends:
            break
    return Found(tuple(reversed(found)), None if start == beginning and len(found) < _SIZE else start)


def _after(asked: Asked, position: str, kinds: Sequence[str], under: Place | None, ends: float) -> Iterator[Change]:
    """Yield the changes after a position, without damaged ones, until the time ``ends``.

    A page may be empty, because the user may see none of its changes. It calls ``changes_page``, because ``changes``
    refuses a path that does not exist now.
    """
    target = None if under is None else under.target
    following: str | None = position
    while following is not None and SYSTEM.monotonic() <= ends:
        try:
            page = asked.store.changes_page(after=following, size=_PAGE, kinds=kinds or None, under=target)
        except UnreadableRow:
            if isinstance(target, str):
                raise
            rest = asked.store.changes(after=following, kinds=kinds or None, under=target, unreadable=lambda _: None)
            yield from takewhile(lambda _: SYSTEM.monotonic() <= ends, rest)
            return
        yield from page.items
        following = page.next_token


def _consumers(asked: Asked) -> list[Reader]:
    try:
        return [Reader(one.name, one.position, one.lag()) for one in asked.store.consumers.list()[:_CONSUMERS]]
    except MetastoreError:
        return []
