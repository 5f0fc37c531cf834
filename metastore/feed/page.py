"""One page of the change feed: what a service answers to a consumer that asks for what came after a position."""

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
"""How many changes are looked at for a page of what few of them are: so many, or so many times the page's size."""


def changes_page(
    session: Session,
    after: str | None,
    size: int,
    kinds: Iterable[str] | None,
    under: Path | Entity | None,
) -> Page[Change]:
    """Return the changes after a position of these kinds, of ``under`` and what was below it then.

    ``next_token`` is a position, for ``after``; None: there is no more at the moment. A page of what is rare may have
    few items, or none, and a token: it took many changes to find them.
    """
    size = clean_size(size)
    wanted = None if kinds is None else _kinds(kinds)
    scope = None if under is None else _path(session, under)
    most = size if wanted is None and scope is None else max(_AT_LEAST, size * _TIMES)
    found: list[Change] = []
    last = None
    for seen, change in enumerate(changes(session.backend, session.clock, after, most + 1)):
        if len(found) == size or seen == most:
            return Page(tuple(found), last)
        last = change.position
        if (wanted is None or change.kind in wanted) and (scope is None or _is_under(change, scope)):
            found.append(change)
    return Page(tuple(found), None)


def _path(session: Session, under: Path | Entity) -> str:
    if not isinstance(under, Entity):
        return format_path(parse_path(under))
    committed(session.backend, under)
    return under.path


def _kinds(kinds: Iterable[str]) -> frozenset[str]:
    found = items(kinds, "kinds")
    for one in found:
        if not isinstance(one, str):
            raise InvalidArgument(f"a kind is a word such as table, not {shown(one)}")
    return frozenset(found)


def _is_under(change: Change, scope: str) -> bool:
    paths = (change.path_before, change.path_after)
    return any(path is not None and (path == scope or path.startswith(f"{scope}.")) for path in paths)
