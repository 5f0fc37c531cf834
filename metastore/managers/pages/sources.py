"""Read one page of a listing at a time: true at one instant, and as cheap at any depth as the first page.

A listing is ordered by key, and a page begins after the last key of the page before, so that no page counts or skips
rows. A token holds the id of the parent, which may have another path by now. If the caller's path leads to another
parent, the call is refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.managers.pages.page import Page, TokenScope, clean_size, just_before, read_token, write_token
from metastore.names import clean_text, fold
from metastore.operation.guards import guards_of
from metastore.operation.request import View
from metastore.operation.session import Listed, ManagerSession
from metastore.operation.timed import timed
from metastore.port.backend import Guards
from metastore.port.records import ROOT, Node, RowPage

R = TypeVar("R")
T = TypeVar("T")
Nodes = tuple[Node, ...]
Key = list[Any]


@dataclass(frozen=True, kw_only=True)
class PageSource(Generic[R, T]):
    """The source of a listing, row by row in the order of keys."""

    listed: TokenScope
    parent: Callable[[View], Nodes]
    """A function that finds the parent's nodes."""
    read: Callable[[Node, Key, int, Guards], RowPage[R]]
    """A function from (parent, the key to begin after, limit, guards of the parent's path) to rows."""
    key: Callable[[R], Key]
    """The key of a row: its name's key first."""
    item: Callable[[Nodes, R], T]
    """A function from (the parent's nodes, row) to the item for the caller."""
    folds: bool = True
    """Keys are compared without case below a parent that folds."""
    kept_as: Callable[[], Hashable] | None = None
    """The key under which a cache keeps a page; None: the cache keeps no page."""


@dataclass(frozen=True, kw_only=True)
class NumberedSource(Generic[R, T]):
    """The source of a listing whose rows belong to one entity and are numbered, such as its versions."""

    listed: TokenScope
    entity: Callable[[int | None], int]
    """A function from the id in a token (None: no token) to the entity's id. Raises InvalidArgument if they differ."""
    read: Callable[[int, int, int], Sequence[R]]
    """A function from (the entity's id, the number to begin after, limit) to rows."""
    number: Callable[[R], int]
    item: Callable[[R], T]


def clean_prefix(prefix: object) -> str | None:
    """Return a prefix in the form in which names are stored, or None."""
    if prefix is None:
        return None
    text = clean_text(prefix, "a prefix")
    if "\x00" in text:
        raise InvalidArgument("a prefix must not contain NUL")
    return unicodedata.normalize("NFC", text)


def page_of(session: ManagerSession, source: PageSource[R, T], size: int, token: str | None) -> Page[T]:
    """Return one page of ``source``. Raises InvalidArgument for a wrong size or token, EntityNotFound."""
    return timed(session, "page", _page_of, session, source, size, token)


def _page_of(session: ManagerSession, source: PageSource[R, T], size: int, token: str | None) -> Page[T]:
    size = clean_size(size)
    cache = session.cache
    if cache is None or source.kept_as is None:
        listed = _read(session, source, size, token)
    else:
        key = (source.listed, source.kept_as(), size, token)
        listed = cache.read_page(key, lambda: _read(session, source, size, token))
    return Page(listed.items, listed.more)


def _read(session: ManagerSession, source: PageSource[R, T], size: int, token: str | None) -> Listed:
    epoch = session.epoch()
    given = None if token is None else read_token(source.listed, epoch, token)
    view = View(session.backend, trusting=True)
    while True:
        # a token has the parent's id; without a token, the parent is the entity that is now at the path
        nodes, found = parent_of(view, source.parent, None if given is None else given[0])
        above = nodes[-1] if nodes else ROOT
        prefix = source.listed.prefix
        begins = fold(prefix) if prefix and source.folds and above.fold else prefix
        guards = [(g.id, g.scope_version) for g in guards_of(nodes)]
        rows = _rows(source, above, begins, None if given is None else given[1], size, guards)
        if rows is not None:
            break
        view = View(session.backend, trusting=False)
    more = len(rows) > size
    following = write_token(source.listed, epoch, above.id, source.key(rows[size - 1])) if more else None
    return Listed(nodes, tuple([source.item(nodes, row) for row in rows[:size]]), following, found)


def _rows(
    source: PageSource[R, T],
    above: Node,
    begins: str | None,
    after: Key | None,
    size: int,
    guards: Guards,
) -> list[R] | None:
    """Return the rows of the page and one more, all with the prefix ``begins``; None: the guards did not hold."""
    at = [just_before(begins or ""), 0] if after is None else after
    while True:
        page = source.read(above, at, size + 1, guards)
        if not page.held:
            return None
        if begins is None:
            return page.rows
        rows = [row for row in page.rows if source.key(row)[0].startswith(begins)]
        # this loop rarely repeats: few keys lie between just_before(prefix) and the prefix
        if rows or len(page.rows) <= size or source.key(page.rows[-1])[0] > begins:
            return rows
        at = source.key(page.rows[-1])


def parent_of(view: View, find: Callable[[View], Nodes], parent_id: int | None) -> tuple[Nodes, bool]:
    """Return the nodes of the parent that ``find`` finds, and True.

    If the path leads nowhere by now, return the nodes of the entity with this id, and False.
    """
    try:
        nodes = find(view)
    except EntityNotFound:
        known = None if not parent_id else view.backend.by_id([parent_id])[0]
        if known is None or not known.live:
            raise
        return known.record.chain, False
    here = nodes[-1].id if nodes else ROOT.id
    if parent_id is not None and here != parent_id:
        raise InvalidArgument("the token is of another listing: the path leads elsewhere; begin without a token")
    return nodes, True


def page_after(
    session: ManagerSession, source: NumberedSource[R, T], size: int, token: str | None, begin: int = 0
) -> Page[T]:
    """Return one page of ``source``; without a token, after the number ``begin``.

    Raises InvalidArgument for a wrong size or token, EntityNotFound.
    """
    return timed(session, "page", _page_after, session, source, size, token, begin)


def _page_after(
    session: ManagerSession, source: NumberedSource[R, T], size: int, token: str | None, begin: int
) -> Page[T]:
    size = clean_size(size)
    epoch = session.epoch()
    parent_id, after = (None, [begin]) if token is None else read_token(source.listed, epoch, token)
    entity_id = source.entity(parent_id)
    rows = source.read(entity_id, after[0], size + 1)
    more = len(rows) > size
    following = write_token(source.listed, epoch, entity_id, [source.number(rows[size - 1])]) if more else None
    return Page(tuple([source.item(row) for row in rows[:size]]), following)
