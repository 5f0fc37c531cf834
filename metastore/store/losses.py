"""Who lost to whom: the newest attempts of this process that lost, each with the change that came first.

A process notes its losses in memory, with what it knows at that moment: who lost, on which entity, expecting which
version. Who won is in the entity's history, and is read when somebody asks.
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
"""The causes of which the next version of the entity tells who won."""
_MOVES: Final = frozenset({"rename", "move", "drop", "restore"})
"""What another operation did above an entity that lost to its ancestor."""
_SHORTLY: Final = 60_000_000
"""For how long before a loss a move may be what it lost to (µs): an attempt lasts no longer, as a rule."""


@dataclass(frozen=True)
class Loss:
    """An attempt of this process that lost, and was tried again or failed."""

    time: datetime
    """When it lost, by this machine's clock."""
    verb: str
    """What it did: ``alter``, ``transaction``."""
    cause: str
    """What it lost to; docs/metrics.md has all causes."""
    principal: str | None
    """Who lost."""
    entity_id: int | None
    """On which entity; None: not known."""
    kind: str | None
    """The entity's kind; None: not known, or it was purged."""
    path: str | None
    """The entity's path now; None: as the kind."""
    won_by: str | None
    """Whose change came first; None: nobody named, or not known."""
    won_operation: UUID | None
    """The operation that came first; None: not known."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
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
        # only what lost to something above needs its own time; the rest is the same question
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
    """Return the step that came first; None: no history tells it."""
    if row is None or lost.entity_id is None:
        return None
    if lost.cause in _BY_VERSION and lost.expected is not None:
        steps = session.backend.history(lost.entity_id, lost.expected, 1)
        return steps[0] if steps and steps[0].version == lost.expected + 1 else None
    if lost.cause == "ancestor":
        return _newest_move(session, [node.id for node in row.record.chain], lost.time)
    return None


def _newest_move(session: Session, ids: Sequence[int], before: int) -> Step | None:
    """Return the last step that moved one of these, if it was shortly before a time; clocks may differ a little."""
    rows = [row for row in session.backend.by_id(ids) if row is not None]
    newest = [session.backend.history(row.record.chain[-1].id, row.record.version - 1, 1) for row in rows]
    moves = [step for steps in newest for step in steps if step.action in _MOVES]
    return max(
        (step for step in moves if before - _SHORTLY <= step.time <= before), key=lambda step: step.time, default=None
    )
