"""The change feed: every committed change once, in an order in which replaying it gives the tables.

A position is opaque and ordered: an epoch, which a restored copy of a database does not share,
and the number that the commit drew after its last lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from metastore.arguments import positive_integer, shown
from metastore.backends.port import Backend, Step
from metastore.clock import Clock
from metastore.entity import Change
from metastore.errors import InvalidArgument
from metastore.managers.past import change_of

__all__ = ["changes", "position_of"]

_PAGE = 500
_PATIENCE = 1.0
"""How long is waited for a commit in flight below one that is visible, in seconds."""


def position_of(epoch: str, seq: int) -> str:
    """Return the position of a number in an epoch."""
    return f"{epoch}-{seq:016x}"


def _parse(position: object, epoch: str) -> int:
    if not isinstance(position, str):
        raise InvalidArgument(f"a position is a string that the feed gave, not {shown(position)}")
    found, dash, seq = position.rpartition("-")
    try:
        number = int(seq, 16)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise InvalidArgument(f"{shown(position)} is not a position of a change feed")
    if not dash or found != epoch:
        raise InvalidArgument(
            f"the position {position!r} is of another database, or of one before it was restored; "
            "read the tables again, then follow the feed from its start"
        )
    return number


def changes(backend: Backend, clock: Clock, after: str | None, limit: int | None) -> Iterator[Change]:
    """Yield the changes after a position, oldest first; it ends with the last one that is decided.

    Raises InvalidArgument for a position of another database, or one after which gc has removed
    changes.
    """
    if limit is not None:
        positive_integer(limit, "a limit", least=0)
    epoch, collected = backend.feed_start()
    seq = 0 if after is None else _parse(after, epoch)
    if after is not None:
        _check_collected(epoch, collected, seq)
    return _follow(backend, clock, epoch, seq, after is None, limit)


def _follow(
    backend: Backend, clock: Clock, epoch: str, seq: int, from_start: bool, limit: int | None
) -> Iterator[Change]:
    left = limit
    patience = clock.monotonic() + _PATIENCE
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        page = backend.feed(seq, size)
        if not from_start and _has_gap(page.rows, seq):
            _check_collected(epoch, backend.feed_start()[1], seq)
        for step in page.rows:
            seq = step.seq or seq
            yield change_of(step, position_of(epoch, seq), backend.origin)
        if page.rows:
            left = None if left is None else left - len(page.rows)
            patience = clock.monotonic() + _PATIENCE
        if page.held and len(page.rows) < size:
            return
        if not page.held:
            if clock.monotonic() > patience:
                return
            clock.sleep(0.005)


def _has_gap(rows: list[Step], after: int) -> bool:
    return bool(rows) and rows[-1].seq != after + len(rows)


def _check_collected(epoch: str, collected: int, seq: int) -> None:
    if collected > seq:
        raise InvalidArgument(
            f"gc has removed changes after the position {position_of(epoch, seq)}; "
            "read the tables again, then follow the feed from its start"
        )
