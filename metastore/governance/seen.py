"""A backend that shows one user only what it may see. The code above it needs no changes.

Hidden entities are left out: a path ends before them, their ids are not found, a listing skips them. Only a taken name
reveals them: a path to a hidden entity has all its nodes, but no record.

Rows are read before the rights, or both at one instant. So the user sees nothing that was written after it lost the
right. A method of the port that is neither here nor in ``PASSED`` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from metastore.errors import PermissionDenied
from metastore.governance.access import Access, Probed, Want
from metastore.governance.evidence import KnownFacts, Nodes
from metastore.governance.passed import PASSED, REFUSED
from metastore.governance.privileges import WAY
from metastore.port.backend import Backend, Guards
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.records import Child, Known, Lookup, Node, OwnedRecord, Resolved, RowPage, Step
from metastore.port.relations import GONE, End, Owning, Related, Relating, RelationRecord
from metastore.port.rights import Chosen
from metastore.port.search import Matches, Search

__all__ = ["Seen", "seen_by"]

T = TypeVar("T")

_CLOSED = frozenset(("metalake", *WAY))
"""The kinds of containers that a user must see to see anything below. Other containers need no right of their own."""


def seen_by(step: Step) -> list[int]:
    """Return the ids that a user must see to see a step: its entity, or its row's owner; both ends of a relation."""
    own = step.entity_id if step.owner_id is None else step.owner_id
    return [i for i in (own, step.other_id) if i is not None]


class Seen:
    """A backend's reads for one user. Calls in ``PASSED`` go to the backend unchanged."""

    def __init__(self, backend: Backend, access: Access) -> None:
        self._base = backend
        self._access = access

    def __getattr__(self, name: str) -> Any:
        if name in PASSED:
            return getattr(self._base, name)
        if name in REFUSED:
            user = self._access.who.name
            raise PermissionDenied(user, "admin", "", f"{user} may not use {name} of the database; only admins may")
        raise AttributeError(f"a user's view has no {name}: metastore/governance/passed.py says what it may show")

    # --- paths and ids

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow each path as far as the user sees it."""
        if len(lookups) == 1 and self._access.is_new(lookups[0]):
            return [self._first(lookups[0])]
        known = self._access.at(lookups[0]) if len(lookups) == 1 else None
        if known is None:
            return self._shown(lookups, self._base.resolve(lookups))
        # the same statement checks whether the remembered facts about the object still hold
        resolved, held = self._base.resolve_holding(lookups[0], known.seen_by.pairs)
        if held and resolved.record is not None and known.stands_at(resolved.nodes):
            return [resolved]
        return self._shown(lookups, [resolved], Probed(known.seen_by, held))

    def _first(self, lookup: Lookup) -> Resolved:
        """Follow a path about which nothing is remembered, and read the rights in the same statement."""
        found, rows = self._base.resolve_rights(lookup, self._access.who.name)
        return self._cut(lookup, found, self._access.facts_now(found.nodes, rows)) if found.nodes else found

    def _shown(
        self, lookups: Sequence[Lookup], resolved: list[Resolved], probed: Probed | None = None
    ) -> list[Resolved]:
        """Return the results of paths as far as the user sees them; ``probed``: see ``Access.facts``."""
        above = self._above([lookup.start for lookup in lookups])
        chains = [above[lookup.start.id] + one.nodes for lookup, one in zip(lookups, resolved, strict=True)]
        known = iter(self._access.facts([chain for chain in chains if chain], probed))
        return [
            one if not chain else self._cut(lookup, one, next(known))
            for lookup, one, chain in zip(lookups, resolved, chains, strict=True)
        ]

    def _cut(self, lookup: Lookup, resolved: Resolved, known: KnownFacts) -> Resolved:
        """Return the result of a path as far as ``known``, the facts about its end, let the user see it."""
        if known.seen[-1].allowed or not resolved.nodes:
            if resolved.record is not None:
                self._access.led(lookup, known.nodes[-1].id)
            return resolved
        seen = known.first_hidden - (len(known.nodes) - len(resolved.nodes))
        if resolved.record is not None and seen == len(resolved.nodes) - 1:
            return Resolved(resolved.nodes, None)  # the name is taken, which a create must reveal
        return Resolved(resolved.nodes[: max(0, seen)], None)

    def _above(self, starts: Iterable[Node]) -> dict[int, Nodes]:
        """Return the nodes that lead to the start of each lookup, itself last.

        The nodes are read and not remembered: the ancestors may have changed, and the scope version of the start would
        not show that.
        """
        found: dict[int, Nodes] = {start.id: () if start.id == ROOT_ID else (start,) for start in starts}
        return {**found, **self._nodes_of([i for i in found if i != ROOT_ID])}

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        """Return each entity that the user sees."""
        probe = self._access.probe(ids)
        rows, held = self._base.by_id_holding(ids, probe.sorted().pairs) if probe else (self._base.by_id(ids), False)
        there = [row.record.chain for row in rows if row is not None]
        shown = iter(self._access.visible(there, Probed(probe, held) if probe else None))
        return [row if row is not None and next(shown) is not None else None for row in rows]

    def _nodes_of(self, ids: Sequence[int]) -> dict[int, Nodes]:
        """Read the nodes that lead to entities, in any state, including the writes of a transaction."""
        rows = self._base.by_id(ids) if ids else []
        return {i: row.record.chain for i, row in zip(ids, rows, strict=True) if row is not None}

    def _sees(self, ids: Sequence[int]) -> set[int]:
        """Return the ids of those entities that the user sees, in any state."""
        return {i for i, row in zip(ids, self.by_id(ids) if ids else [], strict=True) if row is not None}

    def named(self, parent_id: int, family: str, key: str, guards: Guards) -> RowPage[Child]:
        """Return the entity with a name, if the user sees it."""
        page = self._base.named(parent_id, family, key, guards)
        if not page.rows:
            return page
        above = self._nodes_of([parent_id]).get(parent_id, ())
        shown = self._access.visible([(*above, page.rows[0].node)])[0] is not None
        return page if shown else RowPage(page.held, [])

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        """Return the entity that was dropped last under a name, if the user sees it."""
        child = self._base.gone(parent_id, kind, family, key)
        if child is None:
            return None
        above = self._nodes_of([parent_id]).get(parent_id, ())
        return child if self._access.visible([(*above, child.node)])[0] is not None else None

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        """Whether an entity has children. Only owners may ask: children may be hidden. Raises PermissionDenied."""
        there = self._base.has_children(entity_id, besides)
        chain = self._nodes_of([entity_id]).get(entity_id)
        if chain is not None:
            self._access.require(chain, Want(entity_id, "own"))
        return there

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        """Return the steps of an entity if the user sees it now, and nothing of others, whatever id the caller has."""
        steps = self._base.history(entity_id, after, limit)
        ids = list(dict.fromkeys(i for step in steps for i in seen_by(step)))
        shown = self._sees(ids)
        return [step for step in steps if shown.issuperset(seen_by(step))]

    # --- listings

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        """Return the next children that the user sees."""
        if self._access.mine is not None:
            return self._filtered(parent_id, kind, family, state, after, limit, guards)
        what = (parent_id, kind, family, state, after, limit, guards)
        return self._chosen(
            parent_id,
            kind,
            guards,
            lambda chosen: self._base.children_chosen(*what, chosen) if _some(chosen) else self._base.children(*what),
        )

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        """Return the next names that the user sees."""
        if self._access.mine is not None:
            page = self._filtered(parent_id, kind, family, LIVE, (after, 0), limit, guards)
            return RowPage(page.held, [(child.key, child.node.name) for child in page.rows])
        what = (parent_id, kind, family, after, limit, guards)
        return self._chosen(
            parent_id,
            kind,
            guards,
            lambda chosen: self._base.names_chosen(*what, chosen) if _some(chosen) else self._base.names(*what),
        )

    def _chosen(self, parent_id: int, kind: str, guards: Guards, read: Callable[[Chosen], RowPage[T]]) -> RowPage[T]:
        """Return the page that ``read`` gets for the children that the user sees.

        The remembered choice is only a guess of what to read: the rights are read after the rows.
        """
        before, fresh = self._access.chosen(parent_id, kind), False
        if before is None:
            before, fresh = self._below(parent_id, kind, guards), True
        while before is not None:
            page = read(before)
            now = self._below(parent_id, kind, guards) if page.held else before
            # the page may lack what rights granted since the call began show; it must lack what revoked ones showed
            if now == before or (fresh and now is not None and now.shows_all(before)):
                return page
            before, fresh = now, True
        return RowPage(False, [])

    def _filtered(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        """Return the children that the user sees, in a transaction, which must note all children to validate them."""
        above = () if parent_id == ROOT_ID else self._nodes_of([parent_id]).get(parent_id)
        if above is None or (above and self._access.visible([above])[0] is None):
            return RowPage(False, [])
        kept: list[Child] = []
        while True:
            page = self._base.children(parent_id, kind, family, state, after, limit, guards)
            shown = self._access.visible([(*above, child.node) for child in page.rows])
            kept += [child for child, known in zip(page.rows, shown, strict=True) if known is not None]
            if not page.held or len(page.rows) < limit or len(kept) >= limit:
                return RowPage(page.held, kept[:limit])
            after = (page.rows[-1].key, page.rows[-1].node.id)

    def _below(self, parent_id: int, kind: str, guards: Guards) -> Chosen | None:
        """Read and remember which children of a kind the user sees. Return None if it does not see the parent."""
        chosen = self._metalakes() if parent_id == ROOT_ID else self._below_entity(parent_id, kind, guards)
        self._access.chose(parent_id, kind, chosen)
        return chosen

    def _below_entity(self, parent_id: int, kind: str, guards: Guards) -> Chosen | None:
        chain = self._standing(parent_id, guards)
        if chain is None:
            return None
        (known,) = self._access.read([chain], below=parent_id)
        if not known.seen[-1].allowed:
            return None
        usually, but = known.exceptions(kind)
        return Chosen(tuple(sorted(but)), only=not usually)

    def _standing(self, entity_id: int, guards: Guards) -> Nodes | None:
        """Return the nodes that lead to an entity: the remembered ones if ``guards`` include them, else read them."""
        known = self._access.remembered(entity_id)
        if known is not None and {(node.id, node.scope_version) for node in known.nodes} <= {*guards}:
            return known.nodes
        return self._nodes_of([entity_id]).get(entity_id)

    def _metalakes(self) -> Chosen:
        """Return the metalakes that the user belongs to, and sees."""
        ids = self._access.metalakes()
        seen = self._access.visible(list(self._nodes_of(ids).values()))
        return Chosen(tuple(sorted([known.nodes[0].id for known in seen if known is not None])), only=True)

    # --- owned rows

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        """Return the owned rows of an entity that the user sees; all rows of the root, which are not secret."""
        page = self._base.owned(owner_id, kind, after, limit, guards)
        return page if owner_id == ROOT_ID or self._sees([owner_id]) else RowPage(False, [])

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        """Return the owned rows of the entities that the user sees; all rows of the root, which are not secret."""
        rows = self._base.owned_by_name(owner_ids, kind, names)
        owners = [i for i in dict.fromkeys(owner_ids) if i != ROOT_ID]
        if self._access.may_guess(owners):
            return rows
        seen = {ROOT_ID, *self._sees(owners)}
        return [row if owner in seen else None for owner, row in zip(owner_ids, rows, strict=True)]

    def owning(self, target: Lookup | int, kinds: tuple[str, str], names: Sequence[str]) -> Owning | None:
        """Return an entity that the user sees, and its owned rows."""
        found = self._base.owning(target, kinds, names)
        if found is None or not found.end.chain or self._access.visible([found.end.chain])[0] is None:
            return None
        return found

    # --- relations

    def related(self, target: Lookup | int, kind: str, *, above: bool, doc: bool) -> Related | None:
        """Return the relations from an entity that the user sees. A relation to a hidden entity has the end GONE."""
        relations = self._base.related(target, kind, above=above, doc=doc)
        if relations is None or not relations.end.chain or self._access.visible([relations.end.chain])[0] is None:
            return None
        ends = self._ends([end for _, end in relations.rows])
        rows = [(record, end) for (record, _), end in zip(relations.rows, ends, strict=True)]
        return Related(relations.end, relations.doc, rows)

    def relating(
        self, to_id: int, kind: str, value: str | None, after: tuple[str, int, int], limit: int
    ) -> Relating | None:
        """Return the relations to an entity that the user sees. A relation from a hidden entity has the end GONE."""
        return self._page(self._base.relating(to_id, kind, value, after, limit))

    def related_page(self, from_id: int, kind: str, after: tuple[int, int, str], limit: int) -> Relating | None:
        """Return the relations from an entity that the user sees. A relation to a hidden entity has the end GONE."""
        return self._page(self._base.related_page(from_id, kind, after, limit))

    def _page(self, found: Relating | None) -> Relating | None:
        if found is None or not found.end.chain or self._access.visible([found.end.chain])[0] is None:
            return None
        ends = self._ends([end for _, end, _ in found.rows])
        rows = [
            (record, end, doc if end is not GONE else None)
            for (record, _, doc), end in zip(found.rows, ends, strict=True)
        ]
        return Relating(found.end, rows)

    def _ends(self, ends: list[End]) -> list[End]:
        """Return the ends, with GONE for those that the user does not see."""
        shown = iter(self._access.visible([end.chain for end in ends if end.chain]))
        return [end if end.chain and next(shown) is not None else GONE for end in ends]

    def relations(self, kind: str, slots: Sequence[tuple[int, int]]) -> list[RelationRecord]:
        """Return the relations in slots of entities that the user sees, even if the other end is hidden.

        A write that replaces an exclusive relation must raise that relation's version. Nothing else of a hidden end is
        used.
        """
        rows = self._base.relations(kind, slots)
        froms = list(dict.fromkeys(from_id for from_id, _ in slots))
        if self._access.may_guess(froms):
            return rows
        seen = self._sees(froms)
        return [row for row in rows if row.from_id in seen]

    # --- search

    def find(self, search: Search) -> Matches:
        """Return the matches that the user sees, and the containers below which it may see something."""
        matches = self._base.find(search)
        containers = [one.id for one in matches.scanned if one.kind in _CLOSED]
        hidden = {*containers} - self._sees(containers)
        shown = self._access.visible([record.chain for record in matches.records])
        records = [record for record, known in zip(matches.records, shown, strict=True) if known is not None]
        return matches._replace(records=records, scanned=[one for one in matches.scanned if one.id not in hidden])


def _some(chosen: Chosen) -> bool:
    """Whether a choice excludes some children."""
    return bool(chosen.ids) or chosen.only
