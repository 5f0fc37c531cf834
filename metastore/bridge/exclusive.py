"""Sections for writing that are exclusive among all processes: leases with fencing tokens, in the shape of the tree.

A section holds the lease of its path. It also keeps out sections above and below it, as the tree does, but without
shared locks. Each section first takes its own lease and then looks for others, so of two sections at least one sees the
other. The lower section gives way. The upper section waits until those below have ended. An expired lease is acquired
once more, so that a late commit under its old token is refused. Until that succeeds, the section of the expired lease
counts as running.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

from metastore.clock import Clock
from metastore.errors import DeadlineExceeded, LeaseHeld, LeaseLost
from metastore.leases.book import Holder
from metastore.leases.lease import Lease
from metastore.leases.leases import Leases
from metastore.names import MAX_NAME, fold, format_path
from metastore.port.conditions import LeaseToken

__all__ = ["Exclusive"]

_PREFIX = "tree:"
_LOOKS = 0.01
"""How often a section checks whether another one has ended (seconds)."""


class _Own(NamedTuple):
    names: tuple[str, ...]
    lease: Lease


class Exclusive:
    """Exclusive sections on one store's leases. Thread-safe."""

    def __init__(self, leases: Leases, clock: Clock, ttl: float) -> None:
        self._leases, self._clock, self._ttl = leases, clock, ttl
        self._held: ContextVar[tuple[_Own, ...]] = ContextVar("held", default=())
        """The sections that this thread or task holds, outermost first. An interrupt may leave an entry behind."""
        self._notes: ContextVar[tuple[list[LeaseToken], ...]] = ContextVar("notes", default=())

    def holds(self, names: tuple[str, ...]) -> bool:
        """Whether this thread or task holds the lease of the path, or of one above it."""
        return any(names[: len(one)] == one for one in self._mine())

    def _mine(self) -> list[tuple[str, ...]]:
        """Return the paths whose leases this thread or task still holds."""
        return [own.names for own in self._held.get() if not own.lease.is_over()]

    @contextmanager
    def noted(self) -> Iterator[list[LeaseToken]]:
        """Note the tokens of this thread's sections: the open ones, and those that it enters in the block."""
        own: list[LeaseToken] = []
        for one in self._held.get():
            with suppress(LeaseLost):
                own += one.lease.tokens()
        before = self._notes.set((*self._notes.get(), own))
        try:
            yield own
        finally:
            self._notes.reset(before)

    @contextmanager
    def section(self, names: tuple[str, ...], timeout: float) -> Iterator[Lease]:
        """Hold the path's lease, and keep out sections above and below. Raises DeadlineExceeded after ``timeout`` s.

        If a path is too long for a lease's name, the longest path above it that fits is held instead.
        """
        ends = self._clock.monotonic() + timeout
        while len(_plain(names)) > MAX_NAME:
            names = names[:-1]
        with self._taken(names, ends) as lease:
            for noted in self._notes.get():
                noted.extend(lease.tokens())
            token = self._held.set((*self._held.get(), _Own(names, lease)))
            try:
                yield lease
            finally:
                self._held.reset(token)

    @contextmanager
    def _taken(self, names: tuple[str, ...], ends: float) -> Iterator[Lease]:
        """Hold the lease once no other section holds a path above, and those below have ended."""
        while True:
            with self._acquired(names, ends) as lease:
                others = self._others(names)
                if not others.above:
                    while others.below:
                        self._pause(names, ends)
                        others = self._others(names)
                    lease.check()
                    yield lease
                    return
            self._pause(names, ends)  # release this lease meanwhile: the section above waits for it

    def _acquired(self, names: tuple[str, ...], ends: float) -> Lease:
        try:
            return self._leases.acquire(_plain(names), ttl=self._ttl, timeout=max(ends - self._clock.monotonic(), 0.0))
        except LeaseHeld as held:
            raise DeadlineExceeded(f"{_shown(names)} was not free in time: {held}") from held

    def _others(self, names: tuple[str, ...]) -> _Others:
        """Return the holders above and below; expired leases are taken over first, and then left out."""
        mine = {_plain(one) for one in self._mine()}
        above = {_plain(names[:depth]) for depth in range(len(names))} - mine
        below = _plain(names) + ("." if names else "")
        others = _Others([], [])
        for holder in self._leases.list():
            is_above = holder.name in above
            if not is_above and (holder.name == _plain(names) or not holder.name.startswith(below)):
                continue
            ended = self._fenced(holder) if holder.expired else holder.name in mine
            if not ended:
                (others.above if is_above else others.below).append(holder)
        return others

    def _fenced(self, holder: Holder) -> bool:
        """Take over an expired lease, so that from now on every commit under its old token is refused.

        Return False while other waiters come first, even dead ones. The old token stays valid until one of them gets
        the lease.
        """
        try:
            self._leases.acquire(holder.name, ttl=self._ttl).release()
        except LeaseHeld:
            return False
        return True

    def _pause(self, names: tuple[str, ...], ends: float) -> None:
        if self._clock.monotonic() >= ends:
            raise DeadlineExceeded(
                f"sections above or below {_shown(names)} did not end in time; try again, or give it a longer timeout"
            )
        self._clock.sleep(_LOOKS)


class _Others(NamedTuple):
    """The holders of leases above a path, and of leases below it."""

    above: list[Holder]
    below: list[Holder]


def _plain(names: tuple[str, ...]) -> str:
    """Return the lease's name. Spellings that one catalog may treat as the same name share a lease."""
    return _PREFIX + format_path(map(fold, names))


def _shown(names: tuple[str, ...]) -> str:
    return format_path(names) or "the root"
