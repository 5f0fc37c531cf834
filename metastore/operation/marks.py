"""What operations and transactions have in common when something stands in their way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from metastore.errors import BackendRefused, BackendUnavailable, DeadlineExceeded, InvalidArgument, OutcomeUnknown
from metastore.operation.helping import BATCH, Batch, plan
from metastore.operation.session import Session
from metastore.port.backend import Backend
from metastore.port.commit import Committed

__all__ = ["LATE", "MARK_TTL", "InTheWay", "ask_until_it_answers", "help_others", "in_the_way"]

MARK_TTL = 1.0
"""How long a mark of a rename, move or drop holds others up if its owner has died, or if it landed late (seconds)."""
LATE = 1.0
"""How long after its deadline a call may still ask what became of it (seconds)."""


def ask_until_it_answers(session: Session, operation_id: UUID, life: float, ends: float) -> int | None:
    """After a lost answer: return under which number the operation may be sent again, or None if it is decided.

    What was sent before can not be applied any more then. ``life``: how long the call lasts at most (seconds). Raises
    OutcomeUnknown at the instant ``ends``, or if gc may have deleted what was written down in that time.
    """
    clock, wait = session.clock, session.policy.base
    while True:
        try:
            claim = session.backend.forbid(operation_id, life + LATE)
        except OutcomeUnknown:  # gc may have deleted the row
            session.metrics.ambiguous("unknown")
            raise
        except (InvalidArgument, BackendRefused):  # the store was closed meanwhile, or a right was revoked
            session.metrics.ambiguous("unknown")
            raise OutcomeUnknown(operation_id) from None
        except (BackendUnavailable, DeadlineExceeded):
            if clock.monotonic() + wait > ends:
                session.metrics.ambiguous("unknown")
                raise OutcomeUnknown(operation_id) from None
        else:
            session.metrics.ambiguous("applied" if claim is None else "not_applied")
            return claim
        clock.sleep(clock.uniform(0.0, wait))
        wait = min(wait * 2, session.policy.cap)


@dataclass(frozen=True)
class InTheWay:
    """What makes a commit step aside: another operation's mark, or the others' turn after one (``quiet`` seconds)."""

    other: UUID | None
    quiet: float
    mine: tuple[int, ...]
    """Where the asking operation's own mark is."""


def in_the_way(backend: Backend, ids: Sequence[int], operation_id: UUID) -> InTheWay:
    """Look at the guards ``ids``; what a dead operation left behind is cleared away."""
    found = backend.marked(ids)
    others = [one for one in found if one.mark not in (None, operation_id)]
    for one in others:
        if one.seconds < 0 and one.mark is not None:
            backend.clear(one.id, one.mark)
    quiet = max((one.seconds for one in found if one.mark is None), default=0.0)
    mine = tuple([one.id for one in found if one.mark == operation_id])
    return InTheWay(others[0].mark if others else None, quiet, mine)


def help_others(session: Session, entity_id: int) -> bool:
    """Apply what is pending on an entity, for a commit that cannot bring it along.

    False: what is left there is not understood by this program, and must not hold it up.
    """
    batch = Batch()
    while True:
        seen = session.backend.pending(entity_id, None, BATCH)
        if not seen.intents or seen.known is None or not seen.known.live:
            return True
        planned = plan(seen, None, batch)
        if planned is None:
            return False
        try:
            outcome = session.backend.help(planned.help)
        except InvalidArgument:  # the database refuses one of them: which?
            batch.refused(planned.help)
            continue
        if isinstance(outcome, Committed):
            session.metrics.batch(len(planned.help.resolutions))
        return True
