"""The change feed as one user sees it: changes of what it sees now, with their whole past.

What was purged stands nowhere any more: only an admin, or the library itself, reads its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from metastore.governance.access import Access
from metastore.governance.seen import seen_by
from metastore.port.records import Step

__all__ = ["Passed", "Sight", "seen_steps"]


class Passed(NamedTuple):
    """How far a user's feed was read, and how many changes it did not show since what came before."""

    position: str
    hidden: int


class Sight(NamedTuple):
    """What a user is shown of the feed: those changes that fit, and of these the ones that it sees.

    In this order: who follows an entity must note each rename above it, also one that it does not see.
    """

    access: Access
    fits: Callable[[Step], bool] | None = None

    def shown(self, steps: Sequence[Step]) -> list[Step]:
        """Return the next steps that are shown; each step comes once, in the feed's order."""
        wanted = steps if self.fits is None else [step for step in steps if self.fits(step)]
        return seen_steps(self.access, wanted) if wanted else []


def seen_steps(access: Access, steps: Sequence[Step]) -> list[Step]:
    """Return the steps that the user sees, in two reads."""
    ids = list(dict.fromkeys(i for step in steps for i in seen_by(step)))
    nodes = access.nodes_of(ids)
    shown = access.visible(list(nodes.values()))
    seen = {i for i, known in zip(nodes, shown, strict=True) if known is not None}
    return [step for step in steps if (ends := seen_by(step)) and seen.issuperset(ends)]
