"""Faults planted in the protocol, one by one. Each must be found by some program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

from metastore.backends.memory import MemoryBackend
from metastore.backends.memory_tables import Stand
from metastore.backends.port import Backend, Pending
from metastore.clock import Clock
from metastore.commit import (
    CLAIMABLE,
    PENDING,
    Children,
    Commit,
    Committed,
    Delete,
    Entry,
    Expect,
    Help,
    Listing,
    Mark,
    Newest,
    Outcome,
    Put,
    Update,
)
from metastore.managers import manager, target
from metastore.overlay import Overlay
from tests.interleaving.callers import CALLERS, HANDED, MET
from tests.interleaving.process import Wrap
from tests.interleaving.programs import PROGRAMS, Program

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """One fault, the program that finds it, and what it says then."""

    name: str
    program: str
    says: str
    make: Callable[[Clock], MemoryBackend] = MemoryBackend
    wrap: Wrap | None = None
    slow: bool = False
    broken: Callable[[], AbstractContextManager[object]] = nullcontext
    forgets: tuple[str, ...] = ()
    most_faults: int = 1

    def planted(self) -> Program:
        (found,) = [p for p in (*PROGRAMS, *HANDED, *CALLERS, *chain(*MET.values())) if p.name == self.program]
        return replace(
            found,
            make=self.make,
            wrap=self.wrap,
            broken=self.broken,
            forgets=self.forgets,
            most_faults=self.most_faults,
        )


# --- in the database


class _FastPathOverlooksIntents(MemoryBackend):
    """A commit does not look whether intents are pending."""

    def commit(self, commit: Commit) -> Outcome:
        return super().commit(replace(commit, overlook=True))


class _ResultsApart(MemoryBackend):
    """The effect of intents is one commit, their results are another."""

    def help_apply(self, help: Help) -> Outcome:
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

    def commit(self, commit: Commit) -> Outcome:
        self._lapse()
        lapsed = commit.held is not None and self._tables.stands[commit.held].mark != commit.operation_id
        return super().commit(replace(commit, held=None) if lapsed else commit)

    def help(self, help: Help) -> Outcome:
        self._lapse()
        return super().help(help)

    def mark(self, mark: Mark) -> Outcome:
        self._lapse()
        return super().mark(mark)


class _TombstoneDoesNothing(MemoryBackend):
    """ON CONFLICT DO NOTHING: an original whose id is forbidden writes everything but the operation's row."""

    def commit(self, commit: Commit) -> Outcome:
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

    def commit(self, commit: Commit) -> Outcome:
        left = [s for w in commit.writes if isinstance(w, Update) for s in self._tables.pending(w.id)]
        outcome = super().commit(commit)
        for intent in left if isinstance(outcome, Committed) else ():
            row = self._tables.row_of(intent.operation_id)
            if row is not None and row.action == "moved":
                self._tables.replace_step(row, intent)
        return outcome


class _ClearWithoutBump(MemoryBackend):
    """Whoever clears an expired mark leaves the scope version as it is."""

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        before = self._tables.stands.get(entity_id)
        cleared = super().clear(entity_id, operation_id)
        if cleared and before is not None:
            stand = self._tables.stands[entity_id]
            self._tables.stands[entity_id] = stand._replace(scope_version=before.scope_version)
        return cleared


class _HelpsTheWithdrawn(MemoryBackend):
    """Helping applies what it has read, whether it is still pending or not."""

    def help(self, help: Help) -> Outcome:
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

    def help(self, help: Help) -> Outcome:
        return super().help(replace(help, guards=()))


class _CommitsUnguarded(MemoryBackend):
    """A commit does not hold the ancestors."""

    def commit(self, commit: Commit) -> Outcome:
        return super().commit(replace(commit, guards=()))


class _ReadsNoErrors(MemoryBackend):
    """What an error rests on is not validated: whether there are children, and what was dropped."""

    def commit(self, commit: Commit) -> Outcome:
        return super().commit(replace(commit, reads=tuple(r for r in commit.reads if isinstance(r, Expect))))


class _OwnedByName(MemoryBackend):
    """An owned row is known by its name and version: one that was made again passes for the first."""

    def commit(self, commit: Commit) -> Outcome:
        writes = [replace(w, id=0) if isinstance(w, Put | Delete) else w for w in commit.writes]
        return super().commit(replace(commit, writes=tuple(writes)))


class _DroppedAreNoListing(MemoryBackend):
    """A listing of what was dropped is not validated."""

    def commit(self, commit: Commit) -> Outcome:
        reads = [r for r in commit.reads if not (isinstance(r, Listing) and r.state)]
        return super().commit(replace(commit, reads=tuple(reads)))


class _AnyThatWasDropped(MemoryBackend):
    """Whether it is still the newest of its name is not looked at when it is restored."""

    def commit(self, commit: Commit) -> Outcome:
        return super().commit(replace(commit, reads=tuple(r for r in commit.reads if not isinstance(r, Newest))))


class _NotEmptyAnyMore(MemoryBackend):
    """Whether there are children is not looked at again."""

    def commit(self, commit: Commit) -> Outcome:
        return super().commit(replace(commit, reads=tuple(r for r in commit.reads if not isinstance(r, Children))))


class _ClaimIsGivenUp(MemoryBackend):
    """A claim that writes nothing takes its tombstone away."""

    def commit(self, commit: Commit) -> Outcome:
        outcome = super().commit(commit)
        if commit.claim and isinstance(outcome, Committed) and not any(outcome.results):
            steps = self._tables.steps
            steps[:] = [s for s in steps if s.operation_id != commit.operation_id or s.seq is not None]
        return outcome


class _ForgetsByItsClock(MemoryBackend):
    """gc believes the database's clock, and what it has forgotten stays so when that is set back."""

    def forget(self, before: int) -> None:
        if before:
            drawn, day = self._tables.drawn, 86_400_000_000
            drawn["forgotten"] = max(drawn["forgotten"], self._clock.micros() - day)


# --- in the library


@contextmanager
def _trusts_transactions() -> Iterator[None]:
    """What a transaction returns counts as committed, whatever became of it."""
    with patch.object(Overlay, "origin", property(lambda self: self._base.origin)):
        yield


@contextmanager
def _trusts_strangers() -> Iterator[None]:
    """An entity is not asked which database it is of."""
    with patch.object(manager, "committed", _yes), patch("metastore.session.committed", _yes):
        yield


def _yes(*_: object) -> bool:
    return True


@contextmanager
def _two_instants() -> Iterator[None]:
    """What a second look refuses is an error, whether or not what the first one found is still there."""
    with patch.object(target, "check_standing", lambda *_: None):
        yield


@contextmanager
def _believes_the_clock() -> Iterator[None]:
    """Marks and turns last until their time, however far in the future that is."""

    def turn(stand: Stand, now: int) -> bool:
        return stand.mark is None and (stand.quiet_until or 0) > now

    def lapsed(stand: Stand, now: int) -> bool:
        return (stand.marked_until or 0) < now

    with patch.object(Stand, "others_turn", turn), patch.object(Stand, "lapsed", lapsed):
        yield


# --- in the process


class _Around:
    """A backend that passes everything on."""

    def __init__(self, inner: Backend) -> None:
        self._inner: Any = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _HelpInTwoSteps(_Around):
    def help(self, help: Help) -> Outcome:
        outcome: Outcome = self._inner.help_apply(help)
        if isinstance(outcome, Committed):
            self._inner.help_resolve(help)
        return outcome


class _ReadsBeforeItAnnounces(_Around):
    """The first snapshot that is helped with is older than the announcement."""

    _old: Pending | None = None

    def write_down(self, entry: Entry) -> Outcome:
        if entry.action == PENDING:
            self._old = self._inner.pending(entry.entity_id, None, 64)
        outcome: Outcome = self._inner.write_down(entry)
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

    def write_down(self, entry: Entry) -> Outcome:
        outcome: Outcome = self._inner.write_down(replace(entry, path=None))
        return outcome


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
    ),
    Mutant("intent without its path", "two alters, rename", "no order explains", wrap=_wrap(_ForgetsThePath)),
    Mutant("cancel of what is not pending", "hot alter, deadline", "no order explains", _CancelAnyway),
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
    Mutant("help of what is not pending", "hot alter, deadline", "no order explains", _HelpsTheWithdrawn),
    Mutant("gc that accepts old ids", "gc, replay", "applied again", _ForgetsNothing),
    Mutant("help without guards", "hot alter, rename of the parent", "verify", _HelpsUnguarded),
    Mutant("commit without guards", "rename, create below", "verify", _CommitsUnguarded),
    Mutant(
        "what a refused transaction returned is trusted",
        "a transaction's altered table, alter it | alter a",
        "no order explains",
        broken=_trusts_transactions,
    ),
    Mutant(
        "a refused transaction's schema is trusted as a parent",
        "a transaction's renamed schema, create in it | rename s",
        "verify",
        broken=_trusts_transactions,
    ),
    Mutant(
        "entities of another database are trusted",
        "alter it, of another database | alter a",
        "no order explains",
        broken=_trusts_strangers,
    ),
    Mutant(
        "a caught NotEmpty is no read",
        "drop if empty, noted | fill r, empty r",
        "no order explains",
        _NotEmptyAnyMore,
    ),
    Mutant(
        "a caught EntityNotFound of restore is no read",
        "restore t, noted | drop, create it again",
        "no order explains",
        _AnyThatWasDropped,
    ),
    Mutant(
        "what was dropped is listed and is no read",
        "list what was dropped, noted | drop, create it again",
        "no order explains",
        _DroppedAreNoListing,
    ),
    Mutant(
        "an absent name is no read",
        "load several, noted | create new, drop new",
        "no order explains",
        _ReadsNoErrors,
    ),
    Mutant(
        "owned rows without their id",
        "read the partition and drop it, noted | drop p0, create p0",
        "no order explains",
        _OwnedByName,
    ),
    Mutant("restore of any", "restore | create gone, drop gone", "no order explains", _AnyThatWasDropped),
    Mutant(
        "a claim that writes nothing is given up",
        "create one of several or return | create new, drop new; a lost answer",
        "no order explains",
        _ClaimIsGivenUp,
    ),
    Mutant(
        "marks from the future",
        "freeze | alter a; a crash, the clock is set back",
        "a later alter gets",
        broken=_believes_the_clock,
    ),
    Mutant(
        "turns from the future",
        "freeze | alter a; the clock is set back",
        "a later rename gets",
        broken=_believes_the_clock,
    ),
    Mutant(
        "gc forgets what is to come",
        "gc, alter; a clock that was ahead",
        "a later alter gets InvalidArgument",
        _ForgetsByItsClock,
    ),
    Mutant(
        "purge says what two instants say",
        "purge r | rename r, fill what was r",
        "no order explains",
        broken=_two_instants,
    ),
    Mutant(
        "create_many says what two instants say",
        "create several | rename s, create new in what was s",
        "no order explains",
        broken=_two_instants,
    ),
    Mutant(
        "what came to nothing is forgotten",
        "refused with an id twice, alter",
        "no order explains",
        forgets=("write_down",),
    ),
    Mutant(
        "a cancellation is forgotten",
        "hot alter, deadline, two in a row",
        "no order explains",
        forgets=("cancel",),
    ),
    Mutant(
        "a tombstone is forgotten",
        "a lost commit, deadline",
        "no order explains",
        forgets=("forbid",),
        most_faults=2,
    ),
)
