"""A small model of the tables that a replay of the change feed gives.

It knows nothing of how the store works: only ids, parents, names and whether they are live. Every
event must make sense at its place in the feed: below live parents, under a free name, at the
path that it says, one version after the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import metastore as ms
from metastore.kinds.registry import KINDS
from metastore.names import parse_path
from metastore.port.leases import PER_TIMELINE

__all__ = ["Replay", "broken_events", "tree_of"]

Names = tuple[str, ...]
ROOT = 0
IN_A_SCHEMA = ("table", "view", "fileset", "topic", "model", "function")
OWNED = {
    "partition": "table",
    "statistic": "table",
    "model_version": "model",
    "source": "catalog",
    "crawl": "catalog",
}
"""The kinds of owned rows, and the kind of their owner."""


@dataclass
class _Node:
    kind: str
    parent: int
    name: str
    version: int
    in_use: bool = True


class EventBroken(Exception):
    """An event that cannot have happened where it stands."""


class Replay:
    """The tables after the events so far."""

    def __init__(self) -> None:
        self.nodes: dict[int, _Node] = {}
        self._live: dict[tuple[int, str, str], int] = {}
        self._owned: dict[tuple[int, str, str], tuple[int, int]] = {}
        self._counts: dict[int, int] = {}

    def apply(self, change: ms.Change) -> None:
        """Carry out one event; EventBroken if it makes no sense here."""
        if change.kind in OWNED:
            self._apply_owned(change)
            return
        if change.kind in ("drop", "lease"):
            self._apply_counted(change)
            return
        before = None if change.path_before is None else parse_path(change.path_before)
        after = None if change.path_after is None else parse_path(change.path_after)
        if change.action == "create":
            _must(change.version == 1 and change.entity_id not in self.nodes, "a new id at version 1", change)
            self.nodes[change.entity_id] = _Node(change.kind, ROOT, "", 0)
        node = self.nodes.get(change.entity_id)
        if node is None:
            raise EventBroken(f"{change.action} of an id that was never created: {change.position}")
        _must(change.version == node.version + 1, f"version {node.version + 1}", change)
        node.version += 1
        if change.action == "purge" and self._live.get(self._key(node)) != change.entity_id:
            return  # it was dropped before; where it stood may be gone
        if before is not None:
            _must(self._resolve(before, change.kind) == change.entity_id, f"{change.path_before} to lead to it", change)
        if change.action in ("drop", "purge"):
            del self._live[self._key(node)]
        elif change.action in ("create", "rename", "move", "restore"):
            _must(after is not None, "a path", change)
            self._place(change, node, after or ())
        elif change.action in ("enable", "disable"):
            node.in_use = change.action == "enable"

    def _apply_counted(self, change: ms.Change) -> None:
        """Count on: a lease's version is its token; a drop is a row of the root, which ids name."""
        last = self._counts.get(change.entity_id, 0)
        # what is kept elsewhere, and the first token on another timeline of the server
        jumps = change.version > last and (change.action == "mirror" or change.version % PER_TIMELINE == 1)
        _must(jumps or change.version == last + 1, f"{last + 1}", change)
        self._counts[change.entity_id] = change.version

    def _place(self, change: ms.Change, node: _Node, names: Names) -> None:
        if change.action in ("rename", "move"):
            del self._live[self._key(node)]
        node.parent, node.name = self._parent(names), names[-1]
        _must(self._key(node) not in self._live, f"{change.path_after} to be free", change)
        self._live[self._key(node)] = change.entity_id

    def _apply_owned(self, change: ms.Change) -> None:
        path = change.path_after or change.path_before or ""
        *owner, name = parse_path(path)
        key = (self._resolve(tuple(owner), OWNED[change.kind]), change.kind, name)
        known = self._owned.get(key)
        if change.action == "create":
            _must(known is None and change.version == 1, "a new row at version 1", change)
        else:
            _must(known == (change.entity_id, change.version - 1), f"what follows {known}", change)
        if change.action in ("drop", "purge"):
            del self._owned[key]
        else:
            self._owned[key] = (change.entity_id, change.version)

    def _key(self, node: _Node) -> tuple[int, str, str]:
        return node.parent, KINDS[node.kind].family, node.name

    def _parent(self, names: Names) -> int:
        """Return the id of the live, enabled parent of ``names``."""
        at = ROOT
        for depth, name in enumerate(names[:-1]):
            kind = ("metalake", "catalog")[depth] if depth < 2 else "schema"
            found = self._live.get((at, KINDS[kind].family, name))
            if found is None:
                raise EventBroken(f"{'.'.join(names)} has no live parent: there is no {kind} {name}")
            if not self.nodes[found].in_use:
                raise EventBroken(f"{'.'.join(names)} was written below the disabled {kind} {name}")
            at = found
        return at

    def _resolve(self, names: Names, kind: str) -> int:
        found = self._live.get((self._parent(names), KINDS[kind].family, names[-1]))
        if found is None:
            raise EventBroken(f"there is no {kind} {'.'.join(names)}")
        return found

    def tree(self) -> dict[tuple[str, Names], tuple[int, int]]:
        """Return (kind, path): (id, version) of all that is live, below live parents only."""
        below: dict[int, list[int]] = {}
        for (parent, _, _), found in self._live.items():
            below.setdefault(parent, []).append(found)
        tree: dict[tuple[str, Names], tuple[int, int]] = {}
        stack: list[tuple[int, Names]] = [(ROOT, ())]
        while stack:
            at, names = stack.pop()
            for child in below.get(at, ()):
                node = self.nodes[child]
                path = (*names, node.name)
                tree[node.kind, path] = (child, node.version)
                stack.append((child, path))
        return tree

    def owned(self) -> dict[tuple[int, str, str], tuple[int, int]]:
        """Return (owner, kind, name): (id, version) of the owned rows."""
        return dict(self._owned)


def _must(fact: bool, wanted: str, change: ms.Change) -> None:
    if not fact:
        raise EventBroken(
            f"{change.action} of {change.path_before} -> {change.path_after} (id {change.entity_id}, "
            f"version {change.version}) at {change.position}: expected {wanted}"
        )


def broken_events(changes: Iterable[ms.Change]) -> tuple[Replay, list[str]]:
    """Replay ``changes``; return the tables they give and what is wrong with the feed."""
    replay, wrong, last = Replay(), list[str](), ""
    for change in changes:
        if not change.position > last:
            wrong.append(f"position {change.position} comes after {last}")
        last = change.position
        try:
            replay.apply(change)
        except EventBroken as error:
            wrong.append(str(error))
    return replay, wrong


def tree_of(store: ms.Store) -> dict[tuple[str, Names], tuple[int, int]]:
    """Return (kind, path): (id, version) of all that the store lists."""
    return {(e.kind, e.names): (e.id, e.version) for e in _walk(store)}


def _walk(store: ms.Store) -> Iterator[ms.Entity]:
    for metalake in store.metalakes.list():
        yield metalake
        for catalog in store.catalogs.list(metalake):
            yield catalog
            stack: list[ms.Entity] = [catalog]
            while stack:
                schemas = list(store.schemas.list(stack.pop()))
                stack += schemas
                for schema in schemas:
                    yield schema
                    for kind in IN_A_SCHEMA:
                        yield from store.manager(kind).list(schema)
