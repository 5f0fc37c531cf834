"""The fill: whether an answer of the database may be kept. One thread at a time calls it.

Before the question is sent, note what is announced and has not been committed, as the member's last look showed it, and
how many announcements there were. When the answer is there, keep it unless one of those, or one that came since, covers
it. An announcement that neither shows has been acknowledged before the question was sent; its change is in the answer,
or was given up. docs/cache.md has the proof.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from metastore.cache.entries import Entry
from metastore.cache.fence import Lease
from metastore.port.members import Announcement, Covered

__all__ = ["Announced", "Asked", "covers"]

_RECENT: Final = 1000
"""How many announcements are looked at one by one; a question that missed more is not kept."""


class Asked(NamedTuple):
    """What was known when a question was sent."""

    lease: Lease
    number: int
    pending: tuple[Covered, ...]


def covers(what: Covered, entry: Entry) -> bool:
    """Whether a change may make an entry untrue."""
    if what.scopes and (0 in what.scopes or not what.scopes.isdisjoint(entry.ids)):
        return True
    if what.ids and not what.ids.isdisjoint(entry.content):
        return True
    return entry.parent is not None and entry.parent in what.parents


class Announced:
    """The announcements that a member knows of."""

    def __init__(self) -> None:
        self.number = 0
        """How many there were."""
        self._known: frozenset[tuple[int, int]] = frozenset()
        self._pending: tuple[Covered, ...] = ()
        self._recent: deque[Covered] = deque(maxlen=_RECENT)

    def forget(self) -> None:
        """Take all announcements for new: on another connection, their numbers may be given again."""
        self._known = frozenset()

    def see(self, announcements: Sequence[Announcement]) -> list[Covered]:
        """Take up what a look showed; return what is new."""
        new = [one.covered for one in announcements if (one.id, one.xid) not in self._known]
        self._known = frozenset([(one.id, one.xid) for one in announcements])
        self._pending = tuple([one.covered for one in announcements])
        self._recent.extend(new)
        self.number += len(new)
        return new

    @property
    def pending(self) -> bool:
        """Whether a change is announced and not committed, as far as is known."""
        return bool(self._pending)

    def asked(self, lease: Lease) -> Asked:
        """Note what is known before a question is sent."""
        return Asked(lease, self.number, self._pending)

    def may_keep(self, asked: Asked, entry: Entry) -> bool:
        """Whether nothing that was announced covers an answer."""
        missed = self.number - asked.number
        if missed > len(self._recent) or any(covers(what, entry) for what in asked.pending):
            return False
        return not any(covers(self._recent[-n], entry) for n in range(1, missed + 1))
