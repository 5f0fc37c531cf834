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

from metastore.port.commit import (
    Absent,
    Children,
    Commit,
    Delete,
    Expect,
    Guard,
    Insert,
    Listing,
    Newest,
    Put,
    Read,
    Update,
    Write,
)
from metastore.port.records import OwnedRecord

__all__ = ["ReadSet"]


@dataclass
class ReadSet:
    """Guards and versions by id; owned rows as first read, by id; absent names; listings (parent, kind, owned, state).

    And whether there were children, and what was dropped last under a name.
    """

    guards: dict[int, int] = field(default_factory=dict)
    entities: dict[int, int] = field(default_factory=dict)
    owned: dict[int, OwnedRecord] = field(default_factory=dict)
    absent: set[Absent] = field(default_factory=set)
    listings: dict[tuple[int, str, bool, int], Listing] = field(default_factory=dict)
    children: set[Children] = field(default_factory=set)
    newest: set[Newest] = field(default_factory=set)

    def commit(
        self, operation_id: UUID, principal: str | None, writes: Sequence[Write], family_of: Callable[[int], str]
    ) -> Commit:
        """Return the commit that applies ``writes`` if all that was read is still so."""
        updates = [w for w in writes if isinstance(w, Update)]
        written, exclusive = {w.id for w in updates}, {w.id for w in updates if w.scope_version is not None}
        absent = self.absent - set(_taken(writes, family_of))
        emptied = {w.id for w in updates if w.empty}  # which the writes themselves check
        children = [c for c in self.children if c.parent_id not in emptied]
        under: list[Absent | Listing | Children | Newest] = [*absent, *self.listings.values(), *children, *self.newest]
        barred = {r.parent_id for r in under}
        guards = [Guard(i, scope, exclusive=i in barred) for i, scope in self.guards.items() if i not in exclusive]
        reads: tuple[Read, ...] = (
            *[Expect(i, version) for i, version in self.entities.items() if i not in written],
            *[Expect(r.id, r.version, owned=True) for r in self._owned_and_not_written(writes)],
            *under,
        )
        return Commit(operation_id, principal, tuple(guards), reads, tuple(writes))

    def _owned_and_not_written(self, writes: Sequence[Write]) -> Iterator[OwnedRecord]:
        """Yield the owned rows that were read, without those whose write expects the same version.

        Locked as read and then as written, a row would deadlock with whoever does the same.
        """
        written: dict[tuple[int, str, str], tuple[int, int]] = {}
        for write in writes:
            if isinstance(write, Put | Delete):
                written.setdefault((write.owner_id, write.kind, write.name), (write.id, write.version))
        for row in self.owned.values():
            if written.get((row.owner_id, row.kind, row.name)) != (row.id, row.version):
                yield row


def _taken(writes: Sequence[Write], family_of: Callable[[int], str]) -> Iterator[Absent]:
    for write in writes:
        if isinstance(write, Insert):
            yield Absent(write.parent_id, write.family, write.key)
        elif isinstance(write, Put) and write.version == 0:
            yield Absent(write.owner_id, write.kind, write.name, owned=True)
        elif isinstance(write, Update) and write.place is not None:
            yield Absent(write.place.parent_id, family_of(write.id), write.place.key)
