"""One answer that a cache keeps, the entities and paths that it depends on, and its size in memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof

from metastore.kinds.entity import Entity
from metastore.names import fold, parse_path
from metastore.operation.session import Found, Listed
from metastore.port.conditions import ROOT_ID
from metastore.port.records import Node
from metastore.port.touched import Touch

__all__ = ["Entry", "appeared", "entry_of", "listing_of"]

_ENTRY, _PER_CHARACTER, _NAME = 3_000, 8, 60
"""The estimated memory (bytes) of an entry, of each character of its document when decoded, and of a short name.

A long name also takes the bytes of its characters."""


@dataclass(slots=True, eq=False)
class Entry:
    """One answer, and the entities and paths that it depends on."""

    found: Found | Listed
    ids: tuple[int, ...]
    """The entities along the path, from the root down."""
    absent: tuple[str, ...] | None
    """For a path that does not exist: the part up to the first missing name, folded."""
    size: int
    query: int
    """The number of the newest query that was sent before this answer was kept."""
    content: tuple[int, ...] = ()
    """The entities whose content the answer shows."""
    parent: int | None = None
    """For a listing, or a path that does not exist: the entity whose new child would make the answer outdated."""
    used: bool = False
    """Whether the answer was used since the last count: see :mod:`metastore.cache.bounded`."""
    uses: int = 0
    """How many of its uses were counted."""
    key: Hashable = None

    def rests_on(self, change: Touch) -> bool:
        """Whether a change may make the answer outdated."""
        return change.entity_id in self.ids or (self.absent is not None and self.absent == appeared(change))


def entry_of(answer: Found, names: tuple[str, ...], query: int) -> Entry:
    """Return the entry for an answer; ``names`` is the path in the question, () for an id."""
    if isinstance(answer, Entity):
        ids = tuple([node.id for node in answer.record.chain])
        return Entry(answer, ids, None, _size(answer), query, ids[-1:])
    absent = _folded(names[: len(answer) + 1])
    return Entry(answer, tuple([node.id for node in answer]), absent, _ENTRY, query, (), _last(answer))


def listing_of(listed: Listed) -> Entry:
    """Return the entry for one page of a listing."""
    ids = tuple([node.id for node in listed.above])
    shown = [item for item in listed.items if isinstance(item, Entity)]
    size = _ENTRY + sum([_size(item) if isinstance(item, Entity) else _NAME + getsizeof(item) for item in listed.items])
    content = tuple([entity.id for entity in shown])
    return Entry(listed, ids, None, size, 0, content, _last(listed.above))


def _size(entity: Entity) -> int:
    return _ENTRY + _PER_CHARACTER * len(entity.record.doc)


def _last(nodes: Sequence[Node]) -> int:
    return nodes[-1].id if nodes else ROOT_ID


def _folded(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names folded, so that names become equal if any catalog treats them as equal."""
    return tuple([fold(name) for name in names])


def appeared(change: Touch) -> tuple[str, ...] | None:
    """Return the folded path at which a change makes an entity appear; None: no entity appears."""
    if change.action == "alter" or change.path_after is None:
        return None
    return _folded(parse_path(change.path_after))
