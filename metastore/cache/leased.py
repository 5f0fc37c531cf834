"""The lease cache: reads from memory, without the database, while the lease holds.

A read looks up an entry, and then checks the clocks: if the lease holds, the entry is as correct as an answer of the
database. No change to it has committed, because a writer waits until this process has evicted the entry, or until the
lease is over. Without an entry, the read asks the database, and keeps the answer if no announcement covers it.
docs/cache.md has the protocol and the proof.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.util import Finalize
from typing import ParamSpec, TypeVar

from metastore.cache.entries import Entries
from metastore.cache.entry import Entry, entry_of, listing_of
from metastore.cache.fence import CacheLease
from metastore.cache.fill import Announced, Asked
from metastore.cache.membership import Abandoned, Member, Shown
from metastore.cache.options import Cache
from metastore.clock import Clock
from metastore.errors import CacheFenced
from metastore.operation.session import Found, Listed
from metastore.port.members import Announcement, MemberRows
from metastore.port.stats import CacheStats

__all__ = ["Leased"]

P = ParamSpec("P")
T = TypeVar("T")
Names = tuple[str, ...]
_LAST = -100
"""The priority of leaving when a worker ends: lower than that of finalizers that may still read."""
_JOINS = 2.0
"""How long opening a store waits for the cache to serve (seconds). After that, reads ask the database."""


class Leased:
    """The lease cache of one store; see the module.

    Any number of threads may use it. A forked child joins as a member of its own.

    The member's thread does not keep this object alive: a cache that no store uses any more leaves.
    """

    _entries: Entries
    _evicted: int

    def __init__(self, rows: MemberRows, clock: Clock, options: Cache) -> None:
        self._rows, self._clock, self._options = rows, clock, options
        self._raises = options.when_fenced == "raise"
        self._lock = threading.RLock()
        self._count_from_0()
        self._announced = Announced()
        self._monotonic, self._boottime, self._wall = CacheLease(clock, Entries(1, 1)).clocks
        self._member = self._new_member()
        _ALL.add(self)
        self._member.begin()
        self._member.served.wait(_JOINS)
        if self._member.refused is not None:
            raise self._member.refused

    def forget(self) -> None:
        """Join again, without entries: the server was restarted, or another server answers now.

        Reads and the member may have used two servers: during some fail-overs, two servers both act as the leader. A
        writer on the new one does not wait for a reader of the old one.
        """
        self._member.join_again()

    def _new_member(self) -> Member:
        member = Member(self._rows, self._clock, self._options.ttl, _weakly(self._new_lease), _weakly(self._see))
        _leave_at_the_end()
        return member

    def _new_lease(self) -> CacheLease:
        """Return a lease without entries. The previous lease is over, and its entries are never used again."""
        with self._lock:
            self._evicted += self._entries.evictions + len(self._entries)
            self._entries = Entries(self._options.max_entries, self._options.max_bytes)
            self._announced = Announced()
            return CacheLease(self._clock, self._entries)

    def _count_from_0(self) -> None:
        self._entries = Entries(self._options.max_entries, self._options.max_bytes)
        self._evicted = 0
        self._hits, self._misses, self._waits = _Counter(), _Counter(), _Counter()
        self._hit = self._hits.add

    def fork(self) -> None:
        """End the lease in a forked child: the parent's thread renews the lease, but evicts only in the parent."""
        self._lock = threading.RLock()  # in the parent, another thread may have held the lock
        self._member.lease.end()
        self._member.lease.serving = False
        self._count_from_0()
        self._member.fences = 0

    def close(self) -> None:
        """Leave, so that no writer waits for this process."""
        _ALL.discard(self)
        self._member.close()

    # --- reading

    def held(self, kind: str, target: object) -> Found | None:
        """Return the kept answer for a path or id, if the lease holds; None: call :meth:`read`. The hot path."""
        lease = self._member.lease
        entry = lease.entries.get((kind, target))
        if (
            entry is not None
            # checked after the entries: a thread that slept between the two must not answer
            and self._monotonic() < lease.mono
            and self._boottime() < lease.boot
            and lease.wall_from <= self._wall() < lease.wall
        ):
            if not entry.used:
                entry.used = True
                lease.used.append(entry)
            self._hit()
            return entry.found  # type: ignore[return-value]
        return None

    def read(self, key: Hashable, names: Names, ask: Callable[[], Found]) -> Found:
        """Return the answer for ``names`` (() for an id), true at an instant of this call.

        The caller must have tried :meth:`held` before. Raises CacheFenced, and the errors of ``ask``.
        """
        asked = self._asked(1)
        answer = ask()
        if asked is not None:
            self._keep(asked, key, entry_of(answer, names, 0))
        return answer

    def read_many(self, wanted: Sequence[tuple[Hashable, Names]], ask: Callable[[], list[Found]]) -> list[Found]:
        """Return the answers for all keys, true at one instant. Raises CacheFenced, and the errors of ``ask``."""
        lease, number = self._member.lease, self._announced.number
        entries = [lease.entries.get(key) for key, _ in wanted]
        if None not in entries and lease.holds():
            with self._lock:  # if no change was announced meanwhile, all entries were true at one instant
                one_instant = number == self._announced.number and lease is self._member.lease
            if one_instant:
                for entry in entries:
                    self._hit()
                    lease.note(entry)  # type: ignore[arg-type]
                return [entry.found for entry in entries]  # type: ignore[union-attr, misc]
        asked = self._asked(len(wanted))
        answers = ask()
        if asked is not None:
            for (key, names), answer in zip(wanted, answers, strict=True):
                self._keep(asked, key, entry_of(answer, names, 0))
        return answers

    def read_page(self, key: Hashable, ask: Callable[[], Listed]) -> Listed:
        """Return one page of a listing at an instant of this call. Raises CacheFenced, and the errors of ``ask``."""
        lease = self._member.lease
        entry = lease.entries.get(key)
        if entry is not None and lease.holds():
            self._hit()
            lease.note(entry)
            return entry.found  # type: ignore[return-value]
        asked = self._asked(1)
        listed = ask()
        if asked is not None and listed.found:  # a page without its parent is true only until the parent appears
            self._keep(asked, key, listing_of(listed))
        return listed

    def _asked(self, reads: int) -> Asked | None:
        """Return the known announcements before the database is asked; None: keep no answer. Raises CacheFenced."""
        for _ in range(reads):
            self._misses.add()
        if not self._member.runs:
            self._join()
        lease = self._member.lease
        if not (lease.serving and lease.holds()):
            if self._raises and self._member.served.is_set():
                raise CacheFenced(
                    "this process does not know what others have changed: its lease is over and could not be renewed; "
                    'the read was not answered; try again later, or open with Cache(when_fenced="read_through")'
                )
            return None
        with self._lock:
            return self._announced.asked(lease)

    def _join(self) -> None:
        """Make this process a member of its own: it was forked, or an interrupt kept its thread from starting."""
        with self._lock:
            if not self._member.is_of_this_process:
                # the member is made before its thread starts; otherwise two members would evict from one cache
                self._member = self._new_member()
            with suppress(RuntimeError):  # the system cannot start a thread now: the next read tries again
                self._member.begin()

    def _keep(self, asked: Asked, key: Hashable, entry: Entry) -> None:
        with self._lock:
            if asked.lease.entries is self._entries.all and self._announced.may_keep(asked, entry):
                self._entries.put(key, entry)
            else:
                self._waits.add()
                self._member.look_soon()  # a look shows when the announcement ends; then an answer can be kept

    # --- the methods that the member's thread calls

    def _see(self, lease: CacheLease, announced: Sequence[Announcement], fresh: bool) -> Shown:
        """Evict the entries that newly announced changes cover."""
        with self._lock:
            if lease.entries is not self._entries.all:
                return Shown(pending=False, new=True)
            if fresh:
                self._announced.forget()
            new = self._announced.see(announced, self._entries.version_of)
            for what in new:
                self._entries.evict_announced(what)
            return Shown(self._announced.pending, bool(new))

    def stats(self) -> CacheStats:
        """Return the figures."""
        with self._lock:
            entries = self._entries
            return CacheStats(
                hits=self._hits.total(),
                misses=self._misses.total(),
                evictions=self._evicted + entries.evictions,
                waits=self._waits.total(),
                fences=self._member.fences,
                clears=0,
                entries=len(entries),
                bytes=entries.bytes,
            )


class _Counter:
    """Counts calls of :attr:`add`. Each is one step of the interpreter, so no lock is needed, and no call is lost."""

    def __init__(self) -> None:
        self.add = count().__next__
        self._looks = 0

    def total(self) -> int:
        """Return the number of calls, without those that ``total`` makes. Only one thread at a time may call this."""
        self._looks += 1
        return self.add() - self._looks + 1


def _weakly(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls ``method`` but does not keep its object alive. Raises Abandoned if it is gone."""
    found = weakref.WeakMethod(method)

    def call(*arguments: P.args, **options: P.kwargs) -> T:
        there = found()
        if there is None:
            raise Abandoned
        return there(*arguments, **options)

    return call


_ALL: weakref.WeakSet[Leased] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_ALL):
        one.fork()


def _at_exit() -> None:
    """Leave when the process ends without closing its stores: otherwise writers would wait until the lease is over."""
    for one in list(_ALL):
        one.close()


def _leave_at_the_end() -> None:
    """Let a worker of multiprocessing leave, too: it may end by ``os._exit``, which skips the functions of atexit.

    A forked worker forgets the finalizers that its parent registered. So each new member registers again.
    """
    Finalize(None, _at_exit, exitpriority=_LAST)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
