"""Replay the feed: versions form chains, a name has one live entity, and all ancestors of live entities are live.

Memory grows with the number of entities, not with the length of the feed. Each event comes out *placed*: with the names
that it gave and took, so that :mod:`metastore.checker.sweep` knows the meaning of a path at a position. Names are
compared exactly; ``store.verify`` checks the other spellings of a catalog that folds case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from metastore.checker.event import Event
from metastore.checker.finding import Finding
from metastore.checker.related import Related, Rights
from metastore.kinds.families import families_of
from metastore.kinds.registry import kind_named
from metastore.names import format_path, parse_path
from metastore.port.conditions import ROOT_ID

__all__ = ["CHILDREN", "DEEPEST", "DROPPED", "EXCLUSIVE", "NO_NAME", "Named", "Placed", "Tree"]

EXCLUSIVE: Final = frozenset({"rename", "move", "drop", "restore", "enable", "disable", "purge"})
DEEPEST: Final = 1000
"""The greatest number of parents that are followed: in a damaged feed, an entity may be below itself."""
NO_NAME: Final = "+"
"""The prefix of families that do not hold names, but other values that an event changes."""
CHILDREN: Final = "+children"
"""``Named(id, CHILDREN, "", id)``: the entity has live children; ``Named(id, CHILDREN, "", None)``: it has none."""
DROPPED: Final = "+dropped "
"""``Named(parent_id, DROPPED + kind, name, id)``: the entity was dropped last under the name. None: no entity there can
be restored.
"""
_PLACING: Final = frozenset({"create", "rename", "move", "restore"})
_KNOWN: Final = EXCLUSIVE | {"create", "alter"}
_names = lru_cache(maxsize=100_000)(parse_path)


class Named(NamedTuple):
    """The meaning of a name from a position on: an entity, or None for no entity."""

    parent_id: int
    family: str
    name: str
    entity_id: int | None


class Placed(NamedTuple):
    """The effect of one event."""

    seq: int
    operation_id: str
    principal: str | None
    entity_id: int
    version: int
    gone: bool
    """Whether the entity no longer exists."""
    exclusive: bool
    names: tuple[Named, ...]


@dataclass(slots=True)
class _Node:
    parent_id: int
    family: str
    kind: str
    name: str
    live: bool
    last: Event
    children: int = 0


class Tree:
    """The entities that the feed has created so far."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._taken: dict[tuple[int, str, str], int] = {}
        self._owned: dict[int, Event] = {}
        self._owned_names: dict[tuple[int, str, str], int] = {}
        self._dropped: dict[tuple[int, str, str], list[int]] = {}
        """The entities that were dropped under a parent, a kind and a name, oldest first."""
        self._under: dict[int, tuple[int, str, str]] = {}
        self._before: dict[tuple[int, str, str], int | None] = {}
        """The old values, besides names, that the current event may change."""
        self._related, self._rights = Related(self._path_of), Rights()

    def apply(self, event: Event) -> tuple[Placed, list[Finding]]:
        """Apply the next event. Return its effect, and a finding for each contradiction."""
        rights = self._rights.apply(event)
        placed, findings = self._relate(event) if event.other_id is not None else self._apply(event)
        return placed, [*rights, *findings]

    def _relate(self, event: Event) -> tuple[Placed, list[Finding]]:
        findings = [*_follows(event, self._related.last(event.entity_id)), *self._related.apply(event)]
        return self._placed(event, event.action != "drop", ()), findings

    def _apply(self, event: Event) -> tuple[Placed, list[Finding]]:
        """Apply the event of an entity or an owned row."""
        findings: list[Finding] = []
        if event.owner_id is not None:
            findings.extend(self._own(event, event.owner_id))
            return self._placed(event, event.action != "drop", _owned_name(event, event.owner_id)), findings
        node = self._nodes.get(event.entity_id)
        findings.extend(_follows(event, None if node is None else node.last))
        if node is not None and event.path_before is not None and event.action not in ("purge", "restore"):
            findings.extend(self._leads(event, node, _names(event.path_before)))
        names: tuple[Named, ...] = ()
        if node is not None:
            findings.extend(self._fits(event, node))
        if event.action in _PLACING and event.path_after is not None:
            names, problems = self._place(event, node, event.path_after)
            findings.extend(problems)
        elif event.action in _PLACING or event.action not in _KNOWN:
            findings.append(
                Finding("replay", f"the event at {event.seq} is not one that a store writes", (str(event),))
            )
        elif node is not None and event.action in ("drop", "purge"):
            names = self._forget(event.entity_id, node)
            self._note_dropped(event, node)
            if event.action == "drop" and event.asked == "drop" and node.children:
                child = next(n for n in self._nodes.values() if n.parent_id == event.entity_id and n.live)
                message = f"{event.path_before} was dropped at {event.seq} as if it were empty"
                findings.append(Finding("orphan", message, (str(child.last), str(event))))
        if event.action == "purge":
            self._nodes.pop(event.entity_id, None)
        elif event.entity_id in self._nodes:
            self._nodes[event.entity_id].last = event
        there = self._nodes.get(event.entity_id)
        return self._placed(event, there is not None and there.live, (*names, *self._changed())), findings

    def _changed(self) -> tuple[Named, ...]:
        """Return the values, besides names, that the current event has changed."""
        before, self._before = self._before, {}
        now = {label: self._now(label) for label in before}
        return tuple([Named(*label, value) for label, value in now.items() if value != before[label]])

    def _touch(self, label: tuple[int, str, str]) -> None:
        self._before.setdefault(label, self._now(label))

    def _now(self, label: tuple[int, str, str]) -> int | None:
        owner_id, family, _ = label
        if family == CHILDREN:
            return owner_id if owner_id in self._nodes and self._nodes[owner_id].children else None
        under = self._dropped.get(label)
        return under[-1] if under else None

    def live(self) -> Iterator[tuple[int, str, str, int]]:
        """Yield (id, kind, path, version) of each entity to which a path leads."""
        for entity_id, node in self._nodes.items():
            path = self._path(node)
            if path is not None:
                yield entity_id, node.kind, path, node.last.version

    def _placed(self, event: Event, there: bool, names: tuple[Named, ...]) -> Placed:
        exclusive = event.action in EXCLUSIVE and event.owner_id is None
        return Placed(
            event.seq,
            event.operation_id,
            event.principal,
            event.entity_id,
            event.version,
            not there,
            exclusive,
            names,
        )

    def _own(self, event: Event, owner_id: int) -> Iterator[Finding]:
        owner, path = self._nodes.get(owner_id), event.path_after or event.path_before
        yield from _follows(event, self._owned.get(event.entity_id))
        if owner is not None and path is not None:
            yield from self._leads(event, owner, _names(path)[:-1], "orphan" if event.action == "create" else "replay")
        label = (owner_id, event.kind, _names(path)[-1] if path is not None else "")
        other = self._owned_names.get(label)
        if other not in (None, event.entity_id):
            message = f"{path} is the name of rows {other} and {event.entity_id} at {event.seq}"
            yield Finding("name", message, (str(self._owned[other]), str(event)))
        if event.action == "drop":
            self._owned.pop(event.entity_id, None)
            self._owned_names.pop(label, None)
        else:
            self._owned[event.entity_id] = event
            self._owned_names[label] = event.entity_id

    def _fits(self, event: Event, node: _Node) -> Iterator[Finding]:
        """Check that an event is possible for an entity that exists already."""
        if event.kind != node.kind:
            message = f"entity {event.entity_id} was a {node.kind}, and is a {event.kind} at {event.seq}"
            yield Finding("replay", message, (str(node.last), str(event)))
        if event.action == "create" or (event.action == "restore" and node.live):
            message = f"entity {event.entity_id} was created at {event.seq}, but existed already"
            yield Finding("chain", message, (str(node.last), str(event)))
        elif event.action not in _PLACING and event.path_after not in (None, event.path_before):
            message = f"at {event.seq} {event.action} gives the path {event.path_after} to {event.path_before}"
            yield Finding("replay", message, (str(event),))

    def _place(self, event: Event, node: _Node | None, path: str) -> tuple[tuple[Named, ...], list[Finding]]:
        names, findings = _names(path), list[Finding]()
        families = families_of(kind_named(event.kind), len(names)) or ("",) * len(names)
        parent_id = self._find(names[:-1], families)
        if parent_id is None:
            message = f"{path} came to be at {event.seq} below a parent that was not live"
            culprit = self._who_took(names[:-1], families)
            findings.append(Finding("orphan", message, (*culprit, str(event))))
            parent_id = -1
        if parent_id is not None and self._is_below(parent_id, event.entity_id):
            findings.append(Finding("orphan", f"{path} came to be at {event.seq} below itself", (str(event),)))
            parent_id = -1
        given = () if node is None else self._forget(event.entity_id, node)
        label = (parent_id, families[-1], names[-1])
        if event.action == "restore":
            findings.extend(self._newest(event, (parent_id, DROPPED + event.kind, names[-1])))
        other = self._taken.get(label)
        if other is not None and parent_id >= 0:
            message = f"{path} is the name of entities {other} and {event.entity_id} at {event.seq}"
            findings.append(Finding("name", message, (str(self._nodes[other].last), str(event))))
        self._taken[label] = event.entity_id
        if node is None:
            node = self._nodes[event.entity_id] = _Node(parent_id, families[-1], event.kind, names[-1], True, event)
        else:
            node.parent_id, node.name, node.live = parent_id, names[-1], True
        self._count(parent_id, 1)
        return (*given, Named(*label, event.entity_id)), findings

    def _count(self, parent_id: int, by: int) -> None:
        """Change the number of children of an entity."""
        if parent_id in self._nodes:
            self._touch((parent_id, CHILDREN, ""))
            self._nodes[parent_id].children += by

    def _note_dropped(self, event: Event, node: _Node) -> None:
        self._forget_dropped(event.entity_id)
        if event.action == "drop":
            label = self._under[event.entity_id] = (node.parent_id, DROPPED + node.kind, node.name)
            self._touch(label)
            self._dropped.setdefault(label, []).append(event.entity_id)

    def _forget_dropped(self, entity_id: int) -> None:
        label = self._under.pop(entity_id, None)
        if label is not None:
            self._touch(label)
            self._dropped[label].remove(entity_id)
            if not self._dropped[label]:
                del self._dropped[label]

    def _newest(self, event: Event, label: tuple[int, str, str]) -> Iterator[Finding]:
        """Check that a restore by path took the entity that was dropped last."""
        under = self._dropped.get(label, [])
        newest = under[-1] if under else event.entity_id
        if event.asked == "restore" and newest != event.entity_id:
            message = f"at {event.seq} {event.path_after} was restored, and entity {newest} was dropped there later"
            yield Finding("replay", message, (str(self._nodes[newest].last), str(event)))
        self._forget_dropped(event.entity_id)

    def _is_below(self, here: int, entity_id: int) -> bool:
        for _ in range(DEEPEST):
            if here == entity_id:
                return True
            node = self._nodes.get(here)
            if node is None:
                return False
            here = node.parent_id
        return True

    def _forget(self, entity_id: int, node: _Node) -> tuple[Named, ...]:
        """Remove the name of an entity; return the name, which has no entity now."""
        if not node.live:
            return ()
        node.live = False
        self._count(node.parent_id, -1)
        label = (node.parent_id, node.family, node.name)
        if self._taken.get(label) != entity_id:
            return ()
        del self._taken[label]
        return (Named(*label, None),)

    def _find(self, names: tuple[str, ...], families: tuple[str, ...]) -> int | None:
        here = ROOT_ID
        for family, name in zip(families, names, strict=False):
            child = self._taken.get((here, family, name))
            if child is None:
                return None
            here = child
        return here

    def _who_took(self, names: tuple[str, ...], families: tuple[str, ...]) -> tuple[str, ...]:
        """Return the last event of an entity that was at a path, or above it, and no longer is."""
        while names and self._find(names[:-1], families) is None:
            names = names[:-1]
        above = self._find(names[:-1], families) if names else None
        gone = [n.last for n in self._nodes.values() if n.parent_id == above and n.name == names[-1] and not n.live]
        moved = [n.last for n in self._nodes.values() if n.last.path_before == format_path(names)]
        last = max([*gone, *moved], key=lambda event: event.seq, default=None)
        return () if last is None else (str(last),)

    def _leads(self, event: Event, node: _Node, names: tuple[str, ...], rule: str = "replay") -> Iterator[Finding]:
        """Check that a path leads to a node."""
        here: _Node | None = node
        for name in reversed(names):
            if here is None or here.name != name or not here.live:
                break
            parent_id = here.parent_id
            here = self._nodes.get(parent_id)
        else:
            if here is None:
                return
        message = f"at {event.seq} {event.action} by {format_path(names)}, a path that did not lead there any more"
        culprit = node if here is None else here
        who = () if culprit.last == event else (str(culprit.last),)
        yield Finding("orphan" if rule == "orphan" else "replay", message, (*who, str(event)))

    def _path_of(self, entity_id: int) -> str | None:
        """Return the path that leads to an entity; None: there is none. Raises KeyError for an unknown entity."""
        return self._path(self._nodes[entity_id])

    def _path(self, node: _Node) -> str | None:
        names: list[str] = []
        here: _Node | None = node
        for _ in range(DEEPEST):
            if here is None or not here.live:
                return None
            names.append(here.name)
            if here.parent_id == ROOT_ID:
                return format_path(reversed(names))
            here = self._nodes.get(here.parent_id)
        return None


def _owned_name(event: Event, owner_id: int) -> tuple[Named, ...]:
    """Return the name that an event gives to an owned row, or takes from it."""
    path = event.path_after if event.action != "drop" else event.path_before
    if path is None or event.action not in ("create", "drop"):
        return ()
    return (Named(owner_id, event.kind, _names(path)[-1], event.entity_id if event.action == "create" else None),)


def _follows(event: Event, last: Event | None) -> Iterator[Finding]:
    """Check that a version follows the one before it. If gc has removed older steps, any first version is accepted."""
    if event.wrong is not None:
        who = () if last is None else (str(last),)
        yield Finding("replay", f"the event at {event.seq}: {event.wrong}", (*who, str(event)))
    if last is None:
        if event.action == "create" and event.version != 1:
            yield Finding("chain", f"entity {event.entity_id} begins with version {event.version}", (str(event),))
        return
    if event.version != last.version + 1:
        message = f"entity {event.entity_id}: version {event.version} follows {last.version}"
        yield Finding("chain", message, (str(last), str(event)))
    if event.operation_id == last.operation_id:
        message = f"operation {event.operation_id} made two versions of entity {event.entity_id}"
        yield Finding("chain", message, (str(last), str(event)))
