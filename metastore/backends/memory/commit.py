"""Apply a commit in the memory model, whose tables are dictionaries.

:func:`apply` gets a copy of the tables, which no other caller sees. It first checks guards and reads. Then it makes the
writes one after the other; each write sees the versions, free names and children that the earlier ones left. Meanwhile
it draws ids and positions. It raises PreconditionFailed at the first precondition that does not hold; the caller then
drops the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from metastore.backends.memory import relations
from metastore.backends.memory.tables import TAKEN, Body, Stand, Tables
from metastore.backends.memory.tickets import check_tickets
from metastore.backends.precondition import PreconditionFailed, of_found
from metastore.port.backend import DRIFT
from metastore.port.commit import MOVED, Commit
from metastore.port.conditions import (
    DROPPED,
    LIVE,
    Absent,
    Caller,
    Children,
    Expect,
    Guard,
    Listing,
    Newest,
    Read,
    Relations,
)
from metastore.port.intents import CLAIMABLE, FORMAT
from metastore.port.leases import PUBLISHED, STAGED
from metastore.port.note import note_below, note_of
from metastore.port.records import OwnedRecord, Record, Step
from metastore.port.writes import Delete, Insert, Named, Put, Relate, Result, Update, Write


def apply(tables: Tables, commit: Commit, now: int) -> tuple[Result | None, ...]:
    """Check the preconditions of ``commit``, and write; return the results in the writes' order."""
    check_caller(tables, commit.caller, now)
    claimed = take_claim(tables, commit.operation_id, commit.claim) if commit.leaves_row or commit.claim else None
    _check_leases(tables, commit)
    check_guards(tables, commit.guards, commit.operation_id)
    if commit.held is not None and tables.stands[commit.held].mark != commit.operation_id:
        raise PreconditionFailed("marked", commit.held)
    check_tickets(tables, commit, now)
    for read in commit.reads:
        _check_read(tables, read)
    if commit.advance is not None:
        consumer = tables.consumers.get(commit.advance.name)
        if consumer is None or consumer.seq != commit.advance.seq:
            raise PreconditionFailed("read")
        tables.consumers[consumer.name] = consumer._replace(seq=commit.advance.to, moved_at=now)
    applying = _Applying(tables, commit, now)
    for guard in commit.guards:
        if guard.bump:
            stand = tables.stands[guard.id]
            tables.stands[guard.id] = stand._replace(scope_version=stand.scope_version + 1)
    results = tuple([applying.write(write) for write in commit.writes])
    if sum(result is not None for result in results) > 1:  # a read of the past must show these rows together
        last = tables.drawn["seq"]
        tables.steps[:] = [
            s._replace(through=last) if s.operation_id == commit.operation_id else s for s in tables.steps
        ]
    if not any(results):
        _keep_row(tables, commit, claimed, now)
    if commit.held is not None and tables.stands[commit.held].mark == commit.operation_id:
        tables.stands[commit.held] = tables.stands[commit.held].unmarked(now)
    return results


def _keep_row(tables: Tables, commit: Commit, claimed: Step | None, now: int) -> None:
    """Leave a row for a commit that wrote none: it moved a consumer, or the claimed tombstone stays."""
    if commit.advance is not None:
        row = (commit.operation_id, 0, None, None, None, None, None, "unchanged", None, now)
        tables.steps.append(Step(*row, result=MOVED))
    elif claimed is not None:
        tables.steps.append(claimed)


def check_caller(tables: Tables, caller: Caller | None, now: int) -> None:
    """Refuse an operation id from the future, or one that may have been forgotten."""
    if caller is not None and not tables.drawn["forgotten"] + DRIFT <= caller.issued <= now + DRIFT:
        raise PreconditionFailed("stale_id")


def take_claim(tables: Tables, operation_id: UUID, claim: int) -> Step | None:
    """Remove and return the claimed row; without a claim, check that the operation has no row."""
    row = tables.row_of(operation_id)
    if claim == 0:
        if row is not None:
            raise PreconditionFailed("operation")
        return None
    if row is None or row.action not in CLAIMABLE or row.attempt != claim:
        raise PreconditionFailed("claim")
    tables.steps.remove(row)
    return row


def check_guards(tables: Tables, guards: Sequence[Guard], operation_id: UUID | None) -> None:
    """Refuse a guard if it is gone, has another scope version, or carries another operation's mark."""
    for guard in guards:
        stand = tables.stands.get(guard.id)
        if stand is None or stand.scope_version != guard.scope_version:
            raise PreconditionFailed("ancestor", guard.id, stand and stand.scope_version)
        if stand.mark not in (None, operation_id):
            raise PreconditionFailed("marked", guard.id)


def _check_leases(tables: Tables, commit: Commit) -> None:
    """Refuse a token that the lease no longer has, or a value that is not staged; note staged values as published."""
    for lease in commit.leases:
        row = tables.leases.get(lease.name)
        if row is None or (row.token, row.incarnation) != (lease.token, lease.incarnation):
            raise PreconditionFailed("lease")
    for staged_id in commit.publishes:
        staged = tables.staged.get(staged_id)
        if staged is None or staged.state != STAGED:
            raise PreconditionFailed("read")
        tables.staged[staged_id] = staged._replace(state=PUBLISHED)


def newest_dropped(tables: Tables, parent_id: int, kind: str, family: str, key: str) -> Stand | None:
    """Return the entity that was dropped last under this name."""
    wanted = (kind, family, key, DROPPED)
    dropped = [s for s in tables.children(parent_id) if (s.kind, s.family, s.key, s.state) == wanted]
    return max(dropped, key=lambda s: (s.dropped_at or 0, s.id), default=None)


def _check_read(tables: Tables, read: Read) -> None:
    if isinstance(read, Expect):
        row = tables.row(read.id)
        version = row.version if isinstance(row, OwnedRecord if read.owned else Body) else None
        if version != read.version:
            raise PreconditionFailed("read", read.id, version)
    elif not _is_true(tables, read):
        raise PreconditionFailed("read", read.id if isinstance(read, Relations) else read.parent_id)


def _is_true(tables: Tables, read: Absent | Listing | Children | Newest | Relations) -> bool:
    if isinstance(read, Relations):
        return relations.members(tables, read) == read.members
    if isinstance(read, Absent):
        name = (read.parent_id, read.family, read.key)
        return name not in tables.owned if read.owned else tables.live_child(*name) is None
    if isinstance(read, Children):
        live = [s for s in tables.children(read.parent_id) if s.state in TAKEN and s.id not in read.besides]
        return bool(live) == read.there
    if isinstance(read, Newest):
        newest = newest_dropped(tables, read.parent_id, read.kind, read.family, read.key)
        return (newest and newest.id) == read.id
    return _members(tables, read) == read.members


def _members(tables: Tables, read: Listing) -> set[tuple[int, int]]:
    if read.owned:
        rows = [row for row in tables.owned.values() if (row.owner_id, row.kind) == (read.parent_id, read.kind)]
        return {(row.id, row.version) for row in rows}
    listed = [s for s in tables.children(read.parent_id) if (s.kind, s.state) == (read.kind, read.state)]
    return {(s.id, tables.bodies[s.id].version) for s in listed}


def _check_update(tables: Tables, commit: Commit, update: Update, now: int) -> None:
    body = tables.bodies.get(update.id)
    if body is None or body.version != update.version:
        raise PreconditionFailed("self", update.id, body and body.version)
    stand = tables.stands[update.id]
    if stand.mark not in (None, commit.operation_id):
        raise PreconditionFailed("marked", update.id)
    if update.scope_version is None:
        understood = [s for s in tables.pending(update.id) if (s.format or 0) <= FORMAT]
        if understood and not commit.overlook and update.id not in {one.id for one in commit.carries}:
            raise PreconditionFailed("pending", update.id)
    elif stand.scope_version != update.scope_version:
        raise PreconditionFailed("ancestor", update.id, stand.scope_version)
    elif commit.held != update.id and stand.others_turn(now):
        raise PreconditionFailed("marked", update.id)
    if update.empty and any(s.state in TAKEN for s in tables.children(update.id)):
        raise PreconditionFailed("not_empty", update.id)


def _stood(write: Write, stand: Stand | None, row_id: int) -> dict[str, Any]:
    """Return the row after a write, for reads of the past. A relation's parent is the end from which it goes."""
    if isinstance(write, Relate):
        place = {"parent_id": write.from_id, "name": str(row_id)}
        if write.removes:
            return {**place, "state": DROPPED}
        return {**place, "state": LIVE, "family": write.kind, "key": str(row_id)}
    if stand is None:
        assert isinstance(write, Put | Delete)
        place = {"parent_id": write.owner_id, "name": write.name}
        if isinstance(write, Delete):
            return {**place, "state": DROPPED}
        return {**place, "state": LIVE, "family": write.kind, "key": write.name}
    place = {"parent_id": stand.parent_id, "name": stand.name, "fold": stand.fold, "state": stand.state}
    takes = stand.state == LIVE and (isinstance(write, Insert) or write.scope_version is not None)  # type: ignore[union-attr]
    return {**place, "family": stand.family, "key": stand.key} if takes else place


class _Applying:
    """The writes of one commit, after its guards and reads were checked."""

    def __init__(self, tables: Tables, commit: Commit, now: int) -> None:
        self._tables = tables
        self._commit = commit
        self._now = now
        self._ordinal = 0

    def write(self, write: Write) -> Result | None:
        """Perform the next write."""
        if isinstance(write, Insert):
            return self._insert(write)
        if isinstance(write, Update):
            return self._update(write)
        if isinstance(write, Relate):
            return self._relate(write)
        return self._put(write) if isinstance(write, Put) else self._delete(write)

    def _insert(self, write: Insert) -> Result | None:
        if self._tables.child_named(write.parent_id, write.family, write.key, TAKEN) is not None:
            if self._commit.skip_existing:
                return None
            raise PreconditionFailed("name", write.parent_id)
        new = self._tables.draw("id") if write.id is None else write.id
        place = (write.parent_id, write.kind, write.family, write.name, write.key, write.fold)
        self._tables.stands[new] = Stand(new, *place, LIVE, True, 1, None)
        self._tables.bodies[new] = Body(1, write.doc, *self._audit(), *self._audit())
        return self._log(write, new, 1, write.doc, self._tables.stands[new])

    def _by_name(self, write: Update, named: Named) -> Result:
        """Perform an update of the entity that has the given name at this moment."""
        found: Record | None = None
        stand = self._tables.live_child(named.parent_id, named.family, named.key)
        if stand is not None:
            found = Record((stand.node,), *self._tables.bodies[stand.id])
        return replace(self._update(of_found(write, found)), found=found)

    def _update(self, write: Update) -> Result:
        if write.named is not None:
            return self._by_name(write, write.named)
        _check_update(self._tables, self._commit, write, self._now)
        if write.scope_version is not None:
            self._tables.stands[write.id] = self._moved(self._tables.stands[write.id], write)
            for intent in self._tables.pending(write.id):
                self._tables.replace_step(intent, intent._replace(action="moved", attempt=(intent.attempt or 0) + 1))
        else:
            assert (write.place, write.state, write.in_use) == (None, None, None), "needs a new scope version"
        old = self._tables.bodies[write.id]
        by, at = self._audit()
        doc = old.doc if write.doc is None else write.doc
        body = old._replace(version=old.version + 1, doc=doc, modified_by=by, modified_at=at)
        self._tables.bodies[write.id] = body
        stand = self._tables.stands[write.id]
        result = self._log(write, write.id, body.version, body.doc, stand)
        return result if write.scope_version is not None else replace(result, scope_version=stand.scope_version)

    def _moved(self, stand: Stand, write: Update) -> Stand:
        """Return the entity's place after an exclusive update."""
        after = stand._replace(scope_version=stand.scope_version + 1)
        if write.place is not None:
            place = write.place
            after = after._replace(parent_id=place.parent_id, name=place.name, key=place.key, fold=place.fold)
        if write.in_use is not None:
            after = after._replace(in_use=write.in_use)
        if write.state is not None:
            dropped_at = {LIVE: None, DROPPED: self._now}.get(write.state, stand.dropped_at)
            after = after._replace(state=write.state, dropped_at=dropped_at)
        if after.mark == self._commit.operation_id:
            after = after.unmarked(self._now)
        if after.state == LIVE:
            other = self._tables.child_named(after.parent_id, after.family, after.key, TAKEN)
            if other is not None and other.id != after.id:
                raise PreconditionFailed("name", after.parent_id)
        return after

    def _put(self, write: Put) -> Result:
        old = self._owned(write)
        by, at = self._audit()
        if old is None:
            new = self._tables.draw("id")
            row = OwnedRecord(new, write.owner_id, write.kind, write.name, 1, write.doc, by, at, by, at)
        else:
            row = old._replace(version=old.version + 1, doc=write.doc, modified_by=by, modified_at=at)
        self._tables.owned[write.owner_id, write.kind, write.name] = row
        return self._log(write, row.id, row.version, row.doc, write.owner_id)

    def _delete(self, write: Delete) -> Result:
        old = self._owned(write)
        if old is None:
            raise PreconditionFailed("self")
        del self._tables.owned[write.owner_id, write.kind, write.name]
        return self._log(write, old.id, old.version + 1, old.doc, write.owner_id)

    def _relate(self, write: Relate) -> Result | None:
        commit = self._commit
        written = relations.write(self._tables, write, commit.principal, self._now, skip=commit.skip_existing)
        return written and self._log(write, *written, write.doc, write.from_id, write.to_id)

    def _owned(self, write: Put | Delete) -> OwnedRecord | None:
        """Return the row to write, which must have the expected version and id; for version 0, no row may exist."""
        old = self._tables.owned.get((write.owner_id, write.kind, write.name))
        if (0 if old is None else old.version) != write.version:
            raise PreconditionFailed("self" if write.version else "name", old and old.id, old and old.version)
        if old is not None and write.id not in (0, old.id):
            raise PreconditionFailed("self", old.id, old.version)
        return old

    def _audit(self) -> tuple[str | None, int]:
        return self._commit.principal, self._now

    def _log(
        self, write: Write, row_id: int, version: int, doc: str, where: Stand | int, other_id: int | None = None
    ) -> Result:
        """Note a write; ``where``: the entity's place, or the id of an owned row's owner."""
        event, commit = write.event, self._commit
        stand, owner_id = (where, None) if isinstance(where, Stand) else (None, where)
        place = _stood(write, stand, row_id)
        step = Step(
            operation_id=commit.operation_id,
            ordinal=self._ordinal,
            seq=self._tables.draw("seq"),
            entity_id=row_id,
            version=version,
            owner_id=owner_id,
            kind=event.kind,
            action=event.action,
            principal=commit.principal,
            time=self._now,
            path_before=event.path_before,
            path_after=event.path_after,
            changes=event.changes,
            scope_version=stand and stand.scope_version,
            in_use=stand and stand.in_use,
            doc=doc,
            digest=commit.caller.digest if commit.caller is not None and self._ordinal == 0 else None,
            # the first row keeps the whole note, each other row only the leases and the reason
            fences=(note_of if self._ordinal == 0 else note_below)(commit),
            other_id=other_id,
            other_path=event.other_path,
            **place,
        )
        self._ordinal += 1
        self._tables.steps.append(step)
        return Result(row_id, version, self._now)
