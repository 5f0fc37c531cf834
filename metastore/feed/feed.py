"""The change feed: every committed change once. A replay in the feed's order reproduces the tables.

A position is opaque and ordered. It has three parts: an epoch, which a restored copy of a database does not share; the
number that the commit drew after its last lock; a random part of the operation's id. The last part shows a reader that
a backup was restored in place: then the change at the position is missing, or another operation made it.

A fail-over begins another timeline, whose number is in the epoch. The fail-over may have lost changes. A position of
another timeline is valid if its change is there, and if no change before it can be lost. Commits reach a replica in the
order of the log, which may differ from the order of positions. So a gap shortly before the position makes it invalid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, cast
from uuid import UUID

from metastore.arguments import positive_integer, shown
from metastore.clock import Clock
from metastore.deadlines import check_time
from metastore.errors import HistoryGone, InvalidArgument
from metastore.feed.visible import Passed, Sight
from metastore.kinds.entity import Change
from metastore.managers.history import change_of
from metastore.names import exact_text
from metastore.port.backend import Backend
from metastore.port.feed import Feed, database_of
from metastore.port.records import Origin, Step
from metastore.port.unreadable import Unreadable, check_unreadable, kept

__all__ = [
    "changes",
    "check_drawn",
    "check_kept",
    "check_position",
    "has_change",
    "newest_up_to",
    "number_in",
    "order_of",
    "position_at",
    "position_of",
    "read",
    "steps_between",
]

_PAGE = 500
_LONGEST: Final = 8000
"""The largest number of changes of a page. If few changes of a page are shown, the next page is twice as long, and is
read without texts, which may have a megabyte each. So hidden changes take few statements and little memory.
"""

_RARE: Final = 16
"""A page shows few changes if it shows less than one in this many."""

_PATIENCE = 1.0
"""How long the feed waits for a commit in flight that has a lower position than a visible one (seconds)."""

_PAUSE = 0.005
"""How often the feed checks whether a commit in flight has ended (seconds)."""

_NUMBER, _MARK = 16, 8
"""How many hexadecimal digits of a position are for its number, and for the operation."""
_MARKED = (1 << 4 * _MARK) - 1
_DIGITS = re.compile(f"[0-9a-f]{{{_NUMBER}}}([0-9a-f]{{{_MARK}}})?")


def position_of(epoch: str, seq: int, operation_id: UUID | None = None) -> str:
    """Return the position of a number in an epoch. Without an operation, it need not be the position of a change."""
    return f"{epoch}-{seq:016x}{_mark(operation_id)}"


def position_at(backend: Feed, seq: int) -> str:
    """Return the position of a number in this database, with the mark of its change if gc has kept the change."""
    return position_of(backend.feed_start()[0], seq, backend.event_at(seq)[0])


def newest_up_to(backend: Backend, seq: int) -> str:
    """Return the position of the newest change up to a number: a number alone means nothing on another timeline."""
    epoch, step = backend.feed_start()[0], backend.past.newest(seq)
    return position_of(epoch, 0) if step is None else position_of(epoch, step.seq or 0, step.operation_id)


def number_in(backend: Backend, position: str) -> int:
    """Return the number in a position. Raises InvalidArgument if it is of another database, or was lost.

    Raises HistoryGone if another server has taken over, and may lack changes up to the position.
    """
    while True:
        origin = backend.origin
        epoch, collected = backend.feed_start()
        seq, mark = _parse(position, epoch)
        if mark or not position.startswith(f"{epoch}-"):
            _check_there(backend, position, seq, mark, epoch, collected)
        if backend.origin.run == origin.run:  # otherwise the answers may come from different servers
            return seq


def check_position(position: object, epoch: str) -> None:
    """Raise InvalidArgument if ``position`` is not a position of this epoch."""
    _parse(position, epoch)


def _mark(operation_id: UUID | None) -> str:
    return "" if operation_id is None else f"{operation_id.int & _MARKED:0{_MARK}x}"


def order_of(position: object) -> int:
    """Return the number in a position, which orders positions across fail-overs, too. Raises InvalidArgument.

    The texts of positions do not: they begin with the timeline.
    """
    return _parts(position)[1]


def _parts(position: object) -> tuple[str, int, str]:
    """Return the epoch and the number of a position, and its part of the operation's id; "" if it has none."""
    if not isinstance(position, str):
        raise InvalidArgument(f"a position is a string that the feed gave, not {shown(position)}")
    position = exact_text(position, "a position")
    of_epoch, _, digits = position.rpartition("-")
    if not _DIGITS.fullmatch(digits) or (number := int(digits[:_NUMBER], 16)) >= 1 << 63:
        raise InvalidArgument(f"{shown(position)} is not a position of a change feed; each change has one")
    return of_epoch, number, digits[_NUMBER:]


def _parse(position: object, epoch: str) -> tuple[int, str]:
    """Return the number and the mark of a position of this database."""
    of_epoch, number, mark = _parts(position)
    if database_of(of_epoch) != database_of(epoch):
        raise InvalidArgument(
            f"the position {shown(position)} is of another database, or of this one before it was restored; "
            "read the tables again, then follow the feed from its start"
        )
    return number, mark


def changes(
    backend: Backend,
    clock: Clock,
    after: str | None,
    limit: int | None,
    unreadable: Unreadable | None = None,
    sight: Sight | None = None,
) -> Iterator[Change]:
    """Yield the changes after a position, oldest first, up to the last decided one.

    ``sight``: which changes are shown; None: all. Raises the errors of :func:`read`.
    """
    found = read(backend, clock, after, limit, unreadable, sight)
    return cast(Iterator[Change], found) if sight is None else (one for one in found if isinstance(one, Change))


def read(
    backend: Backend,
    clock: Clock,
    after: str | None,
    limit: int | None,
    unreadable: Unreadable | None = None,
    sight: Sight | None = None,
) -> Iterator[Change | Passed]:
    """Yield the same as ``changes`` and, with a ``sight``, how far the feed was read beyond the shown changes.

    A reader that continues from there does not read hidden changes again, and does not fall behind when gc removes
    them. Raises InvalidArgument for a position of another database, or one that was lost when a backup was put back;
    HistoryGone if gc has removed changes after the position, before the call or between two of its pages.
    """
    check_unreadable(unreadable)
    if limit is not None:
        limit = positive_integer(limit, "a limit", least=0)
    found = _follow(backend, clock, after, _begun(backend, after), limit, unreadable, sight)
    return found if limit is None else _first(found, limit)


def _first(found: Iterator[Change | Passed], left: int) -> Iterator[Change | Passed]:
    """Yield the first changes, up to a number. Rows that are left out do not count."""
    while left > 0 and (one := next(found, None)) is not None:
        yield one
        left -= isinstance(one, Change)


class _Start(NamedTuple):
    """The start of a read of the feed."""

    epoch: str
    seq: int
    collected: int
    origin: Origin
    """The server and database that these values come from."""


def _begun(backend: Backend, after: str | None) -> _Start:
    """Return the start of a read after a position. Raises InvalidArgument, HistoryGone."""
    while True:
        origin = backend.origin
        epoch, collected = backend.feed_start()
        seq, mark = (0, "") if after is None else _parse(after, epoch)
        if after is not None:
            if mark or not after.startswith(f"{epoch}-"):
                collected = _check_there(backend, after, seq, mark, epoch, collected)
            else:
                check_drawn(backend, after, seq)
            _check_collected(epoch, collected, seq)
        if backend.origin.run == origin.run:  # otherwise the answers may come from different servers
            return _Start(epoch, seq, collected, origin)


def _check_there(backend: Feed, position: str, seq: int, mark: str, epoch: str, collected: int) -> int:
    """Refuse a position if its change is missing, or if it is of another timeline and an earlier change may be missing.

    A position of another timeline without a mark says nothing about its change; it is refused unless gc has removed the
    changes up to it, or this is a replica. Return the number up to which gc has removed changes by now.
    """
    if position.startswith(f"{epoch}-"):
        return _check_restored(backend, position, seq, mark, collected)
    with suppress(InvalidArgument):
        collected = _check_restored(backend, position, seq, mark, collected) if mark else collected
        # on a replica, it matters only how far the replica is
        if seq <= collected or (backend.unbroken(seq) if mark else backend.event_at(seq)[1]):
            return collected
    raise HistoryGone(
        position_of(epoch, collected),
        f"another server has taken over, and may lack changes up to the position {position}; "
        "read the tables again, then follow the feed from its start",
    )


def _follow(
    backend: Backend,
    clock: Clock,
    after: str | None,
    start: _Start,
    limit: int | None,
    unreadable: Unreadable | None,
    sight: Sight | None,
) -> Iterator[Change | Passed]:
    epoch, seq, collected, origin = start
    patience = clock.monotonic() + _PATIENCE
    # with a sight, read full pages: hidden changes do not count towards the limit
    least = _PAGE if sight is not None or limit is None else min(_PAGE, limit)
    size, ahead = least, False
    while True:
        page = backend.feed(seq, size, docs=not ahead, changes=not ahead)
        # another server has answered, which may lack changes that were read: begin again
        if backend.origin.run != origin.run:
            epoch, seq, collected, origin = _begun(backend, after)
            continue
        _check_whole(backend, page.rows, seq, epoch, collected)
        rows = page.rows if sight is None else sight.shown(page.rows)
        for step in _with_texts(backend, rows, seq) if ahead else rows:
            seq = step.seq or seq
            position = f"{epoch}-{seq:016x}{step.operation_id.int & _MARKED:08x}"  # position_of, without a call
            made = partial(change_of, step, position, origin)
            if change := made() if unreadable is None else kept(made, unreadable):
                yield change
        if page.rows:
            last = page.rows[-1]
            seq = last.seq or seq
            after = position_of(epoch, seq, last.operation_id)
            if sight is not None:
                yield Passed(after, len(page.rows) - len(rows))
            patience = clock.monotonic() + _PATIENCE
        if page.held and len(page.rows) < size:
            return
        ahead = len(rows) * _RARE < len(page.rows)
        size = min(2 * size, _LONGEST) if ahead else least
        if page.held:
            check_time(clock)
        elif clock.monotonic() > patience:
            return
        else:
            clock.sleep(_PAUSE)


def _with_texts(backend: Backend, rows: Sequence[Step], after: int) -> Iterator[Step]:
    """Read steps again with their texts, and yield them. Raises HistoryGone if gc has removed some since."""
    for start in range(0, len(rows), _PAGE):  # in pieces, because a user may see all of a long page
        some = rows[start : start + _PAGE]
        whole = backend.steps_at([step.seq or 0 for step in some])
        if len(whole) < len(some):  # a purge, unlike gc, may remove steps without HistoryGone
            check_kept(backend, after)
        yield from whole
        after = some[-1].seq or after


def steps_between(
    backend: Backend, clock: Clock, low: int, high: int, *, together: bool = True, docs: bool = True
) -> Iterator[Step]:
    """Yield the steps that the past shows at the position ``high`` but not at ``low``, in the feed's order.

    A commit of several rows counts from its last position on, so its first rows may have positions up to ``low``.
    Without ``together``, each row counts at its own position. ``docs``: see :meth:`metastore.port.feed.Feed.feed`.
    Raises HistoryGone if gc has removed a step after ``low``. The newest step always stays, so a gap shows it.
    """
    seq, begun = low, set[UUID]()
    while seq < high:
        page = backend.feed(seq, _PAGE, docs=docs)
        if _has_gap(page.rows, seq):  # a failed commit or gc left the gap; the feed's start shows which of them
            check_kept(backend, low)
        for step in page.rows:
            seq = step.seq or seq
            if seq > high:
                return
            if step.through is None or not together:
                yield step
            elif step.through <= high and step.operation_id not in begun:
                begun.add(step.operation_id)
                yield from backend.steps(step.operation_id)
        if page.held and len(page.rows) < _PAGE:
            return
        check_time(clock)
        if not page.held:
            clock.sleep(_PAUSE)


def check_kept(backend: Feed, seq: int) -> None:
    """Raise HistoryGone if gc has removed a change after a position."""
    epoch, collected = backend.feed_start()
    _check_collected(epoch, collected, seq)


def _has_gap(rows: list[Step], after: int) -> bool:
    return bool(rows) and rows[-1].seq != after + len(rows)


def _check_whole(backend: Feed, rows: list[Step], after: int, epoch: str, collected: int) -> None:
    """Raise HistoryGone if gc has removed changes since a read began, perhaps between two of its pages."""
    if _has_gap(rows, after) and (gone := backend.feed_start()[1]) > collected:
        _check_collected(epoch, gone, after)


def _check_collected(epoch: str, collected: int, seq: int) -> None:
    if collected > seq:
        raise HistoryGone(
            position_of(epoch, collected),
            f"gc has removed changes after the position {position_of(epoch, seq)}; "
            "read the tables again, then follow the feed from its start",
        )


def check_drawn(backend: Feed, position: str, seq: int) -> None:
    """Refuse a position ahead of the feed. A replica may be behind a position that its primary gave."""
    if seq > backend.watermark().position and not backend.event_at(seq)[1]:
        raise InvalidArgument(
            f"the position {position} is ahead of the feed; this database never gave it, or lost the changes before it"
        )


def has_change(backend: Feed, seq: int, operation_id: UUID | None) -> bool:
    """Return whether the change at a position is of this operation, or was removed by gc."""
    return backend.event_at(seq)[0] == operation_id or seq <= backend.feed_start()[1]


def _check_restored(backend: Feed, position: str, seq: int, mark: str, collected: int) -> int:
    """Refuse a position whose change is missing, unless gc removed it. Return the number up to which gc has removed."""
    operation_id, replica = backend.event_at(seq)
    if operation_id is None and seq > collected:  # gc may have removed it since ``collected`` was read
        collected = backend.feed_start()[1]
    gone_rightly = replica or seq <= collected
    if (gone_rightly and operation_id is None) or _mark(operation_id) == mark:
        return collected
    raise InvalidArgument(
        f"the change at the position {position} is not in this database: it was restored from an older backup; "
        "read the tables again, then follow the feed from its start"
    )
