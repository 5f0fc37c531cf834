"""The newest attempts of this process that lost a conflict, each with the change that won.

A process notes its losses in memory, with what it knows at that moment: who lost, on which entity, and the expected
version. The winner is in the entity's history, which is read when a caller asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from metastore.arguments import positive_integer
from metastore.kinds.entity import utc
from metastore.names import format_path
from metastore.operation.session import Session
from metastore.plain import plain
from metastore.port.records import Known, Step
from metastore.port.stats import Lost

__all__ = ["Loss", "losses"]

_BY_VERSION: Final = frozenset({"self", "read", "pending"})
"""The causes for which the entity's next version shows the winner."""
_MOVES: Final = frozenset({"rename", "move", "drop", "restore"})
"""The actions on an ancestor that can make an operation on an entity lose."""
_SHORTLY: Final = 60_000_000
"""How long before a loss the move may have happened that caused it (µs): an attempt rarely lasts longer."""


@dataclass(frozen=True)
class Loss:
    """An attempt of this process that lost a conflict, and was repeated or failed."""

    time: datetime
    """The time of the loss, by this machine's clock."""
    verb: str
    """The kind of call: ``alter``, ``transaction``."""
    cause: str
    """The cause of the conflict; docs/metrics.md has all causes."""
    principal: str | None
    """The principal of the attempt that lost."""
    entity_id: int | None
    """The entity of the conflict; None: not known."""
    kind: str | None
    """The entity's kind; None: not known, or it was purged."""
    path: str | None
    """The entity's present path; None: not known, or it was purged."""
    won_by: str | None
    """The principal of the change that won; None: it named no principal, or is not known."""
    won_operation: UUID | None
    """The operation that won; None: not known."""

    def to_dict(self) -> dict[str, Any]:
        """Return the loss as plain JSON values."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def losses(session: Session, limit: int) -> list[Loss]:
    """Return the newest losses of this process, the newest first; see :meth:`metastore.Store.losses`."""
    noted = session.metrics.losses()[: positive_integer(limit, "a limit")]
    ids = list(dict.fromkeys(one.entity_id for one in noted if one.entity_id is not None))
    known = dict(zip(ids, session.backend.by_id(ids) if ids else [], strict=True))
    winners = dict[object, Step | None]()
    found = list[Loss]()
    for one in noted:
        row, same = known.get(one.entity_id or 0), one._replace(verb="", principal=None)
        # only for a loss to an ancestor the time matters; other equal losses have the same winner
        asked = same if one.cause == "ancestor" else same._replace(time=0)
        if asked not in winners:
            winners[asked] = _winner(session, one, row)
        won = winners[asked]
        chain = () if row is None else row.record.chain
        found.append(
            Loss(
                utc(one.time),
                one.verb,
                one.cause,
                one.principal,
                one.entity_id,
                chain[-1].kind if chain else None,
                format_path([node.name for node in chain]) if chain else None,
                None if won is None else won.principal,
                None if won is None else won.operation_id,
            )
        )
    return found


def _winner(session: Session, lost: Lost, row: Known | None) -> Step | None:
    """Return the step that won; None: no history shows it."""
    if row is None or lost.entity_id is None:
        return None
    if lost.cause in _BY_VERSION and lost.expected is not None:
        steps = session.backend.history(lost.entity_id, lost.expected, 1)
        return steps[0] if steps and steps[0].version == lost.expected + 1 else None
    if lost.cause == "ancestor":
        return _newest_move(session, [node.id for node in row.record.chain], lost.time)
    return None


def _newest_move(session: Session, ids: Sequence[int], before: int) -> Step | None:
    """Return the last step that moved one of these entities shortly before a time, if there is one."""
    rows = [row for row in session.backend.by_id(ids) if row is not None]
    newest = [session.backend.history(row.record.chain[-1].id, row.record.version - 1, 1) for row in rows]
    moves = [step for steps in newest for step in steps if step.action in _MOVES]
    return max(
        (step for step in moves if before - _SHORTLY <= step.time <= before), key=lambda step: step.time, default=None
    )
