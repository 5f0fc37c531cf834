"""Select changes of the feed, and wait for more.

To wait means to read again: soon after a change, and every second after a while without changes. A hint from a process
that writes ends a pause (:mod:`metastore.feed.hints`). Correctness does not depend on hints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from metastore.arguments import items, positive_seconds, shown
from metastore.errors import InvalidArgument
from metastore.feed.feed import changes, read
from metastore.feed.stood import tracked
from metastore.feed.subject import LEASE
from metastore.feed.visible import Passed, Sight
from metastore.kinds.entity import Change, Entity
from metastore.kinds.registry import KINDS, OWNED_KINDS, RELATIONSHIPS
from metastore.managers.any_kind import check_kind
from metastore.names import Path
from metastore.operation.session import Session
from metastore.operation.timed import stepping
from metastore.port.feed import Hearing
from metastore.port.unreadable import Unreadable

__all__ = ["Selection", "kinds_of", "selected"]

_SOON, _SLOWEST, _SLOWER = 0.01, 1.0, 1.5
"""The first and the longest pause before the feed is read again (seconds), and the factor between two pauses."""


@dataclass(frozen=True)
class Selection:
    """The wanted changes, and whether to wait for more."""

    kinds: Iterable[str] | None = None
    under: Path | Entity | None = None
    kind: str | None = None
    """The kind of the entity at the path in ``under``."""
    follow: bool = False
    timeout: float | None = None


def selected(
    session: Session, after: str | None, limit: int | None, unreadable: Unreadable | None, chosen: Selection
) -> Iterator[Change]:
    """Yield the selected changes. Raises the errors of ``feed.changes`` and ``stood.tracked``."""
    kinds = None if chosen.kinds is None else kinds_of(chosen.kinds)
    check_kind(chosen.under, chosen.kind)
    if chosen.timeout is not None:
        positive_seconds(chosen.timeout, "the time after which following ends")
    # checks the position and the limit in this call, not at the first change
    changes(session.backend, session.clock, after, limit)
    below = None if chosen.under is None else tracked(session, chosen.under, chosen.kind, after)
    followed = _followed(session, after, unreadable, chosen, Sight(session.access, kinds, below))
    return _limited(followed, session, limit, chosen.timeout)


def _followed(
    session: Session, after: str | None, unreadable: Unreadable | None, chosen: Selection, sight: Sight
) -> Iterator[Change | None]:
    """Yield changes, and None after each pause."""
    if not chosen.follow:
        yield from stepping(session, changes(session.backend, session.clock, after, None, unreadable, sight))
        return
    with session.backend.hearing() as hearing:
        yield from _on_and_on(session, after, unreadable, hearing, sight)


def _on_and_on(
    session: Session, after: str | None, unreadable: Unreadable | None, hearing: Hearing | None, sight: Sight
) -> Iterator[Change | None]:
    pause = _SOON
    while True:
        before = after
        for one in read(session.backend, session.clock, after, None, unreadable, sight):
            after = one.position
            yield None if isinstance(one, Passed) else one
        pause = _SOON if after != before else min(_SLOWEST, pause * _SLOWER)
        if hearing is None:
            session.clock.sleep(pause)
        elif hearing.wait(pause):
            pause = _SOON
        yield None


def _limited(
    changes: Iterator[Change | None], session: Session, limit: int | None, timeout: float | None
) -> Iterator[Change]:
    left, ends = limit, None if timeout is None else session.clock.monotonic() + timeout
    if left == 0:
        return
    for change in changes:
        if change is not None:
            yield change
            left = None if left is None else left - 1
            ends = None if timeout is None else session.clock.monotonic() + timeout
            if left == 0:
                return
        elif ends is not None and session.clock.monotonic() >= ends:
            return


def kinds_of(kinds: Iterable[str]) -> frozenset[str]:
    """Return the kinds as a set. Raises InvalidArgument for a word that is not a kind."""
    words = items(kinds, "kinds")
    known_kinds = {*KINDS, *OWNED_KINDS, *RELATIONSHIPS, LEASE}
    for one in words:
        if not isinstance(one, str):
            raise InvalidArgument(f"a kind is a word such as table, not {shown(one)}")
        if one not in known_kinds:
            known = ", ".join(sorted(known_kinds))
            raise InvalidArgument(f"there is no kind {shown(one)}; known are {known}")
    return frozenset(words)
