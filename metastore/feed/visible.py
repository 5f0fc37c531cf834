"""The change feed as one user sees it: changes of what it sees now, with their whole past.

What was purged stands nowhere any more: only an admin, or the library itself, reads its changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore.governance.access import Access
from metastore.governance.seen import seen_by
from metastore.port.records import Step

__all__ = ["seen_steps"]


def seen_steps(access: Access, steps: Sequence[Step]) -> list[Step]:
    """Return the steps that the user sees, in two reads."""
    ids = list(dict.fromkeys(i for step in steps for i in seen_by(step)))
    nodes = access.nodes_of(ids)
    shown = access.visible(list(nodes.values()))
    seen = {i for i, known in zip(nodes, shown, strict=True) if known is not None}
    return [step for step in steps if (ends := seen_by(step)) and seen.issuperset(ends)]
