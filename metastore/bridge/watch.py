"""Find out whether something changed between two moments, without a lock.

A :class:`Row` has the values that a compare-and-swap on one entity would compare: the scope versions of its ancestors,
its id and its version. A :class:`Subtree` covers the data that a section for reading may read: an entity, its
ancestors' places, and everything below it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol
from uuid import UUID

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.feed.feed import number_in
from metastore.kinds.entity import Change
from metastore.managers.secrets.reveal import entity_of
from metastore.names import fold, parse_path
from metastore.port.conditions import LeaseToken
from metastore.store import Store

__all__ = ["Row", "Subtree", "Watch"]

_PAGE = 1000


class Watch(Protocol):
    """A state that was seen, and may have changed since."""

    def changes(self) -> int:
        """Return how many changes have committed since then."""


class _Seen(NamedTuple):
    """One row as it was seen, and the places above it: pairs of an id and a scope version."""

    places: tuple[tuple[int, int], ...]
    id: int | None
    version: int


class Row:
    """One entity's row, and its place. A look takes one round trip, and one more for each missing level."""

    def __init__(self, store: Store, names: tuple[str, ...]) -> None:
        self._store, self._names = store, names
        self._seen = self._look(names)

    def _look(self, names: tuple[str, ...]) -> _Seen:
        for depth in range(len(names), 0, -1):
            try:
                there = entity_of(self._store._session, names[:depth], None)  # noqa: SLF001
            except EntityNotFound:
                continue
            places = tuple((node.id, node.scope_version) for node in there.record.chain)
            return _Seen(places, there.id, there.version) if depth == len(names) else _Seen(places, None, 0)
        return _Seen((), None, 0)

    def changes(self) -> int:
        """Return how many versions the row has gained; at least 1 if the entity, or a place above it, has changed."""
        now, before = self._look(self._names), self._seen
        if now == before:
            return 0
        return max(1, now.version - before.version) if now.id == before.id else 1


class Subtree:
    """An entity, everything below it, and the path that leads to it.

    It uses the change feed: two round trips if nothing changed, else it reads all changes of the store since then. An
    alter of an ancestor does not count; a rename, move, drop or restore of one does.
    """

    def __init__(self, store: Store, names: tuple[str, ...]) -> None:
        self._store, self._names = store, tuple(map(fold, names))
        self._position = store.position()

    def changes(self, own: Iterable[LeaseToken] = ()) -> int:
        """Return how many changes of the subtree have committed since, except those under a token of ``own``.

        Raises DeadlineExceeded, HistoryGone.
        """
        if self._store.position() == self._position:
            return 0
        touched = [one.operation_id for one in self._store.changes(after=self._position) if self._touches(one)]
        ours = {one for token in own for one in self._committed(token)} if touched else set()
        return sum(one not in ours for one in touched)

    def _committed(self, token: LeaseToken) -> Iterator[UUID]:
        """Yield the operations that have committed under a token."""
        backend = self._store._session.backend  # noqa: SLF001  (an audit would read all of the lease's past)
        after = number_in(backend, self._position)
        while rows := backend.leases.fenced(token.id, after, _PAGE):
            yield from (row.operation_id for row in rows if [token.id, token.token] in json.loads(row.fences))
            after = rows[-1].seq

    def _touches(self, change: Change) -> bool:
        return any(
            self._is_below(names) or (change.action != "alter" and names == self._names[: len(names)])
            for path in (change.path_before, change.path_after)
            if (names := _folded(path)) is not None
        )

    def _is_below(self, names: tuple[str, ...]) -> bool:
        return names[: len(self._names)] == self._names


def _folded(path: str | None) -> tuple[str, ...] | None:
    """Return a path's names, folded, because catalogs that fold treat both spellings as one name."""
    if path is None:
        return None
    try:
        return tuple(map(fold, parse_path(path)))
    except InvalidArgument:  # a damaged row of the feed: its place is unknown
        return ()
