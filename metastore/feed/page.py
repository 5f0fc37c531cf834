"""Read one page of the change feed, for a service whose clients ask for the changes after a position."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.feed.feed import read
from metastore.feed.follow import kinds_of
from metastore.feed.scope import Scope
from metastore.feed.stood import tracked
from metastore.feed.tracked import Tracked
from metastore.feed.visible import Passed, Sight
from metastore.kinds.entity import Change, Entity
from metastore.managers.any_kind import check_kind
from metastore.managers.pages.page import Page, clean_size
from metastore.names import Path
from metastore.operation.session import Session

__all__ = ["changes_page"]

_AT_LEAST, _TIMES = 1000, 10
"""How many changes a filtered page may read: the first number, or the second times the page's size if that is more."""


def changes_page(
    session: Session,
    after: str | None,
    size: int,
    kinds: Iterable[str] | None,
    under: Path | Entity | None,
    kind: str | None,
) -> Page[Change]:
    """Return the changes after a position: of these kinds, of ``under``, and of entities below it at the time.

    ``next_token`` is a position, for ``after``; None: no more changes at present. If the wanted changes are
    rare, a page may have few or no items, but a token: it stops after it has read many changes. Raises InvalidArgument;
    EntityNotFound if no entity is at the path ``under``, and there are no more changes below it.
    """
    size = clean_size(size)
    wanted = None if kinds is None else kinds_of(kinds)
    check_kind(under, kind)
    scope = None if under is None else _scope(session, under, kind, after)
    whole = wanted is None and scope is None and session.access is None
    most = size if whole else max(_AT_LEAST, size * _TIMES)
    sight = None if whole else Sight(session.access, wanted, scope)
    page: list[Change] = []
    last, count = None, 0
    # the limit counts all changes that are read, because a limit on the shown ones would not bound the work
    for one in read(session.backend, session.clock, after, most + 1 if whole else None, sight=sight):
        if isinstance(one, Passed):
            last, count = one.position, count + one.hidden
            if count >= most:
                return Page(tuple(page), last)
            continue
        if len(page) == size or count >= most:
            return Page(tuple(page), last)
        last, count = one.position, count + 1
        page.append(one)
    if isinstance(scope, Scope) and not page:
        scope.check()
    return Page(tuple(page), None)


def _scope(session: Session, under: Path | Entity, kind: str | None, after: str | None) -> Scope | Tracked:
    """Return the filter for an entity (found by its id) and all below it, or for everything that was below a path."""
    return tracked(session, under, kind, after) if isinstance(under, Entity) else Scope.of(session, under, kind)
