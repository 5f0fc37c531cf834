"""Faults planted in what travels together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from metastore.backends.memory.tables import Tables
from metastore.combine import alters as combined
from metastore.port.batches import Altered, AlterTogether, Results, Single
from metastore.port.commit import Conflicted, Result
from tests.interleaving.batches import MemoryBatches
from tests.interleaving.mutant import Mutant

__all__ = ["OF_BATCHES"]


class _GuardsOfTheFirst(MemoryBatches):
    """The guards of one member are taken for those of all: they are not counted for each commit."""

    def alter_together(self, alters: Sequence[AlterTogether], patience: int | None) -> list[Altered] | Conflicted:
        first = alters[0]
        return super().alter_together([one._replace(guards=first.guards) for one in alters], patience)


class _CreatesUnguarded(MemoryBatches):
    """Members of a batch of creates do not hold their parents."""

    def create_together(self, inserts: Sequence[Single], patience: int) -> Results | Conflicted:
        return super().create_together([one._replace(guards=()) for one in inserts], patience)


class _AnswersInTheOrderOfIds(MemoryBatches):
    """Each member gets the answer of the row that stands at its place among the sorted ones."""

    def alter_together(self, alters: Sequence[AlterTogether], patience: int | None) -> list[Altered] | Conflicted:
        return super().alter_together(sorted(alters, key=lambda one: one.id), patience)


class _DropsInTheOrderOfIds(MemoryBatches):
    """The same for drops."""

    def exclusive_together(self, updates: Sequence[Single], patience: int) -> Results | Conflicted:
        return super().exclusive_together(sorted(updates, key=lambda one: one.write.id or 0), patience)


class _NewestVersionWithAnOldDocument(MemoryBatches):
    """A loser gets a document from before its wait, and the newest version."""

    def _altered(self, tables: Tables, one: AlterTogether, now: int) -> Altered:
        found = super()._altered(tables, one, now)
        if found.version is None:
            return found
        (older,) = [step for step in tables.steps if (step.entity_id, step.version) == (one.id, one.version)]
        return found._replace(doc=older.doc)


class _OverlooksIntents(MemoryBatches):
    """A batch does not look whether intents are pending."""

    def alter_together(self, alters: Sequence[AlterTogether], patience: int | None) -> list[Altered] | Conflicted:
        return super().alter_together([one._replace(helps=True) for one in alters], patience)


class _PassesTickets(MemoryBatches):
    """A batch does not look whether a transaction is in line."""

    def _altered(self, tables: Tables, one: AlterTogether, now: int) -> Altered:
        return super()._altered(replace(tables, tickets={}), one, now)


class _AllOrNone(MemoryBatches):
    """One that loses takes the others' answers away, although they were applied."""

    def exclusive_together(self, updates: Sequence[Single], patience: int) -> Results | Conflicted:
        found = super().exclusive_together(updates, patience)
        if isinstance(found, list) and None in found:
            return [Result(one.write.id or 0, 0, 1) for one in updates]
        return found


@contextmanager
def _told_anyway() -> Iterator[None]:
    """A batch that was not applied tells its members what they would have come to."""
    tell = combined._Group.tell

    def told(group: Any, altered: Altered | None) -> None:
        tell(group, Altered(1))

    with patch.object(combined._Group, "tell", told):
        yield


OF_BATCHES: tuple[Mutant, ...] = (
    Mutant(
        "guards that are not counted for each commit",
        "batches in two schemas, rename of one",
        "verify|no order explains",
        _GuardsOfTheFirst,
    ),
    Mutant(
        "creates of a batch without guards",
        "batch of creates, rename of the parent",
        "verify|no order explains",
        _CreatesUnguarded,
    ),
    Mutant("the answer of another row", "batches on two tables", "no order explains", _AnswersInTheOrderOfIds),
    Mutant("the answer of another drop", "batches of drops, alter", "no order explains", _DropsInTheOrderOfIds),
    Mutant(
        "a document from before the wait",
        "batches on one table",
        "no order explains",
        _NewestVersionWithAnOldDocument,
    ),
    Mutant(
        "a batch that overlooks intents",
        "hot alter, three batches in a row",
        "after the announcement",
        _OverlooksIntents,
    ),
    Mutant(
        "a batch that passes tickets",
        "hot count, three batches in a row",
        "attempts of a transaction lost",
        _PassesTickets,
    ),
    Mutant("drops of a batch, all or none", "batches of drops, alter", "no order explains", _AllOrNone),
    Mutant(
        "told although not applied", "batches on one table", "no order explains", MemoryBatches, broken=_told_anyway
    ),
)
