"""A backend that shows one user what it may see. Everything above it stays as it is.

What is hidden is left out: a path ends before it, an id leads nowhere, a listing skips it. The one trace that it
leaves is a taken name: a path to something hidden has all its nodes, and no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from metastore.governance.access import Access, Want
from metastore.governance.decision import sees
from metastore.governance.evidence import Known, Nodes
from metastore.names import fold
from metastore.port.backend import Backend, Guards
from metastore.port.commit import ROOT_ID
from metastore.port.records import Child, Lookup, Node, OwnedRecord, Resolved, RowPage
from metastore.port.records import Known as Row
from metastore.port.relations import GONE, End, Related, Relating
from metastore.port.search import Matches, Search

__all__ = ["Seen"]


class _Below(NamedTuple):
    """Which children of a parent the user sees: all but some, or only some; and what that rests on."""

    usually: bool
    but: frozenset[int]
    guards: list[tuple[int, int]]


class Seen:
    """A backend's reads, for one user. What is not here is the backend's own."""

    def __init__(self, backend: Backend, access: Access) -> None:
        self._base = backend
        self._access = access

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    # --- paths and ids

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow each path as far as the user sees it."""
        found = self._base.resolve(lookups)
        chains = [self._above(lookup.start) + one.nodes for lookup, one in zip(lookups, found, strict=True)]
        shown = self._shown([chain for chain in chains if chain])
        return [
            one if not chain else self._cut(lookup, one, chain, next(shown))
            for lookup, one, chain in zip(lookups, found, chains, strict=True)
        ]

    def _shown(self, chains: list[Nodes]) -> Any:
        return iter(self._access.visible(chains))

    def _cut(self, lookup: Lookup, found: Resolved, chain: Nodes, known: Known | None) -> Resolved:
        if known is not None or not found.nodes:
            return found
        seen = self._access.first_hidden(chain) - (len(chain) - len(found.nodes))
        if found.record is not None and seen == len(found.nodes) - 1:
            return Resolved(found.nodes, None)  # the name is taken: that much a create must say
        return Resolved(found.nodes[: max(0, seen)], None)

    def _above(self, start: Node) -> Nodes:
        """Return the nodes that lead to the start of a lookup, itself last."""
        if start.id == ROOT_ID:
            return ()
        known = self._access.remembered(start.id)
        if known is not None and known.nodes[-1].scope_version == start.scope_version:
            return known.nodes
        return self._access.nodes_of([start.id]).get(start.id, (start,))

    def by_id(self, ids: Sequence[int]) -> list[Row | None]:
        """Return each entity that the user sees."""
        rows = self._base.by_id(ids)
        there = [row.record.chain for row in rows if row is not None]
        shown = iter(self._access.visible(there))
        return [row if row is not None and next(shown) is not None else None for row in rows]

    def _sees(self, entity_id: int) -> Known | None:
        chain = self._access.nodes_of([entity_id]).get(entity_id)
        return None if chain is None else self._access.visible([chain])[0]

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        """Return what was dropped last under a name, if the user sees it."""
        child = self._base.gone(parent_id, kind, family, key)
        if child is None:
            return None
        above = self._access.nodes_of([parent_id]).get(parent_id, ())
        return child if self._access.visible([(*above, child.node)])[0] is not None else None

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        """Whether there are children, for owners alone: nothing hidden is told. Raises PermissionDenied."""
        chain = self._access.nodes_of([entity_id]).get(entity_id)
        if chain is not None:
            self._access.require(chain, Want(entity_id, "own"))
        return self._base.has_children(entity_id, besides)

    # --- listings

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        """Return the next children that the user sees."""
        below = self._below(parent_id, kind)
        if below is None:
            return RowPage(False, [])
        held = [*dict.fromkeys([*guards, *below.guards])]
        if not below.usually:
            rows = [row for row in self._rows(parent_id, kind, state, below.but) if (row.key, row.node.id) > after]
            return RowPage(self._base.hold(held), sorted(rows)[:limit])
        kept: list[Child] = []
        while True:
            page = self._base.children(parent_id, kind, family, state, after, limit, held)
            if not page.held:
                return page
            kept += [row for row in page.rows if row.node.id not in below.but]
            if len(page.rows) < limit or len(kept) >= limit:
                return RowPage(True, kept[:limit])
            after = (page.rows[-1].key, page.rows[-1].node.id)

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        """Return the next names that the user sees."""
        below = self._below(parent_id, kind)
        if below is None:
            return RowPage(False, [])
        named = {(row.key, row.node.name) for row in self._rows(parent_id, kind, 0, below.but)}
        held = [*dict.fromkeys([*guards, *below.guards])]
        if not below.usually:
            return RowPage(self._base.hold(held), sorted(row for row in named if row[0] > after)[:limit])
        kept: list[tuple[str, str]] = []
        while True:
            page = self._base.names(parent_id, kind, family, after, limit, held)
            if not page.held:
                return page
            kept += [row for row in page.rows if row not in named]
            if len(page.rows) < limit or len(kept) >= limit:
                return RowPage(True, kept[:limit])
            after = page.rows[-1][0]

    def _below(self, parent_id: int, kind: str) -> _Below | None:
        """Return which children of a kind the user sees; None: it does not see the parent."""
        if parent_id == ROOT_ID:
            return self._metalakes()
        chain = self._access.nodes_of([parent_id]).get(parent_id)
        if chain is None:
            return None
        (known,) = self._access.read([chain], below=parent_id)
        if not sees(known.facts)[-1].allowed:
            return None
        own = {*known.facts.owners, *[grant.on for grant in known.facts.grants]} - {node.id for node in chain}
        own |= {member.id for member in known.facts.members} | {has.role for has in known.facts.roles}
        usually = sees(known.child(-1, kind))[-1].allowed
        but = frozenset(i for i in own if sees(known.child(i, kind))[-1].allowed != usually)
        rests = {**{node.id: node.scope_version for node in chain}, **known.scopes}
        return _Below(usually, but, sorted(rests.items()))

    def _metalakes(self) -> _Below:
        """The metalakes that have the user."""
        ids = self._access.metalakes()
        seen = self._access.visible(list(self._access.nodes_of(ids).values()))
        return _Below(False, frozenset(known.nodes[0].id for known in seen if known is not None), [])

    def _rows(self, parent_id: int, kind: str, state: int, ids: frozenset[int]) -> list[Child]:
        """Return the children among ``ids``."""
        rows = self._base.by_id(sorted(ids)) if ids else []
        return [
            _child(row)
            for row in rows
            if row is not None and row.state == state and _stands(row, parent_id, kind) and (row.live or state)
        ]

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        """Return owned rows of what the user sees; of the root, which has no secrets, all."""
        if owner_id != ROOT_ID and self._sees(owner_id) is None:
            return RowPage(False, [])
        return self._base.owned(owner_id, kind, after, limit, guards)

    # --- relations

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        """Return what goes from an entity that the user sees. What leads to something hidden leads nowhere."""
        found = self._base.related(target, kind, above=above, doc=doc)
        if found is None or not found.end.chain or self._access.visible([found.end.chain])[0] is None:
            return None
        ends = self._ends([end for _, end in found.rows])
        rows = [(record, end) for (record, _), end in zip(found.rows, ends, strict=True)]
        return Related(found.end, found.doc, rows)

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        """Return what leads to an entity that the user sees. What comes from something hidden comes from nowhere."""
        found = self._base.relating(to_id, kind, value, after, limit)
        if found is None or not found.end.chain or self._access.visible([found.end.chain])[0] is None:
            return None
        ends = self._ends([end for _, end, _ in found.rows])
        rows = [
            (record, end, doc if end is not GONE else None)
            for (record, _, doc), end in zip(found.rows, ends, strict=True)
        ]
        return Relating(found.end, rows)

    def _ends(self, ends: list[End]) -> list[End]:
        """Return the ends, and GONE in the place of those that the user does not see."""
        shown = iter(self._access.visible([end.chain for end in ends if end.chain]))
        return [end if end.chain and next(shown) is not None else GONE for end in ends]

    # --- search

    def find(self, search: Search) -> Matches:
        """Return the matches that the user sees."""
        found = self._base.find(search)
        shown = self._access.visible([record.chain for record in found.records])
        records = [record for record, known in zip(found.records, shown, strict=True) if known is not None]
        return Matches(records, found.scanned, found.last)


def _stands(row: Row, parent_id: int, kind: str) -> bool:
    chain = row.record.chain
    return chain[-1].kind == kind and (chain[-2].id if len(chain) > 1 else ROOT_ID) == parent_id


def _child(row: Row) -> Child:
    record, chain = row.record, row.record.chain
    node = chain[-1]
    key = fold(node.name) if len(chain) > 1 and chain[-2].fold else node.name
    return Child(key, node, row.state, record.version, record.doc, *record[3:7])
