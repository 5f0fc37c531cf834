"""The validating cache: before each read it asks what has changed, in one query for all reads of a moment.

A read that finds an entry joins a query for the changes after the last applied one. The query is *sent after the read
began*, so it shows every write that had returned by then. Its answer evicts changed entries; an entry that is left is
true at the instant of the query. A read that finds no entry asks the database. It keeps the answer if no change that
was applied meanwhile touches it. docs/cache.md has the proof. The cache uses no clock, and holds no lock while it asks
the database.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import cast

from metastore.cache.entries import Entries
from metastore.cache.entry import entry_of
from metastore.cache.options import Cache
from metastore.cache.positions import MOST, Positions
from metastore.clock import Clock, process_id
from metastore.combine.lane import Handle, Lane, Tell
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
"""How many reads share one query at most."""


class Validated:
    """The validating cache of one store; see the module. Any number of threads may use it; a fork begins empty."""

    def __init__(self, backend: Feed, clock: Clock, deadline: float, options: Cache) -> None:
        self._backend = backend
        self._clock = clock
        self._deadline = deadline
        self._options = options
        # the message is small, and the others come while it is under way: a leader that waits for them gains nothing
        self._lane: Lane[None, int] = Lane(clock, most=_TOGETHER, gathers=0.0)
        self._begin()

    def _begin(self) -> None:
        self._pid = process_id()
        self._lock = threading.Lock()
        self._hits = self._misses = self._waits = self._clears = self._evictions = 0
        self._sent = 0
        """How many queries were sent; each has its number."""
        self._applied = 0
        """How many changes were applied."""
        self._forget_all()

    def _forget_all(self) -> None:
        """Begin a new era: nothing is kept, and no position is applied."""
        self._entries = Entries(self._options.max_entries, self._options.max_bytes)
        self._positions: Positions | None = None
        self._start: Watermark | None = None
        self._era = object()
        self._recent: deque[Touch] = deque(maxlen=MOST)

    # --- reading

    def held(self, kind: str, target: object) -> None:
        """Return nothing: each read asks what has changed."""

    def read_page(self, key: Hashable, ask: Callable[[], Listed]) -> Listed:
        """Return a page of a listing, as the database shows it: listings are not kept."""
        return ask()

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def read(self, key: Hashable, names: Names, ask: Callable[[], Found]) -> Found:
        """Return what is at ``names`` (() for an id) at an instant of this call. Raises what ``ask`` raises."""
        if process_id() != self._pid:
            self._begin()
        # what is not here needs no query; but nothing is kept before the first position is applied
        if (self._positions is None or key in self._entries) and self._validated():
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None:
                    self._hits += 1
                    return cast(Found, entry.found)
        (answer,) = self._asked([(key, names)], lambda: [ask()])
        return answer

    def read_many(self, wanted: Sequence[tuple[Hashable, Names]], ask: Callable[[], list[Found]]) -> list[Found]:
        """Return what is at each key, all at one instant. Raises what ``ask`` raises."""
        if process_id() != self._pid:
            self._begin()
        query = 0
        if self._positions is None or all(key in self._entries for key, _ in wanted):
            query = self._validated()
        with self._lock:
            # what was kept after the query was sent may be newer than the rest
            kept = [
                cast(Found, one.found) for key, _ in wanted if (one := self._entries.get(key)) and one.query < query
            ]
            if len(kept) == len(wanted):
                self._hits += len(wanted)
                return kept
        return self._asked(wanted, ask)

    def _asked(self, wanted: Sequence[tuple[Hashable, Names]], ask: Callable[[], list[Found]]) -> list[Found]:
        """Ask the database, and keep what it says."""
        with self._lock:
            self._misses += len(wanted)
            era, applied = None if self._positions is None else self._era, self._applied
        answers = ask()
        for (key, names), answer in zip(wanted, answers, strict=True):
            self._keep(key, answer, names, era, applied)
        return answers

    def _keep(self, key: Hashable, answer: Found, names: Names, era: object | None, applied: int) -> None:
        """Keep an answer that was asked for when ``applied`` changes were applied, unless one since then touches it.

        What was asked for before the first position was applied (no era) is not kept: nothing tells what it has missed.
        """
        with self._lock:
            missed = self._applied - applied
            if era is not self._era or missed > len(self._recent):
                return
            entry = entry_of(answer, names, self._sent)
            if not any(entry.rests_on(self._recent[-n]) for n in range(1, missed + 1)):
                self._entries.put(key, entry)

    def stats(self) -> CacheStats:
        """Return the figures."""
        with self._lock:
            entries = self._entries
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
        """Send one query for all of these."""
        self._waits += len(handles) - 1
        query = self._query()

        def tell() -> None:
            for handle in handles:
                handle.answer(query)

        return tell

    def _query(self) -> int:
        """Ask what has changed, and evict it; return the query's number, or 0 if its answer could not be applied."""
        with self._lock:
            positions, era = self._positions, self._era
            if positions is not None:
                self._sent += 1
                number, after, gaps = self._sent, positions.last, sorted(positions.missing)
        if positions is None:
            return self._first(era)
        answer = self._backend.touched(after, gaps, MOST)
        with self._lock:
            if era is not self._era:
                return 0
            # evicted first, noted last: an interrupt in between leaves positions that the next query asks for again
            self._evict(answer)
            if not positions.apply(answer, after):
                self._clears += 1
                self._evictions += self._entries.evictions + len(self._entries)
                self._forget_all()
                return 0
        if positions.stubborn:
            positions.watermark = self._backend.watermark()
        return number

    def _evict(self, answer: Touched) -> None:
        for change in answer.rows:
            self._entries.evict(change)
        self._recent.extend(answer.rows)
        self._applied += len(answer.rows)

    def _first(self, era: object) -> int:
        """Begin at a position up to which all is decided, if there is one yet; queries ask for later ones."""
        start = self._start or self._backend.watermark()
        answer = self._backend.touched(start.position, (), MOST)
        with self._lock:
            if era is not self._era or self._positions is not None:
                return 0
            self._start = start
            positions = Positions(answer.epoch, start.position)
            if answer.oldest > start.transaction:
                if positions.apply(answer, start.position):
                    self._positions = positions
                else:
                    self._start = None  # too much has happened since then: begin at a later one
        return 0


def _expired() -> DeadlineExceeded:
    return DeadlineExceeded("the deadline passed before the read was sent; call again, with a longer deadline")
