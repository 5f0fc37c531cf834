"""Replay the change feed from its start: at each position, all parents must be live; the end must equal the tables.

Memory grows with the number of entities: eight bytes for the place of each one, the name of each entity that can have
children, and the ids of purged entities.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from metastore.errors import InvalidArgument
from metastore.kinds.families import families_of
from metastore.kinds.registry import kind_named
from metastore.names import format_path, parse_path
from metastore.port.conditions import ROOT_ID
from metastore.verify.violations import Places, Violation, is_container

__all__ = ["FeedEvent", "Replay"]

_UNSEEN = -1
_UPPER = ("metalake", "catalog")
_PLACING = ("create", "rename", "move", "restore")
Names = tuple[str, ...]


def _dropped(parent_id: int) -> int:
    """Return the number that represents a dropped entity below ``parent_id``. It is its own inverse."""
    return -2 - parent_id


class FeedEvent(NamedTuple):
    """The feed's record of one write."""

    owner_id: int | None
    kind: str
    action: str
    before: str | None
    """The path before the write."""
    after: str | None
    """The path after the write."""
    other_id: int | None = None
    """For a relation: its other end."""
    other_path: str | None = None
    parent_id: int | None = None
    """The parent's id in the step; None: the step does not have it."""
    fold: bool | None = None


class Replay:
    """The tree after the feed's events up to one position."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._stands = array("q", [_UNSEEN]) * len(places.ids)
        self._gone: dict[int, int] = {}
        self._purged: set[int] = set()
        self._by_name: dict[tuple[int, str, str], int] = {}
        self._labels: dict[int, tuple[int, str, str]] = {}
        self._folds: dict[int, bool] = {}
        """By an entity that can have children: whether names below it are folded."""
        self._families: dict[str, None] = dict.fromkeys(["schema"])

    def apply(self, seq: int, entity_id: int, event: FeedEvent) -> Iterator[Violation]:
        """Apply one event, and yield the violations."""
        owner_id, kind, action, before, after, other_id, other_path, *_ = event
        try:
            old, new = (None if path is None else parse_path(path) for path in (before, after))
        except InvalidArgument as error:
            yield Violation(8, entity_id, after or before, f"at position {seq} the path is not valid: {error}")
            return
        if owner_id is not None and other_id is not None:
            yield from self._relation(seq, entity_id, (owner_id, other_id), action, new or old or (), other_path)
            return
        if owner_id is not None:
            yield from self._owned(seq, entity_id, owner_id, action, new or old or ())
            return
        stood = self._get(entity_id)
        if old is not None and (stood >= 0 or action != "purge") and self._parent(old, kind) != stood:
            message = f"at position {seq}, {action} by a path that did not lead to it any more"
            yield Violation(4, entity_id, format_path(old), message)
        if action in _PLACING and new is not None:
            yield from self._place(seq, entity_id, event, new)
        elif action in ("drop", "purge"):
            self._forget(entity_id)
            self._set(entity_id, _dropped(stood) if stood >= 0 else stood)
            if action == "purge":
                self._purged.add(entity_id)

    def differs(self, entity_id: int, parent_id: int) -> str | None:
        """Return how the feed contradicts the tables, where an entity is below ``parent_id``; None: it agrees."""
        stands = self._get(entity_id)
        said = stands if stands >= 0 else _dropped(stands)
        if said == _UNSEEN:
            return "it is in the tables, but the feed never made it"
        if said != parent_id:
            return f"the feed puts it below entity {said}, the tables below entity {parent_id}"
        return None

    def is_purged(self, entity_id: int) -> bool:
        """Return whether an entity, or one above it, was purged."""
        seen = set[int]()
        while entity_id > ROOT_ID and entity_id not in seen:
            if entity_id in self._purged:
                return True
            seen.add(entity_id)
            stands = self._get(entity_id)
            entity_id = stands if stands >= 0 else _dropped(stands)
        return False

    def _owned(self, seq: int, row_id: int, owner_id: int, action: str, names: Names) -> Iterator[Violation]:
        if owner_id == ROOT_ID:  # a drop in steps names ids only, and has no path to check
            return
        stood = self._get(owner_id)
        if stood < 0 or self._parent(names[:-1]) != stood:
            message = f"at position {seq}, {action} by a path that did not lead to its owner {owner_id} any more"
            yield Violation(2 if action == "create" else 4, row_id, format_path(names), message)

    def _relation(
        self, seq: int, row_id: int, ends: tuple[int, int], action: str, names: Names, other_path: str | None
    ) -> Iterator[Violation]:
        """Check that both ends of a relation were at the paths in its event, in any order."""
        stood = [self._get(entity_id) for entity_id in ends]
        named = [self._parent(names), self._parent(parse_path(other_path or ""))]
        if min(stood) < 0 or sorted(stood) != sorted(-1 if parent is None else parent for parent in named):
            message = f"at position {seq}, {action} of a relation with an end that was not at its path"
            yield Violation(13, row_id, format_path(names), message)

    def _place(self, seq: int, entity_id: int, event: FeedEvent, names: Names) -> Iterator[Violation]:
        kind, action = event.kind, event.action
        parent = self._parent(names, kind)
        if parent is None:
            message = f"at position {seq}, {action} below {format_path(names[:-1])}, which was not live there"
            yield Violation(2, entity_id, format_path(names), message)
            at = self._places.index(entity_id)
            parent = ROOT_ID if at is None else self._places.parents[at]
        elif event.parent_id is not None:
            yield from self._said(seq, entity_id, event, parent, names)
        self._forget(entity_id)
        self._set(entity_id, parent)
        if is_container(kind):
            if event.parent_id is not None:  # None: an older program wrote the step, without its place
                self._folds[entity_id] = bool(event.fold)
            family = kind_named(kind).family
            self._families[family] = None
            label = self._labels[entity_id] = (parent, family, names[-1])
            self._by_name[label] = entity_id

    def _said(self, seq: int, entity_id: int, event: FeedEvent, parent: int, names: Names) -> Iterator[Violation]:
        """Check that a step has the parent to which its path leads, and the same fold flag as this parent."""
        known = families_of(kind_named(event.kind), len(names)) is not None  # for an unknown kind the parent is a guess
        if known and event.parent_id != parent:
            message = f"at position {seq}, {event.action} says that its parent is {event.parent_id}, not {parent}"
            yield Violation(15, entity_id, format_path(names), message)
        if len(names) > len(_UPPER) and bool(event.fold) != self._folds.get(parent, bool(event.fold)):
            message = f"at position {seq}, {event.action} has another fold flag than its parent"
            yield Violation(15, entity_id, format_path(names), message)

    def _forget(self, entity_id: int) -> None:
        """Remove the name of an entity, so that no path leads through it."""
        label = self._labels.pop(entity_id, None)
        if label is not None and self._by_name.get(label) == entity_id:
            del self._by_name[label]

    def _parent(self, names: Names, kind: str = "") -> int | None:
        """Follow a path through live containers to the parent of its last name. Return None if a name is not found.

        An entity of an unknown kind can be below any container; a schema is tried first.
        """
        families = families_of(kind_named(kind), len(names))
        here = ROOT_ID
        for depth, name in enumerate(names[:-1]):
            known = families or _UPPER
            those = known[depth : depth + 1] or tuple(self._families)
            children = [child for family in those if (child := self._by_name.get((here, family, name))) is not None]
            if not children:
                return None
            here = children[0]
        return here

    def _get(self, entity_id: int) -> int:
        """Return the parent's id, or :func:`_dropped` of that id, or _UNSEEN."""
        at = self._places.index(entity_id)
        return self._gone.get(entity_id, _UNSEEN) if at is None else self._stands[at]

    def _set(self, entity_id: int, stands: int) -> None:
        at = self._places.index(entity_id)
        if at is None:
            self._gone[entity_id] = stands
        else:
            self._stands[at] = stands
