"""The fill: decide whether an answer of the database may be kept. Only one thread at a time may call this.

Before it sends a question, the member notes the announcements of its last look, and how many it has seen in all. It
keeps the answer unless one of these announcements, or a later one, covers it. It acknowledged every other announcement
before the question, so the answer contains that change, or the change was given up.

An announcement of the last look does not count if the answer itself shows its change. The answer shows it if no other
announcement covers the entity, and the answer has a newer version than any that the member knew when it saw the
announcement, or saw after that. docs/cache.md has the proof.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from metastore.cache.entry import Entry
from metastore.cache.fence import CacheLease
from metastore.kinds.entity import Entity
from metastore.port.members import Announcement, Covered

__all__ = ["Announced", "Asked", "covers"]

_RECENT: Final = 1000
"""How many announcements are checked one by one; the answer to a question that missed more is not kept."""


_Key = tuple[int, int]
"""The number of an announcement and its transaction id."""


class Asked(NamedTuple):
    """The announcements that a member knew before it sent a question."""

    lease: CacheLease
    number: int
    pending: tuple[Announcement, ...]


def covers(what: Covered, entry: Entry) -> bool:
    """Whether a change may make an entry outdated."""
    if what.scopes and (0 in what.scopes or not what.scopes.isdisjoint(entry.ids)):
        return True
    if what.ids and not what.ids.isdisjoint(entry.content):
        return True
    return entry.parent is not None and entry.parent in what.parents


class Announced:
    """The announcements that a member knows."""

    def __init__(self) -> None:
        self.number = 0
        """How many announcements the member has seen so far."""
        self._known: frozenset[_Key] = frozenset()
        self._pending: tuple[Announcement, ...] = ()
        self._recent: deque[Covered] = deque(maxlen=_RECENT)
        self._before: dict[int, tuple[_Key, int]] = {}
        """By an entity's id: the only announcement that covers the entity, and the lowest version seen since then."""

    def forget(self) -> None:
        """Treat all announcements as new: after a new connection, another announcement may have the same number."""
        self._known = frozenset()

    def see(
        self, announcements: Sequence[Announcement], kept: Callable[[int], int | None] = lambda _: None
    ) -> list[Covered]:
        """Note the announcements of a look; return what new ones cover. ``kept`` returns an entity's kept version."""
        new = [one for one in announcements if _key(one) not in self._known]
        self._known = frozenset(map(_key, announcements))
        self._pending = tuple(announcements)
        self._recent.extend([one.covered for one in new])
        self.number += len(new)
        self._note(new, kept)
        return [one.covered for one in new]

    def _note(self, new: Sequence[Announcement], kept: Callable[[int], int | None]) -> None:
        """Note the kept versions of newly announced entities; forget those that a second announcement makes useless."""
        if any(one.covered.scopes for one in new):
            self._before.clear()  # the change of a scope may raise the version of any entity
        self._before = {id_: before for id_, before in self._before.items() if before[0] in self._known}
        for entity_id in {entity_id for one in new for entity_id in one.covered.ids}:
            self._before.pop(entity_id, None)
            version = kept(entity_id)
            covering = [one for one in self._pending if entity_id in one.covered.ids]
            if version is not None and len(covering) == 1:
                self._before[entity_id] = _key(covering[0]), version

    @property
    def pending(self) -> bool:
        """Whether the last look showed an announced change."""
        return bool(self._pending)

    def asked(self, lease: CacheLease) -> Asked:
        """Return the announcements that are known before a question is sent."""
        return Asked(lease, self.number, self._pending)

    def may_keep(self, asked: Asked, entry: Entry) -> bool:
        """Whether an answer may be kept: no announcement covers it, except one whose change it shows."""
        missed = self.number - asked.number
        if missed > len(self._recent) or any(covers(self._recent[-n], entry) for n in range(1, missed + 1)):
            return False
        covering = [one for one in asked.pending if covers(one.covered, entry)]
        return not covering or (len(covering) == 1 and self._is_over(covering[0], entry))

    def _is_over(self, one: Announcement, entry: Entry) -> bool:
        """Whether an answer shows the change of ``one``, the only announcement that covers it."""
        key = _key(one)
        if key not in self._known or one.covered.scopes or not isinstance(entry.found, Entity):
            return False
        entity_id, version = entry.found.id, entry.found.version
        known, before = self._before.get(entity_id, (key, version))
        if known != key:
            return False
        self._before[entity_id] = key, min(before, version)
        return version > before


def _key(one: Announcement) -> _Key:
    return one.id, one.xid
