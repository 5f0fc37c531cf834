"""Positions: the present one, and the one that belongs to a time.

``position()`` is decided: a missing number up to it stays missing. And no change whose call has returned has a later
position. A time means the position before the first change, in the feed's order, with a later time stamp. Time stamps
are not monotone in this order, because clocks are read before positions are drawn, and may be set back. So a bisection
finds one change with a later stamp, and a walk backwards then looks for earlier ones.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from metastore.arguments import positive_integer, shown
from metastore.errors import DeadlineExceeded, HistoryGone, InvalidArgument
from metastore.feed.feed import newest_up_to, number_in, position_of
from metastore.operation.session import Session
from metastore.port.past import NotKept, PastRows
from metastore.port.records import Step

__all__ = ["check_whole", "earlier", "gone", "last", "newest", "now", "position_before", "position_in"]

_WALK = 1000
"""How many changes before the found one are checked at a time, until none of them has a later stamp."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOKS = 0.005
"""How often a reader checks whether the commits in flight have ended (seconds)."""


def now(session: Session) -> int:
    """Return the last drawn position, once all positions up to it are decided.

    Raises DeadlineExceeded; InvalidArgument for a user's view, which has no past.
    """
    check_whole(session)
    backend, clock = session.backend, session.clock
    mark = backend.watermark()
    ends = clock.monotonic() + session.policy.deadline
    while not backend.decided(mark):
        if clock.monotonic() > ends:
            raise DeadlineExceeded(
                "an open write transaction in the database's cluster is older than the newest change, so the position "
                "cannot be determined yet; end that transaction, or call again with a longer deadline"
            )
        clock.sleep(_LOOKS)
    return mark.position


def check_whole(session: Session) -> None:
    """Raise InvalidArgument for a user's view."""
    if session.access is not None:
        raise InvalidArgument(
            "a user's view has no past, pins, consumers or replicas: the store knows only the present rights; use "
            "the store that made the view"
        )


def newest(session: Session) -> str:
    """Return the position of the newest change."""
    return newest_up_to(session.backend, now(session))


def earlier(session: Session, back: int, before: str | None) -> str:
    """Return the position of the newest change that is at least ``back`` numbers before another position.

    If gc has removed that change, return the position after which all changes are kept. The call does not wait, so
    changes before the result may still be undecided. Raises InvalidArgument, HistoryGone.
    """
    check_whole(session)
    back, backend = positive_integer(back, "back", least=0), session.backend
    newest_number = backend.watermark().position
    number = newest_number if before is None else min(newest_number, number_in(backend, before))
    epoch, collected = backend.feed_start()
    step = backend.past.newest(number - back) if number - back > collected else None
    if step is None or (step.seq or 0) <= collected:
        return position_of(epoch, collected)
    # the position of an existing change: after a crash or a fail-over, another change may get a number without a change
    return position_of(epoch, step.seq or 0, step.operation_id)


def last(session: Session) -> int:
    """Return the number of the newest change, whose position is ``newest``. Raises the errors of ``now``."""
    step = _newest(session)
    return 0 if step is None else step.seq or 0


def _newest(session: Session) -> Step | None:
    until = now(session)  # raises for a user's view
    return session.backend.past.newest(until)


def position_in(session: Session, when: str | datetime) -> int:
    """Return the number of a position, or of the last position that a time includes.

    Raises InvalidArgument for a position of another database, or one ahead of the feed; HistoryGone.
    """
    check_whole(session)
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidArgument(
                f"a time has a time zone, as in datetime.now(timezone.utc); {shown(str(when))} has none"
            )
        return min(
            last(session), position_before(session.backend.past, (when - _EPOCH) // timedelta(microseconds=1) + 1)
        )
    seq = number_in(session.backend, when)
    if seq > session.backend.watermark().position:
        raise InvalidArgument(
            f"the position {when} is ahead of the newest one, {newest(session)}; use that or an older one"
        )
    return seq


def position_before(past: PastRows, time: int) -> int:
    """Return the last position before the first change with the time stamp ``time`` (µs since 1970) or a later one."""
    low, high = 0, 1
    while _is_earlier(past, high, time):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _is_earlier(past, middle, time) else (low, middle)
    return _walked_back(past, low, time)


def _is_earlier(past: PastRows, after: int, time: int) -> bool:
    """Whether there is a next change after a position, and its time stamp is earlier than ``time``."""
    first = past.times(after, 1)
    return bool(first) and first[0][1] < time


def _walked_back(past: PastRows, seq: int, time: int) -> int:
    """Return the position before the first change stamped ``time`` or later, of the changes shortly before ``seq``."""
    while True:
        begin = max(0, seq - _WALK)
        later = [at for at, stamped in past.times(begin, _WALK) if at <= seq and stamped >= time]
        if not later:
            return seq
        seq = later[0] - 1


def gone(session: Session, kept: NotKept) -> HistoryGone:
    """Return the error for a position whose past is not kept."""
    return HistoryGone(position_of(session.backend.feed_start()[0], kept.since))
