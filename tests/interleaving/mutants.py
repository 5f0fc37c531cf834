"""Faults planted in the protocol, one by one. Each must be found by some program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.memory.tables import Ticket
from metastore.port.backend import Backend
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted
from metastore.port.intents import CLAIMABLE, PENDING, Entry, Help, Mark
from metastore.port.records import Pending
from metastore.port.writes import Update
from tests.interleaving.mutant import Mutant
from tests.interleaving.mutants_by_callers import BY_CALLERS
from tests.interleaving.mutants_of_batches import OF_BATCHES
from tests.interleaving.mutants_of_chains import OF_CHAINS
from tests.interleaving.process import Wrap

__all__ = ["MUTANTS", "Mutant"]


# --- in the database


class _FastPathOverlooksIntents(MemoryBackend):
    """A commit does not look whether intents are pending."""

    def commit(self, commit: Commit) -> CommitOutcome:
        return super().commit(replace(commit, overlook=True))


class _ResultsApart(MemoryBackend):
    """The effect of intents is one commit, their results are another."""

    def help_apply(self, help: Help) -> CommitOutcome:
        before = {one.operation_id: self._tables.row_of(one.operation_id) for one in help.resolutions}
        outcome = super().help(help)
        if not isinstance(outcome, Committed):
            return outcome
        steps = self._tables.steps
        for operation_id, intent in before.items():
            rows = [s for s in steps if s.operation_id == operation_id]
            (row,) = [s for s in rows if s.ordinal == 0]
            steps.remove(row)
            if row.seq is not None:
                steps.append(row._replace(ordinal=len(rows)))
            assert intent is not None
            steps.append(intent)
        return outcome

    def help_resolve(self, help: Help) -> None:
        steps = self._tables.steps
        for one in help.resolutions:
            intent = self._tables.row_of(one.operation_id)
            if intent is None or intent.action != PENDING:
                continue
            steps.remove(intent)
            rows = [s for s in steps if s.operation_id == one.operation_id]
            if rows:
                steps[steps.index(rows[0])] = rows[0]._replace(ordinal=0)
            else:
                steps.append(intent._replace(action=one.action, result=one.result))


class _CancelAnyway(MemoryBackend):
    """An intent is withdrawn, whether it is still pending or not."""

    def cancel(self, operation_id: UUID) -> bool:
        super().cancel(operation_id)
        return self._tables.row_of(operation_id) is not None


class _MarksLapse(MemoryBackend):
    """A mark is over when its time is; the holder's commit does not ask whether it is there."""

    def _lapse(self) -> None:
        now = self._clock.micros()
        for i, stand in self._tables.stands.items():
            if stand.mark is not None and (stand.marked_until or 0) <= now:
                self._tables.stands[i] = stand._replace(mark=None, marked_at=None, marked_until=None)

    def commit(self, commit: Commit) -> CommitOutcome:
        self._lapse()
        lapsed = commit.held is not None and self._tables.stands[commit.held].mark != commit.operation_id
        return super().commit(replace(commit, held=None) if lapsed else commit)

    def help(self, help: Help) -> CommitOutcome:
        self._lapse()
        return super().help(help)

    def mark(self, mark: Mark) -> CommitOutcome:
        self._lapse()
        return super().mark(mark)


class _TombstoneDoesNothing(MemoryBackend):
    """ON CONFLICT DO NOTHING: an original whose id is forbidden writes everything but the operation's row."""

    def commit(self, commit: Commit) -> CommitOutcome:
        row = self._tables.row_of(commit.operation_id)
        if commit.claim or row is None or row.action not in CLAIMABLE:
            return super().commit(commit)
        outcome = super().commit(replace(commit, claim=row.attempt or 0))
        if isinstance(outcome, Committed):
            self._tables.steps[:] = [s for s in self._tables.steps if s.operation_id != commit.operation_id]
            self._tables.steps.append(row)
        return outcome


class _NoTombstone(MemoryBackend):
    """After a lost answer it is looked whether the operation was applied, but what is in flight may still be."""

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        row = self._tables.row_of(operation_id)
        return 0 if row is None else super().forbid(operation_id, life)


class _DropLeavesIntents(MemoryBackend):
    """An exclusive operation leaves intents pending."""

    def commit(self, commit: Commit) -> CommitOutcome:
        left = [s for w in commit.writes if isinstance(w, Update) for s in self._tables.pending(w.id)]
        outcome = super().commit(commit)
        for intent in left if isinstance(outcome, Committed) else ():
            row = self._tables.row_of(intent.operation_id)
            if row is not None and row.action == "moved":
                self._tables.replace_step(row, intent)
        return outcome


class _ByNameUnguarded(MemoryBackend):
    """An update by name does not look whether the parents stand where they were seen."""

    def commit(self, commit: Commit) -> CommitOutcome:
        named = any(isinstance(write, Update) and write.named is not None for write in commit.writes)
        return super().commit(replace(commit, guards=()) if named else commit)


class _ClearWithoutBump(MemoryBackend):
    """An operation that clears an expired mark leaves the scope version as it is."""

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        before = self._tables.stands.get(entity_id)
        cleared = super().clear(entity_id, operation_id)
        if cleared and before is not None:
            stand = self._tables.stands[entity_id]
            self._tables.stands[entity_id] = stand._replace(scope_version=before.scope_version)
        return cleared


class _HelpsTheWithdrawn(MemoryBackend):
    """Helping applies what it has read, whether it is still pending or not."""

    def help(self, help: Help) -> CommitOutcome:
        changed = []
        for one in help.resolutions:
            row = self._tables.row_of(one.operation_id)
            if row is not None and row.seq is None and row.action != PENDING:
                self._tables.replace_step(row, again := row._replace(action=PENDING))
                changed.append((again, row))
        outcome = super().help(help)
        for again, row in changed if not isinstance(outcome, Committed) else ():
            self._tables.replace_step(again, row)
        return outcome


class _ForgetsNothing(MemoryBackend):
    """gc deletes operations, but goes on accepting their ids."""

    def forget(self, before: int) -> None:
        pass


class _HelpsUnguarded(MemoryBackend):
    """Helping does not hold the path that it has found."""

    def help(self, help: Help) -> CommitOutcome:
        return super().help(replace(help, guards=()))


class _CommitsUnguarded(MemoryBackend):
    """A commit does not hold the ancestors."""

    def commit(self, commit: Commit) -> CommitOutcome:
        return super().commit(replace(commit, guards=()))


# --- in the process


class _Around:
    """A backend that passes everything on."""

    def __init__(self, inner: Backend) -> None:
        self._inner: Any = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _HelpInTwoSteps(_Around):
    def help(self, help: Help) -> CommitOutcome:
        outcome: CommitOutcome = self._inner.help_apply(help)
        if isinstance(outcome, Committed):
            self._inner.help_resolve(help)
        return outcome


class _ReadsBeforeItAnnounces(_Around):
    """The first snapshot that is helped with is older than the announcement."""

    _old: Pending | None = None

    def write_down(self, entry: Entry) -> CommitOutcome:
        if entry.action == PENDING:
            self._old = self._inner.pending(entry.entity_id, None, 64)
        outcome: CommitOutcome = self._inner.write_down(entry)
        return outcome

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int) -> Pending:
        old, self._old = self._old, None
        seen: Pending
        if old is not None and operation_id is not None:
            (own,) = self._inner.steps(operation_id)
            if own.action == PENDING:
                return old._replace(own=own, intents=[*old.intents, own])
        seen = self._inner.pending(entity_id, operation_id, limit)
        return seen


class _ForgetsThePath(_Around):
    """An intent is announced without the path that was meant."""

    def write_down(self, entry: Entry) -> CommitOutcome:
        outcome: CommitOutcome = self._inner.write_down(replace(entry, path=None))
        return outcome


class _CommitsPassTickets(MemoryBackend):
    """A commit does not look whether a transaction is in line."""

    def commit(self, commit: Commit) -> CommitOutcome:
        standing, self._tables = self._tables, replace(self._tables, tickets={})
        outcome = super().commit(commit)
        if self._tables.tickets or not isinstance(outcome, Committed):
            self._tables = replace(self._tables, tickets=standing.tickets)
        else:
            kept = {
                key: one
                for key, one in standing.tickets.items()
                if not (key[0] in commit.leaves and key[1] == commit.ticket)
            }
            self._tables = replace(self._tables, tickets=kept)
        return outcome


class _DrawsBeforeItLocks(_Around):
    """A ticket gets its number at one instant, and is there at a later one."""

    def queue(self, ids: Sequence[int], patience: float) -> int:
        (number,) = self._inner.reserve_ids(1)
        self._inner.place_ticket(tuple(ids), number, patience)
        return int(number)


class _PlacesTickets(MemoryBackend):
    def reserve_ids(self, count: int) -> list[int]:
        return [self._tables.draw("ticket") for _ in range(count)]

    def place_ticket(self, ids: tuple[int, ...], number: int, patience: float) -> None:
        now = self._clock.micros()
        for entity_id in ids:
            self._tables.tickets[entity_id, number] = Ticket(now, round(patience * 1_000_000), now)


class _BarsNothing(_Around):
    """A transaction that lost on a listing marks nothing."""

    def mark(self, mark: Mark) -> CommitOutcome:
        return Conflicted("marked", mark.id)


def _wrap(cls: Callable[[Backend], Any]) -> Wrap:
    return lambda inner: cast(Backend, cls(inner))


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "fast path without a look at intents",
        "hot alter, three alters in a row",
        "after the announcement",
        _FastPathOverlooksIntents,
    ),
    Mutant(
        "results in a commit of their own",
        "two hot alters",
        "verify|no order explains",
        _ResultsApart,
        _wrap(_HelpInTwoSteps),
    ),
    Mutant(
        "announcement after the read",
        "hot alter, three hot ones in a row",
        "after the announcement",
        wrap=_wrap(_ReadsBeforeItAnnounces),
        slow=True,
    ),
    Mutant("intent without its path", "two alters, rename", "no order explains", wrap=_wrap(_ForgetsThePath)),
    Mutant("cancel of what is not pending", "hot alter, deadline", "no order explains", _CancelAnyway, slow=True),
    Mutant("mark that lapses", "create, freeze that lapses", "no order explains", _MarksLapse),
    Mutant("tombstone that does nothing", "two alters", "verify", _TombstoneDoesNothing),
    Mutant("no tombstone", "two alters", "no order explains", _NoTombstone),
    Mutant("drop that leaves intents", "hot alter, drop", "leaves its intents pending", _DropLeavesIntents),
    Mutant(
        "clear without a bump",
        "create, freeze that lapses, late marks",
        "no order explains",
        _ClearWithoutBump,
        slow=True,
    ),
    Mutant("help of what is not pending", "hot alter, deadline", "no order explains", _HelpsTheWithdrawn, slow=True),
    Mutant("gc that accepts old ids", "gc, replay", "applied again", _ForgetsNothing),
    Mutant("help without guards", "hot alter, rename of the parent", "verify", _HelpsUnguarded),
    Mutant(
        "by name without guards", "rename by name, rename of the parent", "verify|no order explains", _ByNameUnguarded
    ),
    Mutant("commit without guards", "rename, create below", "verify", _CommitsUnguarded),
    Mutant(
        "commits that pass tickets",
        "hot count, five alters in a row",
        "attempts of a transaction lost",
        _CommitsPassTickets,
        slow=True,
    ),
    Mutant(
        "number before the lock",
        "two hot counts in line",
        "attempts of a transaction lost",
        _PlacesTickets,
        _wrap(_DrawsBeforeItLocks),
    ),
    Mutant(
        "no barred scope", "count, two creates in a row", "attempts of a transaction lost", wrap=_wrap(_BarsNothing)
    ),
    *BY_CALLERS,
    *OF_BATCHES,
    *OF_CHAINS,
)
