"""One page of a listing at a time: each true at one instant, each as cheap as the first, at any depth.

The listing is by key, and the next page begins after the last key: no offset. With a token the parent is the one whose
id the token holds, wherever it is by now; a path that leads to another one is refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.managers.page import Listed, Page, clean_size, just_before, read_token, write_token
from metastore.names import clean_text, fold
from metastore.operation.guards import guards_of
from metastore.operation.request import View
from metastore.operation.session import ManagerSession
from metastore.port.records import ROOT, Node, RowPage

__all__ = ["Nodes", "clean_prefix", "page_after", "page_of", "parent_of_page"]

R = TypeVar("R")
T = TypeVar("T")
Nodes = tuple[Node, ...]
Key = list[Any]
Guards = list[tuple[int, int]]


def clean_prefix(prefix: object) -> str | None:
    """Return a prefix as names are stored, or None."""
    if prefix is None:
        return None
    text = clean_text(prefix, "a prefix")
    if "\x00" in text:
        raise InvalidArgument("a prefix has no NUL: no name has one")
    return unicodedata.normalize("NFC", text)


def page_of(
    session: ManagerSession,
    listed: Listed,
    size: int,
    token: str | None,
    find: Callable[[View], Nodes],
    read: Callable[[Node, Key, int, Guards], RowPage[R]],
    key_of: Callable[[R], Key],
    item_of: Callable[[Nodes, R], T],
    *,
    folds: bool = True,
) -> Page[T]:
    """Return one page of what ``read`` brings from below the nodes that ``find`` finds.

    A key is [name's key, …]; ``read`` is given one that the page begins after, and returns one row more than the page
    has, if there is one. ``folds``: keys are compared without case below a parent that folds.
    """
    size = clean_size(size)
    epoch = session.of_store().epoch()
    given = None if token is None else read_token(listed, epoch, token)
    parent_id = None if given is None else given[0]
    view = View(session.backend, trusting=True)
    while True:
        nodes = parent_of_page(view, find, parent_id)
        above = nodes[-1] if nodes else ROOT
        parent_id = above.id
        begins = fold(listed.prefix) if listed.prefix and folds and above.fold else listed.prefix
        guards = [(g.id, g.scope_version) for g in guards_of(nodes)]
        rows = _rows(read, above, key_of, begins, None if given is None else given[1], size, guards)
        if rows is not None:
            break
        view = View(session.backend, trusting=False)
    more = len(rows) > size
    following = write_token(listed, epoch, parent_id, key_of(rows[size - 1])) if more else None
    return Page(tuple([item_of(nodes, row) for row in rows[:size]]), following)


def _rows(
    read: Callable[[Node, Key, int, Guards], RowPage[R]],
    above: Node,
    key_of: Callable[[R], Key],
    begins: str | None,
    after: Key | None,
    size: int,
    guards: Guards,
) -> list[R] | None:
    """Return the page's rows and one more, as far as they begin so; None: the guards did not hold."""
    at = [just_before(begins or ""), 0] if after is None else after
    while True:
        page = read(above, at, size + 1, guards)
        if not page.held:
            return None
        if begins is None:
            return page.rows
        found = [row for row in page.rows if key_of(row)[0].startswith(begins)]
        # what sorts before the prefix, and after the text just before it, has the last code point of all in it
        if found or len(page.rows) <= size or key_of(page.rows[-1])[0] > begins:
            return found
        at = key_of(page.rows[-1])


def parent_of_page(view: View, find: Callable[[View], Nodes], parent_id: int | None) -> Nodes:
    """Return the nodes of the parent: the one with this id, where a token names it."""
    try:
        nodes = find(view)
    except EntityNotFound:
        known = None if not parent_id else view.backend.by_id([parent_id])[0]
        if known is None or not known.live:
            raise
        return known.record.chain
    found = nodes[-1].id if nodes else ROOT.id
    if parent_id is not None and found != parent_id:
        raise InvalidArgument("the token is of another listing: the path leads elsewhere; begin without a token")
    return nodes


def page_after(
    session: ManagerSession,
    listed: Listed,
    size: int,
    token: str | None,
    entity_of: Callable[[int | None], int],
    read: Callable[[int, int, int], Sequence[R]],
    number_of: Callable[[R], int],
    item_of: Callable[[R], T],
) -> Page[T]:
    """Return one page of what belongs to an entity and is numbered, such as its versions."""
    size = clean_size(size)
    epoch = session.of_store().epoch()
    parent_id, after = (None, [0]) if token is None else read_token(listed, epoch, token)
    entity_id = entity_of(parent_id)
    rows = read(entity_id, after[0], size + 1)
    following = write_token(listed, epoch, entity_id, [number_of(rows[size - 1])]) if len(rows) > size else None
    return Page(tuple([item_of(row) for row in rows[:size]]), following)
