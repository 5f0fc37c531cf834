"""The reads of a view: from one server while it surely shows the promised position, otherwise from another one.

A read counts only if no connection was opened since the server last showed the promised position. Otherwise the server
may be a restarted replica that is further back: the position is checked again, and the read is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import count
from typing import Any, Final, NoReturn, cast

from metastore.clock import Clock
from metastore.deadlines import until
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.feed.feed import check_drawn, check_position, has_change, number_in, position_of
from metastore.operation.session import Session
from metastore.port.records import Origin
from metastore.port.replica import ReplicaBackend
from metastore.replicas.source import FAILURES, Reached, Source

__all__ = ["READ_ONLY", "ReplicaReads", "Replicas", "replicas_opened"]

_READS: Final = frozenset(
    {
        *("by_id", "children", "find", "gone", "has_children", "history", "hold", "named", "names", "owned"),
        "search_sizes",
        *("owned_by_name", "owning", "related", "related_page", "relating", "relations", "resolve"),
    }
)
READ_ONLY: Final = "a view of a replica is read-only; write to the store"
_LOOKS: Final = 0.005
"""How often a replica is asked for its position (seconds)."""
_ANSWERS: Final = 0.5
"""The least time that a server gets to say how far it is (seconds). A call must have time left for another server."""


class Replicas:
    """The servers of one store: its replicas, and the primary, which is read if no replica can answer."""

    def __init__(self, replicas: Sequence[Source], primary: Source, epoch: str, clock: Clock) -> None:
        self._replicas, self.primary = tuple(replicas), primary
        self.epoch, self._clock = epoch, clock
        self._turn = count()

    def chosen(self, at_least: str | None, wait: float) -> tuple[Source, Reached] | None:
        """Return a replica that shows everything up to a position, within ``wait`` seconds; None if no replica does.

        Raises InvalidArgument for a text that is not a position of this database.
        """
        ends = self._clock.monotonic() + wait
        begin = next(self._turn)
        able = [self._replicas[(begin + n) % len(self._replicas)] for n in range(len(self._replicas))]
        while able := [source for source in able if not source.rests]:
            for source in able:
                found = self.asked(source, at_least, ends)
                if found is not None:
                    return source, found
            if self._clock.monotonic() >= ends:
                break
            self._clock.sleep(_LOOKS)
        return None

    def asked(self, source: Source, at_least: str | None, ends: float = 0.0) -> Reached | None:
        """Return a replica's position if it reaches ``at_least``, and the primary has its newest change; else None.

        A replica may still follow a former primary, and show changes that the present primary has lost. ``ends``: it
        may answer until then, or for a short time from now.
        """
        primary = self.primary.backend
        found = source.asked(at_least, self.check, max(ends, self._clock.monotonic() + _ANSWERS))
        if found is None:
            return None
        with suppress(*FAILURES), self._soon():  # ignore the primary's errors: views work while it is down
            both = (found.opened, primary.origin.run)
            if source.compared != both:
                if not has_change(primary, *found.newest):
                    source.failed(BackendUnavailable("it shows a change that the primary does not have"))
                    return None
                epoch = primary.feed_start()[0]
                if primary.origin.run == both[1]:  # otherwise the two answers may come from two servers
                    source.compared, source.epoch = both, epoch
        return found

    def check(self, position: str) -> None:
        """Raise InvalidArgument if the primary has another change at a position; do nothing if it does not answer."""
        with suppress(*FAILURES), self._soon():
            number_in(self.primary.backend, position)

    def _soon(self) -> AbstractContextManager[None]:
        return until(self._clock.monotonic() + _ANSWERS)

    def close(self) -> None:
        """Close the connections to the replicas."""
        for source in self._replicas:
            source.backend.close()


class ReplicaReads:
    """Implements :class:`metastore.port.backend.Reads` on a state that may be old. It refuses writes."""

    def __init__(self, replicas: Replicas, at_least: str | None, wait: float) -> None:
        """Choose a server. Raises InvalidArgument for a text that is not a position of this database."""
        self._replicas, self._wait = replicas, wait
        if at_least is not None:
            check_position(at_least, replicas.epoch)
        self._at = replicas.chosen(at_least, wait)
        """The replica, and its position at the last check; None if the primary is read."""
        self.position = self._of_primary(at_least) if self._at is None else self._of(*self._at)
        """Each read shows everything up to this position."""

    def _of(self, source: Source, found: Reached) -> str:
        return position_of(source.epoch, *found.newest)

    def _of_primary(self, at_least: str | None) -> str:
        primary = self._replicas.primary
        if at_least is not None:
            check_drawn(primary.backend, at_least, number_in(primary.backend, at_least))
            return at_least
        found = primary.reached(None)
        # use the primary's timeline, because a replica does not tell its own
        epoch = primary.backend.feed_start()[0]
        return position_of(epoch, 0) if found is None else position_of(epoch, *found.newest)

    @property
    def from_primary(self) -> bool:
        """Whether it reads from the primary."""
        return self._at is None

    @property
    def origin(self) -> Origin:
        return self._replicas.primary.backend.origin

    def identify(self) -> Origin:
        return self.origin

    def commit(self, commit: object) -> NoReturn:
        raise InvalidArgument(READ_ONLY)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _READS:
            raise AttributeError(name)
        ask = partial(self._ask, name)
        setattr(self, name, ask)
        return ask

    def _ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        while (at := self._at) is not None:
            source, reached = at
            try:
                answer = getattr(source.backend, name)(*arguments, **options)
                if source.backend.opened is reached.opened:
                    return answer
            except FAILURES as error:
                source.failed(error)
            self._at = self._again(source)
        return getattr(self._replicas.primary.backend, name)(*arguments, **options)

    def _again(self, source: Source) -> tuple[Source, Reached] | None:
        """Check whether the server still shows the promised position; if it does not, choose another one."""
        found = None if source.rests else self._replicas.asked(source, self.position)
        return self._replicas.chosen(self.position, self._wait) if found is None else (source, found)


def replicas_opened(session: Session, backends: Mapping[str, ReplicaBackend]) -> Replicas:
    """Return the replicas of a store that is being opened. Raises InvalidArgument for a replica of another database."""
    epoch, clock = session.epoch(), session.clock
    sources = [Source(name, backend, epoch, clock) for name, backend in backends.items()]
    primary = Source("the primary", cast(ReplicaBackend, session.backend), epoch, clock, primary=True)
    opened = Replicas(sources, primary, epoch, clock)
    try:
        for source in sources:
            source.begin()
    except BaseException:
        opened.close()
        raise
    return opened
