"""One page of the change feed, which a service returns to a consumer that asks for the changes after a position."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.arguments import items, shown
from metastore.errors import InvalidArgument
from metastore.feed.feed import changes
from metastore.feed.scope import Scope
from metastore.kinds.entity import Change, Entity
from metastore.kinds.registry import KINDS, OWNED_KINDS, RELATIONSHIPS
from metastore.managers.page import Page, clean_size
from metastore.names import Path
from metastore.operation.session import Session

__all__ = ["changes_page"]

LEASE = "lease"
"""The kind of the events of leases, which are no entities."""
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
    may have few items, or none, and a token: it stops after it has read many changes. Raises InvalidArgument, and
    EntityNotFound where there are no more changes below a path that leads to nothing.
    """
    size = clean_size(size)
    wanted = None if kinds is None else _kinds(kinds)
    scope = None if under is None else Scope.of(session, under)
    most = size if wanted is None and scope is None else max(_AT_LEAST, size * _TIMES)
    page: list[Change] = []
    last = None
    for seen, change in enumerate(changes(session.backend, session.clock, after, most + 1, access=session.access)):
        if len(page) == size or seen == most:
            return Page(tuple(page), last)
        last = change.position
        if (wanted is None or change.kind in wanted) and (scope is None or scope.has(change)):
            page.append(change)
    if scope is not None and not page:
        scope.check()
    return Page(tuple(page), None)


def _kinds(kinds: Iterable[str]) -> frozenset[str]:
    words = items(kinds, "kinds")
    for one in words:
        if not isinstance(one, str):
            raise InvalidArgument(f"a kind is a word such as table, not {shown(one)}")
        known_kinds = {*KINDS, *OWNED_KINDS, *RELATIONSHIPS, LEASE}
        if one not in known_kinds:
            known = ", ".join(sorted(known_kinds))
            raise InvalidArgument(f"there is no kind {shown(one)}; known are {known}")
    return frozenset(words)
