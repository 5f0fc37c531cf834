"""The listings that a transaction sees: its drafts, and the database's listings without the entities of drafts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from metastore.port.backend import Reads
from metastore.port.conditions import DROPPED, LIVE, Children, Listing, Newest
from metastore.port.records import Child, RowPage, all_pages
from metastore.transaction.drafts import Drafts
from metastore.transaction.entities import EntityOverlay
from metastore.transaction.reads import ReadSet

_PAGE = 1000


class ListingOverlay:
    """The children of parents, and whether a parent has any. A database listing is read completely, and noted.

    A listing is merged once, and again after each write: all pages of one loop come from one listing.
    """

    def __init__(self, base: Reads, reads: ReadSet, drafts: Drafts, entities: EntityOverlay) -> None:
        self._base = base
        self._reads = reads
        self._drafts = drafts
        self._entities = entities
        self._merged: dict[tuple[int, str, str, int], list[Child]] = {}

    def forget(self) -> None:
        """Forget the merged listings, because the transaction wrote an entity."""
        self._merged.clear()

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int
    ) -> RowPage[Child]:
        """Return a page of children in one state, by name."""
        listing = self._listing(parent_id, kind, family, state)
        start = bisect_right(listing, after, key=lambda c: (c.key, c.node.id))
        return RowPage(True, listing[start : start + limit])

    def names(self, parent_id: int, kind: str, family: str, after: str, limit: int) -> RowPage[tuple[str, str]]:
        """Return a page of names."""
        listing = self._listing(parent_id, kind, family, LIVE)
        start = bisect_right(listing, after, key=lambda c: c.key)
        return RowPage(True, [(c.key, c.node.name) for c in listing[start : start + limit]])

    def has_children(self, entity_id: int, besides: Sequence[int]) -> bool:
        """Return whether an entity has live children other than ``besides``."""
        if any(self._drafts.below(entity_id)):
            return True
        if self._drafts.is_new(entity_id):
            return False
        known = frozenset([*besides, *self._entities.written_below(entity_id)])
        there = self._base.has_children(entity_id, sorted(known))
        self._reads.children.add(Children(entity_id, known, there))
        return there

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        """Return the most recently dropped child of this name."""
        draft = self._drafts.at(parent_id, family, key, DROPPED, kind)
        if draft is not None:
            return draft.child()
        if self._drafts.is_new(parent_id):
            return None
        child = self._base.gone(parent_id, kind, family, key)
        self._reads.newest.add(Newest(parent_id, kind, family, key, child and child.node.id))
        self._entities.note_root(parent_id)
        if child is not None:
            self._entities.by_id([child.node.id])
        return None if child is not None and self._entities.state(child.node.id) == LIVE else child

    def _listing(self, parent_id: int, kind: str, family: str, state: int) -> list[Child]:
        which = (parent_id, kind, family, state)
        if which not in self._merged:
            there = [] if self._drafts.is_new(parent_id) else self._there(parent_id, kind, family, state)
            mine = [draft.child() for draft in self._drafts.below(parent_id, state) if draft.node.kind == kind]
            rows = [c for c in there if c.node.id not in self._drafts] + mine
            self._merged[which] = sorted(rows, key=lambda c: (c.key, c.node.id))
        return self._merged[which]

    def _there(self, parent_id: int, kind: str, family: str, state: int) -> list[Child]:
        """Return the whole listing from the database, and note it."""

        def read(after: tuple[str, int]) -> list[Child]:
            return self._base.children(parent_id, kind, family, state, after, _PAGE, ()).rows

        rows = list(all_pages(read, ("", 0), lambda child: (child.key, child.node.id), _PAGE))
        for row in rows if state == LIVE else ():
            self._entities.note_child(row.node, parent_id)
        members = frozenset((c.node.id, c.version) for c in rows)
        noted = Listing(parent_id, kind, members, state=state)
        self._reads.listings.setdefault((parent_id, kind, False, state), noted)
        self._entities.note_root(parent_id)
        return rows
