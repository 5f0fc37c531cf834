"""What the checker finds: a rule that was broken, and the smallest set of operations that contradicts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

__all__ = ["RULES", "Finding", "Rule"]

Rule = Literal["chain", "once", "order", "read", "cycle", "conflict", "name", "orphan", "replay"]
"""What was broken:

* ``chain``: an entity's versions are not 1, 2, 3 …, each the step of one operation;
* ``once``: what a client was told does not fit what its operation wrote, or it wrote twice;
* ``order``: an operation that began after another had returned stands before it in the feed;
* ``read``: what was read was so at no instant between the call and the return;
* ``cycle``: what a transaction had read was overwritten before its position (write skew);
* ``conflict``: an attempt lost, and nobody had won;
* ``name``: two live entities of one name;
* ``orphan``: something was below a parent that was not live, or a parent with children was dropped;
* ``replay``: an event does not follow from those before it, or the feed does not end in the tables.
"""
RULES: Final[tuple[str, ...]] = get_args(Rule)


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction."""

    rule: Rule
    message: str
    operations: tuple[str, ...]
    """Those that contradict each other, a line for each: whose it was, what it did, when, and what it was told."""

    def __str__(self) -> str:
        return "\n  ".join([f"{self.rule}: {self.message}", *self.operations])
