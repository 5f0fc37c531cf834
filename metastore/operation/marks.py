"""Marks of exclusive operations: set a mark, step aside for another's mark, clear a mark whose owner died.

A mark on a scope's guard makes all other commits there fail ("marked"), so that the owner's commit succeeds.
docs/progress.md has the protocol. Each operation, transaction and freeze has one :class:`OwnMark`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from metastore.errors import ScopeFrozen
from metastore.operation.tickets import give_way, running
from metastore.port.backend import Backend
from metastore.port.commit import Commit, Committed, Unknown
from metastore.port.conditions import ROOT_ID
from metastore.port.intents import Mark
from metastore.port.writes import Update
from metastore.retry.runner import Conflict

MARK_TTL = 1.0
"""How long a mark of a rename, move or drop holds others up if its owner has died, or if it arrived late (seconds)."""


@dataclass(frozen=True)
class InTheWay:
    """The reason to step aside: another operation's mark, or the others' turn after a mark (for ``quiet`` seconds)."""

    other: UUID | None
    quiet: float
    mine: tuple[int, ...]
    """The guards that carry the mark of the asking operation itself."""


def in_the_way(backend: Backend, ids: Sequence[int], operation_id: UUID) -> InTheWay:
    """Return the reason to step aside at the guards ``ids``; clear the expired marks of dead operations."""
    marked = backend.marked(ids)
    others = [one for one in marked if one.mark not in (None, operation_id)]
    for one in others:
        if one.seconds < 0 and one.mark is not None:
            backend.clear(one.id, one.mark)
    quiet = max((one.seconds for one in marked if one.mark is None), default=0.0)
    mine = tuple([one.id for one in marked if one.mark == operation_id])
    return InTheWay(others[0].mark if others else None, quiet, mine)


def waits_at(commit: Commit) -> int:
    """Return the entity where an exclusive operation waits for others: its exclusive guard's, if any, else its own.

    The root is never marked: a mark there would stop every writer.
    """
    barred = [guard.id for guard in commit.guards if guard.exclusive and guard.id != ROOT_ID]
    return (barred or [write.id for write in commit.writes if isinstance(write, Update)])[0]


class OwnMark:
    """The mark of one operation, and the operation that had the mark for which it stepped aside last."""

    def __init__(self, backend: Backend, operation_id: UUID, *, exclusive: bool = True) -> None:
        self._backend = backend
        self.id = operation_id
        self._exclusive = exclusive
        self.held: int | None = None
        """The guard that carries the mark, or may carry it, because an answer was lost."""
        self.other: UUID | None = None
        """The operation whose mark was in the way."""

    def put(self, entity_id: int, seconds: float = MARK_TTL) -> None:
        """Mark a scope, unless another operation's mark is there, or the others have their turn."""
        before, self.held = self.held, entity_id  # set before the call: after an interrupt, the mark may exist
        outcome = self._backend.mark(Mark(self.id, entity_id, seconds))
        if not isinstance(outcome, Committed | Unknown):
            self.held = before

    def remove(self) -> None:
        """Remove the mark, if it is set. If removal fails, others clear the mark when it has expired."""
        held, self.held = self.held, None
        if held is not None:
            self._backend.unmark(held, self.id)

    def is_gone(self) -> bool:
        """Return whether the mark that the commit required is gone. Forget a mark that is gone."""
        if self.held is None or self.held in in_the_way(self._backend, [self.held], self.id).mine:
            return False
        self.held = None
        return True

    def step_aside(self, ids: Sequence[int], *, keep: bool = False, cause: str = "marked") -> Conflict:
        """Return the conflict with the mark at the guards ``ids``. If the mark is gone, the conflict has ``cause``.

        The operation removes its own mark first, because the other operation may have to pass it. With ``keep`` it
        keeps its mark, which a freeze needs for its commit.
        """
        marks = in_the_way(self._backend, ids, self.id)
        self.other = marks.other or self.other
        there = self.held in marks.mine
        if not there or (marks.other is not None and not keep):
            held, self.held = self.held, None
            # an earlier mark may have landed late, and be set too
            for entity_id in {*marks.mine, *(() if held is None else (held,))}:
                self._backend.unmark(entity_id, self.id)
        if marks.other is not None:
            around = running.get()
            unbarred = around is not None and around.unbar(marks.other)
            if not unbarred:
                give_way(self._backend)
            wait = 0.0 if unbarred else None
            return Conflict("marked", f"operation {marks.other} has the scope for itself", wait)
        if marks.quiet and self._exclusive:
            return Conflict("marked", "others have their turn after an exclusive operation", marks.quiet)
        return Conflict(cause, "changed meanwhile")

    def blame(self, error: Exception) -> Exception:
        """Return ScopeFrozen for a call that timed out while it waited for another's mark; otherwise ``error``."""
        if self.other is None:
            return error
        return ScopeFrozen(self.other, f"operation {self.other} is in the way: {error}")
