"""Find how far consumers have read the feed; gc keeps later changes for a limited time.

A consumer that is down must not hold up gc forever. The log gets two warnings: when half of the time is over, and when
all of it is over. From then on, gc does not wait for the consumer, which gets HistoryGone once gc has removed a change
that it has not read. Nothing is kept for a consumer that has already lost changes.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final, NamedTuple

from metastore.port.backend import Backend
from metastore.port.past import ConsumerRow

__all__ = ["Unread", "unread"]

_log = logging.getLogger("metastore.consumers")
_ALL: Final = 1 << 62
"""A position after all others."""
_MICRO: Final = timedelta(microseconds=1)
_ADVICE: Final = "let it read, or drop it: metastore consumers"


class Unread(NamedTuple):
    """The changes that gc keeps for consumers."""

    after: int
    """The position after which changes are kept."""
    overdue: tuple[str, ...]
    """The names of the consumers that gc does not wait for."""


def unread(backend: Backend, now: int, keep: timedelta) -> Unread:
    """Return the position up to which all consumers have read, except those with changes unread for over ``keep``.

    ``now`` is in microseconds since 1970. Warns of consumers that gc does not wait for, or soon will not.
    """
    collected, after, overdue = backend.feed_start()[1], _ALL, list[str]()
    for one in backend.readers.consumers():
        if _is_overdue(backend, one, collected, now, keep):
            overdue.append(one.name)
        else:
            after = min(after, one.seq)
    return Unread(after, tuple(overdue))


def _is_overdue(backend: Backend, one: ConsumerRow, collected: int, now: int, keep: timedelta) -> bool:
    if one.seq < collected:
        _log.warning("the consumer %s has lost changes to gc: reset it, or drop it: metastore consumers", one.name)
        return True
    first = backend.past.times(one.seq, 1)
    age = (now - first[0][1]) * _MICRO if first else timedelta(0)
    if age > keep:
        _log.warning(
            "the consumer %s has left changes unread for %s: gc does not wait for it any more, and it may get "
            "HistoryGone; %s",
            one.name,
            _rough(age),
            _ADVICE,
        )
    elif age > keep / 2:
        _log.warning(
            "the consumer %s has left changes unread for %s: gc waits for it for %s more; %s",
            one.name,
            _rough(age),
            _rough(keep - age),
            _ADVICE,
        )
    return age > keep


def _rough(time: timedelta) -> timedelta:
    """Return a duration in whole seconds."""
    return timedelta(seconds=time // timedelta(seconds=1))
