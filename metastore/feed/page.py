"""One page of the change feed, which a service returns to a consumer that asks for the changes after a position."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.feed.feed import read
from metastore.feed.follow import kinds_of
from metastore.feed.scope import Scope
from metastore.feed.visible import Passed, Sight
from metastore.kinds.entity import Change, Entity
from metastore.managers.pages.page import Page, clean_size
from metastore.names import Path
from metastore.operation.session import Session
from metastore.port.records import Step

__all__ = ["changes_page"]

_AT_LEAST, _TIMES = 1000, 10
"""How many changes a filtered page reads at most: so many, or so many times its size if that is more."""


def changes_page(
    session: Session,
    after: str | None,
    size: int,
    kinds: Iterable[str] | None,
    under: Path | Entity | None,
) -> Page[Change]:
    """Return the changes after a position, of these kinds, of ``under`` and of what was below it at that time.

    ``next_token`` is a position, for ``after``; None: there are no more changes at the moment. A page of rare changes
    may have few items, or none, and a token: it stops after it has read many changes, also those that a user does not
    see. Raises InvalidArgument, and EntityNotFound where there are no more changes below a path that leads to nothing.
    """
    size = clean_size(size)
    wanted = None if kinds is None else kinds_of(kinds)
    scope = None if under is None else Scope.of(session, under)

    def fits(change: Change | Step) -> bool:
        return (wanted is None or change.kind in wanted) and (scope is None or scope.has(change))

    sight = None if session.access is None else Sight(session.access, fits)
    whole = wanted is None and scope is None and sight is None
    most = size if whole else max(_AT_LEAST, size * _TIMES)
    page: list[Change] = []
    last, count = None, 0
    limit = most + 1 if sight is None else None  # that many are read of all changes, not of those that a user sees
    for one in read(session.backend, session.clock, after, limit, sight=sight):
        if isinstance(one, Passed):
            last, count = one.position, count + one.hidden
            if count >= most:
                return Page(tuple(page), last)
            continue
        if len(page) == size or count >= most:
            return Page(tuple(page), last)
        last, count = one.position, count + 1
        if sight is not None or fits(one):
            page.append(one)
    if scope is not None and not page:
        scope.check()
    return Page(tuple(page), None)
