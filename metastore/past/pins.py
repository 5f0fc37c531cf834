"""Pins: named positions whose past gc keeps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from metastore.arguments import positive_seconds
from metastore.errors import EntityAlreadyExists
from metastore.feed.feed import position_at, position_of
from metastore.feed.position import check_whole, gone, last
from metastore.kinds.entity import utc
from metastore.names import clean_name
from metastore.operation.session import Session
from metastore.plain import plain
from metastore.port.past import NotKept, PinRow

__all__ = ["Pin", "add_pin", "all_pins"]


@dataclass(frozen=True)
class Pin:
    """A named position. gc keeps the past at it until the pin is removed, or expires."""

    name: str
    position: str
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    """None: the pin stays until it is removed."""

    def to_dict(self) -> dict[str, Any]:
        """Return the pin as plain JSON values."""
        return {name: plain(value) for name, value in vars(self).items()}


def add_pin(session: Session, name: str, at: int | None, seconds: float | None) -> Pin:
    """Pin a position (None: the newest). Raises EntityAlreadyExists if the name is taken, HistoryGone."""
    check_whole(session)
    name = clean_name(name)
    if seconds is not None:
        seconds = positive_seconds(seconds, "the time after which a pin expires")
    seq = last(session) if at is None else at
    position = position_at(session.backend, seq)  # before the pin is made, because this call may fail
    try:
        row = session.backend.readers.pin(name, seq, session.principal, seconds)
    except NotKept as kept:
        raise gone(session, kept) from None
    if row is None:
        raise EntityAlreadyExists(name, f"there is a pin {name} already; unpin it first, or take another name")
    return _pin(row, position)


def all_pins(session: Session) -> list[Pin]:
    """Return all pins, by name."""
    check_whole(session)
    epoch, _ = session.backend.feed_start()
    return [_pin(row, position_of(epoch, row.seq, row.operation_id)) for row in session.backend.readers.pins()]


def _pin(row: PinRow, position: str) -> Pin:
    expires = None if row.expires_at is None else utc(row.expires_at)
    return Pin(row.name, position, row.principal, utc(row.created_at), expires)
