"""What a transaction has read, as preconditions of its commit.

An entity is validated by its version, the path to it by shared guards; an absent name and a
listing by another look under an exclusive guard on the parent, which keeps siblings waiting for
that instant. A name that the transaction takes itself needs no such look: the unique index says
whether it was free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from metastore.commit import Absent, Commit, Delete, Expect, Guard, Insert, Listing, Put, Update, Write
from metastore.entity import OwnedRecord

__all__ = ["ReadSet"]


@dataclass
class ReadSet:
    """Guards by id; versions of entities by id; owned rows as first read, by id; absent names; listings."""

    guards: dict[int, int] = field(default_factory=dict)
    entities: dict[int, int] = field(default_factory=dict)
    owned: dict[int, OwnedRecord] = field(default_factory=dict)
    absent: set[Absent] = field(default_factory=set)
    listings: dict[tuple[int, str, bool], Listing] = field(default_factory=dict)

    def commit(
        self, operation_id: UUID, principal: str | None, writes: Sequence[Write], family_of: Callable[[int], str]
    ) -> Commit:
        """Return the commit that applies ``writes`` if all that was read is still so."""
        updates = [w for w in writes if isinstance(w, Update)]
        written, exclusive = {w.id for w in updates}, {w.id for w in updates if w.scope_version is not None}
        absent = self.absent - set(_taken(writes, family_of))
        barred = {r.parent_id for r in absent} | {r.parent_id for r in self.listings.values()}
        guards = [Guard(i, scope, exclusive=i in barred) for i, scope in self.guards.items() if i not in exclusive]
        reads: tuple[Expect | Absent | Listing, ...] = (
            *[Expect(i, version) for i, version in self.entities.items() if i not in written],
            *[Expect(r.id, r.version, owned=True) for r in self._owned_and_not_written(writes)],
            *absent,
            *self.listings.values(),
        )
        return Commit(operation_id, principal, tuple(guards), reads, tuple(writes))

    def _owned_and_not_written(self, writes: Sequence[Write]) -> Iterator[OwnedRecord]:
        """Yield the owned rows that were read, without those whose write expects the same version.

        Locked as read and then as written, a row would deadlock with whoever does the same.
        """
        written: dict[tuple[int, str, str], int] = {}
        for write in writes:
            if isinstance(write, Put | Delete):
                written.setdefault((write.owner_id, write.kind, write.name), write.version)
        for row in self.owned.values():
            if written.get((row.owner_id, row.kind, row.name)) != row.version:
                yield row


def _taken(writes: Sequence[Write], family_of: Callable[[int], str]) -> Iterator[Absent]:
    for write in writes:
        if isinstance(write, Insert):
            yield Absent(write.parent_id, write.family, write.key)
        elif isinstance(write, Put) and write.version == 0:
            yield Absent(write.owner_id, write.kind, write.name, owned=True)
        elif isinstance(write, Update) and write.place is not None:
            yield Absent(write.place.parent_id, family_of(write.id), write.place.key)
