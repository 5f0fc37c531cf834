"""The change feed as one user sees it: changes of what it sees now, with their whole past.

What was purged stands nowhere any more: nobody but an admin, or the library itself, reads its changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore.governance.access import Access
from metastore.port.records import Step

__all__ = ["seen_steps"]


def seen_steps(access: Access, steps: Sequence[Step]) -> list[Step]:
    """Return the steps that the user sees, in two reads."""
    ids = list(dict.fromkeys(i for step in steps for i in _ends(step)))
    nodes = access.nodes_of(ids)
    shown = access.visible(list(nodes.values()))
    seen = {i for i, known in zip(nodes, shown, strict=True) if known is not None}
    return [step for step in steps if (ends := _ends(step)) and seen.issuperset(ends)]


def _ends(step: Step) -> list[int]:
    """Return what a user must see in order to see a step: its entity, or its row's owner; both ends of a relation."""
    own = step.entity_id if step.owner_id is None else step.owner_id
    return [i for i in (own, step.other_id) if i is not None]
