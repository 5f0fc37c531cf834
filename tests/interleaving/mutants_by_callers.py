"""Faults that only programs that use results and errors can find, planted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.memory.tables import Stand
from metastore.managers import mutation, target
from metastore.port.commit import Commit, CommitOutcome, Committed
from metastore.port.conditions import Children, Expect, Listing, Newest
from metastore.port.writes import Delete, Put
from metastore.transaction.overlay import Overlay
from tests.interleaving.mutant import Mutant

__all__ = ["BY_CALLERS"]

# --- in the database


class _ValidatesRowsOnly(MemoryBackend):
    """Rows that were read are validated, and nothing else: no name, no listing."""

    def commit(self, commit: Commit) -> CommitOutcome:
        return super().commit(replace(commit, reads=tuple(r for r in commit.reads if isinstance(r, Expect))))


class _OwnedByName(MemoryBackend):
    """An owned row is known by its name and version: one that was made again passes for the first."""

    def commit(self, commit: Commit) -> CommitOutcome:
        writes = [replace(w, id=0) if isinstance(w, Put | Delete) else w for w in commit.writes]
        return super().commit(replace(commit, writes=tuple(writes)))


class _DroppedAreNoListing(MemoryBackend):
    """A listing of what was dropped is not validated."""

    def commit(self, commit: Commit) -> CommitOutcome:
        reads = [r for r in commit.reads if not (isinstance(r, Listing) and r.state)]
        return super().commit(replace(commit, reads=tuple(reads)))


class _AnyThatWasDropped(MemoryBackend):
    """Whether it is still the newest of its name is not looked at when it is restored."""

    def commit(self, commit: Commit) -> CommitOutcome:
        return super().commit(replace(commit, reads=tuple(r for r in commit.reads if not isinstance(r, Newest))))


class _NotEmptyAnyMore(MemoryBackend):
    """Whether there are children is not looked at again."""

    def commit(self, commit: Commit) -> CommitOutcome:
        return super().commit(replace(commit, reads=tuple(r for r in commit.reads if not isinstance(r, Children))))


class _ClaimIsGivenUp(MemoryBackend):
    """A claim that writes nothing takes its tombstone away."""

    def commit(self, commit: Commit) -> CommitOutcome:
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
    with patch.object(mutation, "committed", _yes), patch("metastore.operation.request.committed", _yes):
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


BY_CALLERS: tuple[Mutant, ...] = (
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
        "a caught NotEmpty is not a read",
        "drop if empty, noted | fill r, empty r",
        "no order explains",
        _NotEmptyAnyMore,
    ),
    Mutant(
        "a caught EntityNotFound of restore is not a read",
        "restore t, noted | drop, create it again",
        "no order explains",
        _AnyThatWasDropped,
    ),
    Mutant(
        "what was dropped is listed and is not a read",
        "list what was dropped, noted | drop, create it again",
        "no order explains",
        _DroppedAreNoListing,
    ),
    Mutant(
        "an absent name is not a read",
        "load several, noted | create new, drop new",
        "no order explains",
        _ValidatesRowsOnly,
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
        "a later alter gets OperationIdRefused",
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
        slow=True,
    ),
    Mutant(
        "a tombstone is forgotten",
        "a lost commit, deadline",
        "no order explains",
        forgets=("forbid",),
        most_faults=2,
    ),
)
