"""Whether what clients were told can have been, given the feed: one pass over all operations, as they were called.

The feed says in which order the commits on one entity, one name, one path took effect (its contract, which
:mod:`metastore.checker.tree` checks by replaying it). So nothing has to be searched: an operation that wrote took
effect at its position, and one that read at *some* position where what it saw was so. The pass gives it the earliest
one that is left: not before what had returned, or had been seen by one that had returned, when it was called. That is
best for all who come later. So each register is linearizable with its writes in the order of the feed if, and only if,
a position is found for every read (Gibbons and Korach, "Testing Shared Memories", SIAM J. Comput. 1997: with the order
of writes known this is decided in linear time), and a history is if all its registers are (Herlihy and Wing, TOPLAS
1990: linearizability is local). Two commits that touch nothing in common may become visible in another order than that
of their positions; but one that is called after another has returned stands after it.

What an operation that wrote had read must still be so just before the position of its writes, and what a transaction
that wrote nothing had read must have been so at one position. That is serializability with the feed as the order: a
read that was overwritten earlier is an anti-dependency that leads back, and so a cycle over keys (Adya, "Weak
Consistency", 1999).

Memory grows with what is live and with how many operations are under way, not with the length of the history. Times
are compared on one clock only, that of ``clock``; what others wrote is placed first (:meth:`Sweep.place`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from metastore.checker.finding import Finding
from metastore.checker.justified import Justice
from metastore.checker.once import account, line
from metastore.checker.operation import Told
from metastore.checker.records import Seen
from metastore.checker.timeline import Timelines
from metastore.checker.tree import DEEPEST, Placed
from metastore.kinds.families import families_of
from metastore.kinds.registry import OWNED_KINDS, kind_named
from metastore.names import parse_path
from metastore.port.commit import ROOT_ID

__all__ = ["Sweep"]

_TOGETHER: Final = ("transaction", "freeze")
"""The actions whose reads are of one instant, also where they write nothing."""
_EVERY: Final = 4096
"""Operations between two times that the past is forgotten."""
_names = lru_cache(maxsize=100_000)(parse_path)
Label = tuple[int, str, str]


class _Version(NamedTuple):
    version: int
    by: str


class _Meant(NamedTuple):
    """What a path means at a position, by which names, and where one of them changes."""

    entity_id: int | None
    labels: list[Label]
    until: int | None


class _Open(NamedTuple):
    end: int
    number: int
    told: Told
    least: tuple[int, ...]
    """For each of its reads: the position from which on it is to be so."""


class Sweep:
    """Takes every operation of one clock once, in the order of ``start``.

    ``since``: the position before the first call; everybody must see what stands up to it.
    """

    def __init__(self, since: int = 0) -> None:
        self._names: Timelines[Label, int] = Timelines()
        self._versions: Timelines[int, _Version] = Timelines()
        self._stands: Timelines[int, Label] = Timelines()
        self._since = since
        self._returned: tuple[int, str | None] = since, None
        self._open: list[_Open] = []
        self._justice = Justice()
        self._count = self._epoch_began = 0

    def place(self, events: Iterable[Placed]) -> None:
        """Take what somebody wrote whose calls are not to be ordered: before the run, on another clock, unrecorded."""
        events = tuple(events)
        self._put(events)
        self._justice.others = self._justice.others or any(event.seq > self._since for event in events)

    def _put(self, events: Iterable[Placed]) -> None:
        for event in events:
            new = None if event.gone else _Version(event.version, event.principal or event.operation_id)
            self._versions.put(event.entity_id, event.seq, new)
            for name in event.names:
                label = (name.parent_id, name.family, name.name)
                self._names.put(label, event.seq, name.entity_id)
                if name.entity_id is not None:
                    self._stands.put(name.entity_id, event.seq, label)
            if event.gone:
                self._stands.put(event.entity_id, event.seq, None)
            if event.seq <= self._since:
                self._require(event)
            self._justice.wrote(event)

    def take(self, told: Told) -> Iterator[Finding]:
        """Take the next operation; yield what contradicts those before it."""
        told = told._replace(reads=tuple([seen for seen in told.reads if (seen.kind or told.kind) not in OWNED_KINDS]))
        yield from self._return(told.start)
        yield from account(told)
        self._justice.begins(told)
        self._put(told.events)
        least, who = self._returned
        if told.events and told.events[0].seq <= least:
            message = f"it stands at {told.events[0].seq}, and what had returned before it was called at {least}"
            yield Finding("order", message, (*([who] if who else []), line(told)))
        self._count += 1
        if told.end is not None and told.outcome != "unknown":  # what is unknown may be applied later yet
            reads = () if told.events else told.reads
            mine = tuple([self._least(told, seen) for seen in reads])
            heapq.heappush(self._open, _Open(told.end, self._count, told, mine))
        if self._count % _EVERY == 0:
            self._forget()

    def close(self) -> Iterator[Finding]:
        """There are no more operations."""
        yield from self._return(None)

    def _return(self, before: int | None) -> Iterator[Finding]:
        """Those return whose end is before ``before``."""
        while self._open and (before is None or self._open[0].end < before):
            yield from self._ends(heapq.heappop(self._open))

    def _ends(self, opened: _Open) -> Iterator[Finding]:
        told, latest = opened.told, 0
        yield from self._validated(told)
        for event in told.events:
            self._require(event)
            latest = event.seq
        if told.action in _TOGETHER and opened.least and self._together(told, max(opened.least)) is None:
            message = f"it read {', '.join(_text(seen) for seen in told.reads)}, which were so at no one position"
            yield Finding("cycle", message, (line(told),))
        for seen, least in zip(told.reads, opened.least, strict=False):
            at = self._when(told, seen, least)
            if at is None:
                yield self._unread(told, seen, least)
            else:
                latest = max(latest, self._observed(told, seen, at))
        yield from self._justice.ends(told, self._newer)
        if latest > self._returned[0]:
            self._returned = latest, line(told)

    # --- from where on it is to be seen

    def _require(self, event: Placed) -> None:
        """What was written must be seen by all who are called later, and so must what it rests on: the path to it."""
        for name in event.names:
            self._names.require((name.parent_id, name.family, name.name), event.seq)
        self._require_entity(event.entity_id, event.seq)

    def _require_entity(self, entity_id: int, seq: int) -> None:
        self._versions.require(entity_id, seq)
        here = entity_id
        for _ in range(DEEPEST):
            if here == ROOT_ID:
                return
            self._stands.require(here, seq)
            label, _ = self._stands.at(here, seq)
            if label is None:
                return
            self._names.require(label, seq)
            here = label[0]

    def _least(self, told: Told, seen: Seen) -> int:
        """Return the position that what one reads now must not be older than."""
        at = 0
        while True:
            meant = self._lead(seen, told, at)
            least = max([self._names.required(label) for label in meant.labels], default=0)
            if meant.entity_id is not None:
                least = max(least, self._versions.required(meant.entity_id))
            if least <= at:
                return at
            at = least

    def _observed(self, told: Told, seen: Seen, at: int) -> int:
        """What was so at a position must be seen by all who are called later; return its own position."""
        meant, latest = self._lead(seen, told, at), 0
        for label in meant.labels:
            self._names.require(label, at)
            latest = max(latest, self._names.required(label))
        if meant.entity_id is not None:
            self._require_entity(meant.entity_id, at)
            latest = max(latest, self._versions.required(meant.entity_id))
        return min(latest, at)

    # --- reads

    def _validated(self, told: Told) -> Iterator[Finding]:
        """What one read who wrote is so just before his position. (What came before that has been called by now.)"""
        if not told.events:
            return
        at = told.events[0].seq - 1
        for seen in told.reads:
            if not self._is_so(told, seen, at)[0]:
                by = self._who_overwrote(told, seen, at)
                message = f"it read {_text(seen)}, which was not so any more at its position {at + 1}"
                yield Finding("cycle", message, (*by, line(told)))

    def _together(self, told: Told, at: int) -> int | None:
        """Return the first position from ``at`` on at which all of what it read is so."""
        while True:
            found = [self._when(told, seen, at) for seen in told.reads]
            later = [when for when in found if when is not None]
            if len(later) < len(found):
                return None
            if max(later) == at:
                return at
            at = max(later)

    def _when(self, told: Told, seen: Seen, least: int) -> int | None:
        """Return the first position from ``least`` on at which it is so."""
        at: int | None = least
        while at is not None:
            so, change = self._is_so(told, seen, at)
            if so:
                return at
            at = change
        return None

    def _is_so(self, told: Told, seen: Seen, at: int) -> tuple[bool, int | None]:
        """Return whether it is so at a position, and the next one where something of it changes."""
        meant = self._lead(seen, told, at)
        if seen.path is not None and (
            meant.entity_id is None or not seen.there or seen.entity_id not in (None, meant.entity_id)
        ):
            return meant.entity_id is None and not seen.there, meant.until
        if meant.entity_id is None or not seen.there:
            return True, None  # by its id, and not there: perhaps something above it was not
        version, later = self._versions.at(meant.entity_id, at)
        so = version is not None and seen.version in (None, version.version)
        return so, _sooner(meant.until, later)

    def _lead(self, seen: Seen, told: Told, at: int) -> _Meant:
        """Follow a path at a position, up to the first name that means nothing."""
        if seen.path is None:
            return _Meant(seen.entity_id, [], None)
        names = _names(seen.path)
        here: int | None = ROOT_ID
        labels: list[Label] = []
        until: int | None = None
        for family, name in zip(_families(seen.kind or told.kind, len(names)), names, strict=True):
            assert here is not None
            label = (here, family, name)
            labels.append(label)
            here, later = self._names.at(label, at)
            until = _sooner(until, later)
            if here is None:
                break
        return _Meant(here, labels, until)

    def _unread(self, told: Told, seen: Seen, least: int) -> Finding:
        message = f"it saw {_text(seen)}, which was not so from {least} on, where it was called"
        by = self._who_overwrote(told, seen, least)
        who = self._returned[1]
        return Finding("read", message, (*by, *([] if by or who is None else [who]), line(told)))

    def _who_overwrote(self, told: Told, seen: Seen, at: int) -> tuple[str, ...]:
        """Return who wrote what was there instead."""
        entity_id = seen.entity_id or self._lead(seen, told, at).entity_id
        if entity_id is None:
            return ()
        now, _ = self._versions.at(entity_id, at)
        if now is None or now.version == seen.version:
            return ()
        return (f"{now.by} made version {now.version} of entity {entity_id}",)

    # --- the rest

    def _newer(self, entity_id: int, than: int) -> bool:
        newest = self._versions.newest(entity_id)
        return newest is None or newest.version > than

    def _forget(self) -> None:
        """Begin a new epoch, if all have returned who were called before this one."""
        if all(one.number > self._epoch_began for one in self._open):
            self._epoch_began = self._count
            self._names.next_epoch()
            self._versions.next_epoch()
            self._stands.next_epoch()


def _sooner(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


@lru_cache(maxsize=1024)
def _families(kind: str | None, depth: int) -> tuple[str, ...]:
    families = families_of(kind_named(kind or "table"), depth)
    return families if families is not None else ("",) * depth


def _text(seen: Seen) -> str:
    what = f"entity {seen.entity_id}" if seen.path is None else seen.path
    if not seen.there:
        return f"that {what} was not there"
    if seen.path is not None and seen.entity_id is not None:
        what += f" as entity {seen.entity_id}"
    return what if seen.version is None else f"{what} at version {seen.version}"
