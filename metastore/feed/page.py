"""One page of the change feed, which a service returns to a consumer that asks for the changes after a position."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.feed.feed import changes
from metastore.feed.follow import kinds_of
from metastore.feed.scope import Scope
from metastore.feed.stood import tracked
from metastore.feed.tracked import Tracked
from metastore.kinds.entity import Change, Entity
from metastore.managers.any_kind import check_kind
from metastore.managers.pages.page import Page, clean_size
from metastore.names import Path
from metastore.operation.session import Session

__all__ = ["changes_page"]

_AT_LEAST, _TIMES = 1000, 10
"""How many changes a filtered page reads at most: so many, or so many times its size if that is more."""


def changes_page(
    session: Session,
    after: str | None,
    size: int,
    kinds: Iterable[str] | None,
    under: Path | Entity | None,
    kind: str | None,
) -> Page[Change]:
    """Return the changes after a position, of these kinds, of ``under`` and of what was below it at that time.

    ``next_token`` is a position, for ``after``; None: there are no more changes at the moment. A page of rare changes
    may have few items, or none, and a token: it stops after it has read many changes. Raises InvalidArgument, and
    EntityNotFound where there are no more changes below a path that leads to nothing.
    """
    size = clean_size(size)
    wanted = None if kinds is None else kinds_of(kinds)
    check_kind(under, kind)
    scope = None if under is None else _scope(session, under, kind, after)
    most = size if wanted is None and scope is None else max(_AT_LEAST, size * _TIMES)
    page: list[Change] = []
    last = None
    watch = None if scope is None else scope.see
    read = changes(session.backend, session.clock, after, most + 1, access=session.access, watch=watch)
    for seen, change in enumerate(read):
        if len(page) == size or seen == most:
            return Page(tuple(page), last)
        last = change.position
        if (wanted is None or change.kind in wanted) and (scope is None or scope.has(change)):
            page.append(change)
    if isinstance(scope, Scope) and not page:
        scope.check()
    return Page(tuple(page), None)


def _scope(session: Session, under: Path | Entity, kind: str | None, after: str | None) -> Scope | Tracked:
    """Return what an entity has below it, wherever it stands, or what a path had below it."""
    return tracked(session, under, kind, after) if isinstance(under, Entity) else Scope.of(session, under, kind)
