"""The change feed as one user sees it: all changes of the entities that it sees now, including old ones.

A purged entity no longer has a place: only an admin, or the library itself, can read its changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from metastore.governance.access import Access
from metastore.governance.seen import seen_by
from metastore.kinds.origin import ORIGIN
from metastore.port.records import Step

__all__ = ["Below", "Passed", "Sight", "seen_steps"]


class Passed(NamedTuple):
    """How far the feed was read, and how many changes were hidden since the last item."""

    position: str
    hidden: int


class Below(Protocol):
    """A filter of the changes that concern one place, or an entity below it."""

    def see(self, steps: Sequence[Step], /) -> None:
        """Take the next page of the feed, visible or not."""

    def has(self, step: Step, /) -> bool:
        """Whether a step of the page concerns the place."""


class Sight(NamedTuple):
    """The visible part of the feed: the wanted changes that the user may see.

    The filters apply in this order, because a follower of an entity must note each rename above it, even one that the
    user does not see.
    """

    access: Access | None
    """None: the reader is not a user, so everything is visible."""
    kinds: frozenset[str] | None = None
    below: Below | None = None

    def shown(self, steps: Sequence[Step]) -> list[Step]:
        """Return those of the next steps that are shown. The caller gives each step once, in the feed's order."""
        if self.below is not None:
            self.below.see(steps)
        wanted = [step for step in steps if self._fits(step)]
        return seen_steps(self.access, wanted) if wanted and self.access is not None else wanted

    def _fits(self, step: Step) -> bool:
        return (self.kinds is None or step.kind in self.kinds) and (self.below is None or self.below.has(step))


def seen_steps(access: Access, steps: Sequence[Step]) -> list[Step]:
    """Return the steps that the user sees, in two reads. Notes of imports are left out: they reveal hidden entities."""
    steps = [step for step in steps if step.kind != ORIGIN.name]
    seen = access.seen_now(list(dict.fromkeys(i for step in steps for i in seen_by(step))))
    return [step for step in steps if (ends := seen_by(step)) and seen.issuperset(ends)]
