"""The reads of a transaction, as preconditions of its commit.

The commit validates an entity by its version, and the entity's path by shared guards. It repeats a read of an absent
name or a listing, under an exclusive guard on the parent, for which siblings wait. It does not repeat the read of a
name that the transaction takes itself: the unique index shows whether the name was free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from metastore.port.commit import Commit
from metastore.port.conditions import Absent, Children, Expect, Guard, Listing, Newest, Read, Relations
from metastore.port.records import OwnedRecord
from metastore.port.writes import Delete, Insert, Put, Update, Write


@dataclass
class ReadSet:
    """The reads of a transaction. A second read of the same value returns the first one."""

    guards: dict[int, int] = field(default_factory=dict)
    """Scope versions, by id."""
    entities: dict[int, int] = field(default_factory=dict)
    """Versions, by id."""
    owned: dict[int, OwnedRecord] = field(default_factory=dict)
    """Owned rows, by id."""
    absent: set[Absent] = field(default_factory=set)
    """Names that no entity and no owned row had."""
    listings: dict[tuple[int, str, bool, int], Listing] = field(default_factory=dict)
    """Listings, by parent, kind, whether they are of owned rows, and state."""
    children: set[Children] = field(default_factory=set)
    """Whether a parent had children."""
    newest: set[Newest] = field(default_factory=set)
    """For each name: the entity that was dropped last under it."""
    bumped: set[int] = field(default_factory=set)
    """The ids of the guards whose scope versions the commit counts up."""
    relations: dict[tuple[int, str, int | None, bool], Relations] = field(default_factory=dict)
    """Listings of relations, by entity, kind, slot, and direction (whether they lead to the entity)."""

    def commit(
        self, operation_id: UUID, principal: str | None, writes: Sequence[Write], family_of: Callable[[int], str]
    ) -> Commit:
        """Return the commit that applies ``writes`` if everything that was read is unchanged.

        Without writes, it raises no scope version.
        """
        updates = [w for w in writes if isinstance(w, Update)]
        written, exclusive = {w.id for w in updates}, {w.id for w in updates if w.scope_version is not None}
        absent = self.absent - set(_taken(writes, family_of))
        emptied = {w.id for w in updates if w.empty}  # for these, the writes themselves check that the parent is empty
        children = [c for c in self.children if c.parent_id not in emptied]
        under: list[Absent | Listing | Children | Newest] = [*absent, *self.listings.values(), *children, *self.newest]
        barred = {r.parent_id for r in under} | {r.id for r in self.relations.values()}
        bumped = self.bumped if writes else set()
        barred |= bumped
        guards = [
            Guard(i, scope, exclusive=i in barred, bump=i in bumped)
            for i, scope in self.guards.items()
            if i not in exclusive
        ]
        reads: tuple[Read, ...] = (
            *[Expect(i, version) for i, version in self.entities.items() if i not in written],
            *[Expect(r.id, r.version, owned=True) for r in self._owned_and_not_written(writes)],
            *under,
            *self.relations.values(),
        )
        return Commit(operation_id, principal, tuple(guards), reads, tuple(writes))

    def _owned_and_not_written(self, writes: Sequence[Write]) -> Iterator[OwnedRecord]:
        """Yield the owned rows that were read, except those whose write expects the same version.

        If a commit locked a row once as read and once as written, it could deadlock with another commit like it.
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
