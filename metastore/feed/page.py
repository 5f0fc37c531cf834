"""One page of the change feed, which a service returns to a consumer that asks for the changes after a position."""

from __future__ import annotations

from collections.abc import Iterable

from metastore.arguments import items, shown
from metastore.errors import InvalidArgument
from metastore.feed.feed import changes
from metastore.kinds.entity import Change, Entity
from metastore.managers.page import Page, clean_size
from metastore.names import Path, format_path, parse_path
from metastore.operation.request import committed
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
) -> Page[Change]:
    """Return the changes after a position, of these kinds, of ``under`` and of what was below it at that time.

    ``next_token`` is a position, for ``after``; None: there are no more changes at the moment. A page of rare changes
    may have few items, or none, and a token: it stops after it has read many changes. Raises InvalidArgument.
    """
    size = clean_size(size)
    wanted = None if kinds is None else _kinds(kinds)
    scope = None if under is None else _path(session, under)
    most = size if wanted is None and scope is None else max(_AT_LEAST, size * _TIMES)
    page: list[Change] = []
    last = None
    for seen, change in enumerate(changes(session.backend, session.clock, after, most + 1, access=session.access)):
        if len(page) == size or seen == most:
            return Page(tuple(page), last)
        last = change.position
        if (wanted is None or change.kind in wanted) and (scope is None or _is_under(change, scope)):
            page.append(change)
    return Page(tuple(page), None)


def _path(session: Session, under: Path | Entity) -> str:
    if not isinstance(under, Entity):
        return format_path(parse_path(under))
    committed(session.backend, under)
    return under.path


def _kinds(kinds: Iterable[str]) -> frozenset[str]:
    words = items(kinds, "kinds")
    for one in words:
        if not isinstance(one, str):
            raise InvalidArgument(f"a kind is a word such as table, not {shown(one)}")
    return frozenset(words)


def _is_under(change: Change, scope: str) -> bool:
    paths = (change.path_before, change.path_after)
    return any(path is not None and (path == scope or path.startswith(f"{scope}.")) for path in paths)
