"""The memory model for requests that travel together: a batch has the effect of its members one after the other.

It is written from :mod:`metastore.port.batches`, not from the SQL. ``tests/statements`` and ``tests/combine`` show that
one statement on PostgreSQL does the same at one instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.memory.commit import apply
from metastore.backends.memory.intents import carry
from metastore.backends.memory.tables import Tables
from metastore.backends.memory.tickets import check_line
from metastore.backends.precondition import PreconditionFailed
from metastore.port.batches import TAKEN, Altered, AlterTogether, Batch, Below, Single, Taken, Written
from metastore.port.commit import Commit, Conflicted
from metastore.port.conditions import DROPPING, Guard
from metastore.port.intents import FORMAT, Help
from metastore.port.records import Record
from metastore.port.writes import Event, Insert, Result, Update

__all__ = ["MemoryBatches"]

T = TypeVar("T")


class MemoryBatches(MemoryBackend):
    """See the module. Nobody ever waits for a lock here, so that patience says nothing."""

    def find_below(self, wanted: Sequence[Below]) -> list[Record | bool]:
        """Return each child; False: there is none; True: its parents moved, or one of its name is being dropped."""
        with self._lock:
            return [self._below(one) for one in wanted]

    def _below(self, wanted: Below) -> Record | bool:
        stands = self._tables.stands
        seen = [stands.get(node.id) for node in wanted.parents]
        if any(s is None or s.scope_version != n.scope_version for s, n in zip(seen, wanted.parents, strict=True)):
            return True
        parent_id = wanted.parents[-1].id if wanted.parents else 0
        child = self._tables.live_child(parent_id, wanted.family, wanted.key)
        if child is None and self._tables.child_named(parent_id, wanted.family, wanted.key, (DROPPING,)) is not None:
            return True
        known = None if child is None else self._known(child.id)
        return False if known is None else known.record._replace(chain=(*wanted.parents, known.record.chain[-1]))

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted:
        """Apply each of these by itself: creates, then alters, then exclusive updates."""
        with self._lock:
            changed, now = self._tables.copy(), self._clock.micros()
            order = sorted(batch.alters, key=lambda one: one.id)
            try:
                made = [self._single(changed, one, now) for one in batch.inserts]
                altered = {one.id: self._altered(changed, one, now) for one in order}
                ended = [self._single(changed, one, now) for one in batch.updates]
            except PreconditionFailed as failed:
                return failed.conflict
            self._tables = changed
            return Written(made, [altered[one.id] for one in batch.alters], ended)

    def _altered(self, tables: Tables, one: AlterTogether, now: int) -> Altered:
        """Judge one member by itself, and apply it. Raises PreconditionFailed for an operation id that is known."""
        free = self._free(tables, one)
        carried = [step.operation_id for step in one.steps if step.carried is not None]
        there = tables.pending(one.id)
        understood = [intent for intent in there if (intent.format or 0) <= FORMAT]
        met = {intent.operation_id for intent in there}.issuperset(carried) and (one.helps or not understood)
        queued = _is_hindered(tables, one, now)
        body = tables.bodies.get(one.id)
        if body is None:
            return Altered(None)
        if free and met and not queued and body.version == one.version:
            _apply(tables, one, now)
            if one.ticket is not None and one.leaves:
                tables.tickets.pop((one.id, one.ticket), None)
            return Altered(now)
        if not free or not met or queued:
            return Altered(None, pending=free and not met, queued=free and queued)
        return Altered(None, body.version, body.doc, body.modified_by, body.modified_at)

    def _free(self, tables: Tables, one: AlterTogether) -> bool:
        """Whether the member's guards hold, and nobody has marked them."""
        return all(_holds(tables, guard) for guard in (*one.guards, Guard(one.id, one.scope_version)))

    def _single(self, tables: Tables, one: Single, now: int) -> Result | Taken | None:
        """Apply one create or exclusive update. Raises PreconditionFailed for an operation id that is known."""
        changed = tables.copy()
        if one.follows is not None and not any(step.operation_id == one.follows for step in tables.steps):
            return None  # the alters of the batch on which it was decided were not applied
        try:
            (result,) = apply(changed, Commit(one.operation_id, one.principal, one.guards, (), (one.write,)), now)
        except PreconditionFailed as failed:
            if failed.conflict.cause == "operation":
                raise
            return TAKEN if failed.conflict.cause == "name" and _taken(tables, one.write) else None
        vars(tables).update(vars(changed))
        return result


def _is_hindered(tables: Tables, one: AlterTogether, now: int) -> bool:
    """Whether a ticket hinders a member: any, or with a ticket of its own an older one."""
    try:
        check_line(tables, one.id, one.ticket, now)
    except PreconditionFailed:
        return True
    return False


def _taken(tables: Tables, write: Insert | Update) -> bool:
    """Whether something live has the name that a write takes."""
    if isinstance(write, Insert):
        return tables.live_child(write.parent_id, write.family, write.key) is not None
    family = tables.stands[write.id].family
    return write.place is not None and tables.live_child(write.place.parent_id, family, write.place.key) is not None


def _holds(tables: Tables, guard: Guard) -> bool:
    stand = tables.stands.get(guard.id)
    return stand is not None and (stand.scope_version, stand.mark) == (guard.scope_version, None)


def _apply(tables: Tables, one: AlterTogether, now: int) -> None:
    version = one.version
    for step in one.steps:
        if step.carried is not None:
            help_ = Help((), one.id, version, one.path, (step.carried,))
            carry(tables, Commit(step.operation_id, None, carries=(help_,)), now)
        else:
            event = Event(one.kind, "alter", one.path, one.path, step.changes or "[]")
            write = Update(one.id, version, event, step.doc)
            # those intents that this program does not understand hinder nothing
            own = Commit(step.operation_id, step.principal, (), (), (write,), overlook=True, ticket=one.ticket)
            apply(tables, own, now)
        version += step.action == "alter"
