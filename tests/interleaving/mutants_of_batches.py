"""Faults planted in batches, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from metastore.backends.memory.tables import Tables
from metastore.combine.decided import Waiter
from metastore.combine.group import Group
from metastore.port.batches import Altered, AlterTogether, Batch, Below, Taken, Written
from metastore.port.commit import Conflicted
from metastore.port.records import Record
from metastore.port.writes import Result
from tests.interleaving.batches import MemoryBatches
from tests.interleaving.mutant import Mutant

__all__ = ["OF_BATCHES"]


class _GuardsOfTheFirst(MemoryBatches):
    """The guards of one member are taken for those of all: they are not counted for each commit."""

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        same = [one._replace(guards=batch.alters[0].guards) for one in batch.alters]
        return super().write_together(batch._replace(alters=same), patience)


class _VouchesForOthers(MemoryBatches):
    """A parent stands for all members where one of them has seen it, whatever the others have seen."""

    def find_below(self, wanted: Sequence[Below]) -> list[Record | bool]:
        stands = self._tables.stands
        held = {n.id: n for one in wanted for n in one.parents if stands[n.id].scope_version == n.scope_version}
        seen = [one._replace(parents=tuple([held.get(n.id, n) for n in one.parents])) for one in wanted]
        return super().find_below(seen)


class _AnyVersionOfThatNumber(MemoryBatches):
    """A rename behind an alter of its batch takes another commit's version for that alter's."""

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        return super().write_together(
            batch._replace(updates=[u._replace(follows=None) for u in batch.updates]), patience
        )


class _CreatesUnguarded(MemoryBatches):
    """Members of a batch of creates do not hold their parents."""

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        inserts = [one._replace(guards=()) for one in batch.inserts]
        return super().write_together(batch._replace(inserts=inserts), patience)


class _AnswersInTheOrderOfIds(MemoryBatches):
    """Each member gets the answer of the row with its index among the sorted ones."""

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        return super().write_together(batch._replace(alters=sorted(batch.alters, key=lambda one: one.id)), patience)


class _DropsInTheOrderOfIds(MemoryBatches):
    """The same for drops."""

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        updates = sorted(batch.updates, key=lambda one: one.write.id or 0)
        return super().write_together(batch._replace(updates=updates), patience)


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

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        return super().write_together(batch._replace(alters=[a._replace(helps=True) for a in batch.alters]), patience)


class _PassesTickets(MemoryBatches):
    """A batch does not look whether a transaction is in line."""

    def _altered(self, tables: Tables, one: AlterTogether, now: int) -> Altered:
        return super()._altered(replace(tables, tickets={}), one, now)


class _AllOrNone(MemoryBatches):
    """One that loses takes the others' answers away, although they were applied."""

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        written = super().write_together(batch, patience)
        if isinstance(written, Written) and None in written.updates:
            return written._replace(updates=[Result(one.write.id or 0, 0, 1) for one in batch.updates])
        return written


@contextmanager
def _told_anyway() -> Iterator[None]:
    """A batch that was not applied tells its members what they would have come to."""
    tell = Group.tell

    def told(group: Group, altered: Altered | None, last: Result | Taken | None) -> None:
        tell(group, Altered(1), last)

    with patch.object(Group, "tell", told):
        yield


@contextmanager
def _where_another_found_it() -> Iterator[None]:
    """A request by path is decided where another one's record says that the entity stands."""
    decide = Group.decide

    def decided(group: Group, handle: Waiter, seen: Record, taken: set[tuple[int, str]]) -> int:
        return decide(group, handle, group.first, taken)

    with patch.object(Group, "decide", decided):
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
    Mutant(
        "a parent that another member has seen",
        "new path and old path, swap of the parents",
        "no order explains",
        _VouchesForOthers,
    ),
    Mutant(
        "a path that another member's record answers",
        "batches in a row, by an old and a new name, rename",
        "no order explains",
        MemoryBatches,
        broken=_where_another_found_it,
    ),
    Mutant(
        "a version that another commit made",
        "batch of an alter and a rename, alter",
        "no order explains",
        _AnyVersionOfThatNumber,
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
