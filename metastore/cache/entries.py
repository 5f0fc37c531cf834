"""The answers that a cache keeps, indexed by what a change can affect. Only one thread at a time may call this.

An error or an interrupt may end a change of the indexes in the middle. Then they do not agree with each other, and the
next change forgets all answers first. Reads in the meantime are safe, because an answer is indexed before it is kept,
and until after it is removed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from metastore.cache.bounded import Bounded
from metastore.cache.entry import Entry, appeared
from metastore.kinds.entity import Entity
from metastore.port.members import Covered
from metastore.port.touched import Touch

__all__ = ["Entries"]

_Index = dict[Hashable, set[Hashable]]


class Entries:
    """Answers by key, and by the entities and paths that they depend on."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._kept = Bounded(most, most_bytes)
        self._whole = True
        """Whether no change of the indexes was interrupted."""
        self._of: _Index = {}
        """By an entity's id: the answers that contain this entity."""
        self._below: _Index = {}
        """By an entity's id: the answers whose path runs through the entity."""
        self._absent: _Index = {}
        """By a path that does not exist: the answers that say so."""
        self._children: _Index = {}
        """By an entity's id: the answers that depend on its set of children."""
        self.all = self._kept.all
        """All answers, for reads that need no lock."""
        self.used = self._kept.used
        """The entries that such reads have used."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self.all)

    @property
    def bytes(self) -> int:
        """The estimated memory of all answers, in bytes."""
        return self._kept.bytes

    def get(self, key: Hashable) -> Entry | None:
        """Return the kept answer, and note the use; None: there is none."""
        entry = self.all.get(key)
        if entry is not None and not entry.used:
            entry.used = True
            self.used.append(entry)
        return entry

    def version_of(self, entity_id: int) -> int | None:
        """Return the kept version of an entity; None: the entity is not kept."""
        for key in self._of.get(entity_id, ()):
            found = self.all[key].found
            if isinstance(found, Entity):
                return found.version
        return None

    def __contains__(self, key: Hashable) -> bool:
        return key in self.all

    def put(self, key: Hashable, entry: Entry) -> None:
        """Keep an answer, unless it is used less often than the one that it would replace."""
        self._begin_change()
        self._remove(key)
        entry.key = key
        for index, at in self._places(entry):
            index.setdefault(at, set()).add(key)
        for other, gone in self._kept.put(key, entry):
            self._forget(other, gone)
            self.evictions += 1
        self._whole = True

    def evict(self, change: Touch) -> None:
        """Remove the answers that a change makes outdated."""
        self._begin_change()
        if change.entity_id is not None:
            index = self._of if change.action == "alter" else self._below
            self._evict(index.get(change.entity_id, ()))
        if self._absent:
            path = appeared(change)
            if path is not None:
                self._evict(self._absent.get(path, ()))
        self._whole = True

    def evict_announced(self, what: Covered) -> None:
        """Remove the answers that an announced change may make outdated."""
        self._begin_change()
        if 0 in what.scopes:
            self._evict(self.all)
        for index, ids in ((self._below, what.scopes), (self._of, what.ids), (self._children, what.parents)):
            for one in ids:
                self._evict(index.get(one, ()))
        self._whole = True

    def _begin_change(self) -> None:
        if not self._whole:
            self.evictions += len(self.all)
            self._kept.clear()
            for index in (self._of, self._below, self._absent, self._children):
                index.clear()
        self._whole = False

    def _evict(self, keys: Iterable[Hashable]) -> None:
        for key in list(keys):
            self._remove(key)
            self.evictions += 1

    def _remove(self, key: Hashable) -> None:
        entry = self._kept.pop(key)
        if entry is not None:
            self._forget(key, entry)

    def _forget(self, key: Hashable, entry: Entry) -> None:
        """Remove an answer that is not kept any more from the indexes."""
        for index, at in self._places(entry):
            keys = index.get(at)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del index[at]

    def _places(self, entry: Entry) -> Iterator[tuple[_Index, Hashable]]:
        """Yield each index that lists an entry, with the entry's place in it."""
        for at in entry.ids:
            yield self._below, at
        for at in entry.content:
            yield self._of, at
        if entry.parent is not None:
            yield self._children, entry.parent
        if entry.absent is not None:
            yield self._absent, entry.absent
