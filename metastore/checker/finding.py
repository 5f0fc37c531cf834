"""A finding of the checker: a broken rule, and the smallest set of operations that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

__all__ = ["RULES", "Finding", "Rule"]

Rule = Literal["chain", "once", "order", "read", "cycle", "conflict", "name", "orphan", "replay", "rights"]
"""The rules:

* ``chain``: an entity's versions are not 1, 2, 3 …, each the step of one operation;
* ``once``: the outcome that a client saw contradicts what its operation wrote, or the operation wrote twice;
* ``order``: an operation that began after another had returned comes before it in the feed;
* ``read``: an operation read a state that did not exist between its call and its return;
* ``cycle``: another commit overwrote a read of a transaction, before the transaction's position (write skew). Or
  something was written during a freeze, or an error depends on reads that were not true together;
* ``conflict``: an attempt lost, and no operation had won;
* ``name``: two live entities have one name, or one entity has two relations of an exclusive kind;
* ``orphan``: an entity was below a parent that was not live, a parent with children was dropped, or a relation was
  written to an end that was not live;
* ``replay``: an event does not follow from those before it (its document, or the entity that it restored), or the end
  of the feed differs from the tables;
* ``rights``: a commit relies on a right that was taken away before the commit.
"""
RULES: Final[tuple[str, ...]] = get_args(Rule)


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction."""

    rule: Rule
    message: str
    operations: tuple[str, ...]
    """The operations that contradict each other, a line for each, with its client, action, time and outcome."""

    def __str__(self) -> str:
        return "\n  ".join([f"{self.rule}: {self.message}", *self.operations])
