"""The validating cache: before each read, it asks the database for changes, in one query for all simultaneous reads.

A read that finds an entry joins a query for the changes after the last applied one. The query is *sent after the read
began*, so it shows every write that had returned by then. Its answer evicts changed entries; an entry that stays is
true at the instant of the query. A read that finds no entry asks the database. It keeps the answer if no change that
was applied meanwhile affects the answer. docs/cache.md has the proof. It uses no clock, and holds no lock while it asks
the database.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile
from typing import cast

from metastore.cache.entries import Entries
from metastore.cache.entry import Entry, entry_of
from metastore.cache.options import Cache
from metastore.cache.positions import MOST, Positions
from metastore.clock import Clock, process_id
from metastore.combine.handle import Handle
from metastore.combine.lane import Lane, Tell
from metastore.deadlines import remaining
from metastore.errors import DeadlineExceeded
from metastore.operation.session import Found, Listed
from metastore.port.feed import Feed
from metastore.port.snapshot import Watermark
from metastore.port.stats import CacheStats
from metastore.port.touched import Touch, Touched

__all__ = ["Validated"]

Names = tuple[str, ...]
_TOGETHER = 10_000
"""The largest number of reads that share one query."""


class _Era:
    """The entries and the applied positions since the cache was created, or last forgot everything."""

    def __init__(self, options: Cache) -> None:
        self.entries = Entries(options.max_entries, options.max_bytes)
        self.start: Watermark | None = None
        self.positions: Positions | None = None
        """None: no position is applied yet, so no answer is kept."""
        self.applied = 0
        """How many changes were applied."""
        self._recent: deque[tuple[int, Touch]] = deque(maxlen=MOST)
        """The last applied changes, each with its number."""

    def apply(self, positions: Positions, answer: Touched, after: int) -> bool:
        """Evict the entries that an answer's changes affect, and note its positions.

        Return False if the answer lacks changes, or if too many positions are new or missing; then drop the era.
        The positions are noted last: after an interrupt or an error, the next query returns the same changes again.
        """
        for change in answer.rows:
            self.entries.evict(change)
        self._recent.extend(enumerate(answer.rows, self.applied + 1))
        self.applied += len(answer.rows)
        return positions.apply(answer, after)

    def keep(self, key: Hashable, entry: Entry, applied: int) -> None:
        """Keep an answer whose question was sent after ``applied`` changes, unless a later change affects it."""
        if self.applied > applied and self._recent[0][0] > applied + 1:
            return  # the answer missed more changes than the list of recent changes holds
        missed = takewhile(lambda one: one[0] > applied, reversed(self._recent))
        if not any(entry.rests_on(change) for _, change in missed):
            self.entries.put(key, entry)


class Validated:
    """The validating cache of one store; see the module. Any number of threads may use it. A fork begins empty."""

    def __init__(self, backend: Feed, clock: Clock, deadline: float, options: Cache) -> None:
        self._backend = backend
        self._clock = clock
        self._deadline = deadline
        self._options = options
        # gathers=0: the query is small, and other reads arrive while it runs, so a leader need not wait for them
        self._lane: Lane[None, int] = Lane(clock, most=_TOGETHER, gathers=0.0)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._hits = self._misses = self._waits = self._clears = self._evictions = 0
        self._sent = 0
        """How many queries were sent. Each has its number."""
        self._era = _Era(self._options)
        self._pid = process_id()  # assigned last, to mark the steps above as done

    # --- reading

    def held(self, kind: str, target: object) -> None:
        """Return None: each read must ask for changes."""

    def forget(self) -> None:
        """Forget all entries: the server was restarted."""
        if process_id() != self._pid:
            self._begin()
            return
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        self._clears += 1
        self._evictions += self._era.entries.evictions + len(self._era.entries)
        self._era = _Era(self._options)

    def read_page(self, key: Hashable, ask: Callable[[], Listed]) -> Listed:
        """Return a page of a listing from the database: listings are not kept."""
        return ask()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def read(self, key: Hashable, names: Names, ask: Callable[[], Found]) -> Found:
        """Return the answer for ``names`` (() for an id) at an instant of this call. Raises the errors of ``ask``."""
        if process_id() != self._pid:
            self._begin()
        # a key without an entry needs no query, except before the first position: until then no answer is kept
        era = self._era
        if (era.positions is None or key in era.entries) and self._validated():
            with self._lock:
                entry = self._era.entries.get(key)
                if entry is not None:
                    self._hits += 1
                    return cast(Found, entry.found)
        (answer,) = self._asked([(key, names)], lambda: [ask()])
        return answer

    def read_many(self, wanted: Sequence[tuple[Hashable, Names]], ask: Callable[[], list[Found]]) -> list[Found]:
        """Return the answers for all keys, true at one instant. Raises the errors of ``ask``."""
        if process_id() != self._pid:
            self._begin()
        query, era = 0, self._era
        if era.positions is None or all(key in era.entries for key, _ in wanted):
            query = self._validated()
        with self._lock:
            # an entry that was kept after the query was sent may be newer than the rest
            get = self._era.entries.get
            kept = [cast(Found, one.found) for key, _ in wanted if (one := get(key)) and one.query < query]
            if len(kept) == len(wanted):
                self._hits += len(wanted)
                return kept
        return self._asked(wanted, ask)

    def _asked(self, wanted: Sequence[tuple[Hashable, Names]], ask: Callable[[], list[Found]]) -> list[Found]:
        """Ask the database, and keep its answers.

        Answers from before the first applied position are not kept, because the changes that they missed are unknown.
        """
        with self._lock:
            self._misses += len(wanted)
            era, begun, applied = self._era, self._era.positions is not None, self._era.applied
        answers = ask()
        with self._lock:
            if begun and era is self._era:
                for (key, names), answer in zip(wanted, answers, strict=True):
                    era.keep(key, entry_of(answer, names, self._sent), applied)
        return answers

    def stats(self) -> CacheStats:
        """Return the figures."""
        if process_id() != self._pid:
            self._begin()
        with self._lock:
            entries = self._era.entries
            return CacheStats(
                hits=self._hits,
                misses=self._misses,
                evictions=self._evictions + entries.evictions,
                waits=self._waits,
                clears=self._clears,
                entries=len(entries),
                bytes=entries.bytes,
            )

    # --- validating

    def _validated(self) -> int:
        """Return the number of an applied query that was sent after this call began; 0: no query could be applied."""
        ends = self._clock.monotonic() + remaining(self._clock, self._deadline)
        return self._lane.run(None, ends, lambda _: self._query(), self._together, _expired)

    def _together(self, handles: Sequence[Handle[None, int]]) -> Tell:
        """Send one query for all these reads."""
        self._waits += len(handles) - 1
        query = self._query()

        def tell() -> None:
            for handle in handles:
                handle.answer(query)

        return tell

    def _query(self) -> int:
        """Ask for changes, and evict changed entries; return the query's number, or 0: its answer was not applied."""
        with self._lock:
            era = self._era
            positions = era.positions
            if positions is not None:
                self._sent += 1
                number, after, gaps = self._sent, positions.last, sorted(positions.missing)
        if positions is None:
            return self._first(era)
        answer = self._backend.touched(after, gaps, MOST)
        with self._lock:
            if era is not self._era:
                return 0
            if not era.apply(positions, answer, after):
                self._drop()
                return 0
        if positions.stubborn:
            positions.watermark = self._backend.watermark()
        return number

    def _first(self, era: _Era) -> int:
        """Start at a watermark once all transactions up to it are over. Queries ask for the positions after it."""
        start = era.start or self._backend.watermark()
        answer = self._backend.touched(start.position, (), MOST)
        with self._lock:
            if era is not self._era or era.positions is not None:
                return 0
            era.start = start
            positions = Positions(answer.epoch, start.position)
            if answer.oldest > start.transaction:
                if positions.apply(answer, start.position):
                    era.positions = positions
                else:
                    era.start = None  # the feed is too far ahead: begin at a later position
        return 0


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the read was sent; call again, with a longer deadline")
