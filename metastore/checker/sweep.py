"""Check in one pass that the clients' records are possible, given the feed. The order is that of the calls.

The feed gives the order in which the commits on one entity, one name and one path took effect. (That is its contract;
:mod:`metastore.checker.tree` checks it by a replay.) So no search is needed. An operation that wrote took effect at its
position. An operation that read took effect at *some* position where its reads were true, and the pass gives it the
earliest possible one. That position is not before any operation that had returned when this one was called, nor before
any write that a returned operation had seen. The earliest position leaves the most room for later operations.

So each register is linearizable with its writes in the order of the feed if, and only if, every read gets a position
(Gibbons and Korach, "Testing Shared Memories", SIAM J. Comput. 1997: with a known order of writes, this can be decided
in linear time). A history is linearizable if all its registers are (Herlihy and Wing, TOPLAS 1990: linearizability is
local). Two unrelated commits may become visible in another order than that of their positions. But an operation that is
called after another has returned has the later position.

The reads of an operation that wrote must still be true just before the position of its writes. The reads of a
transaction that wrote nothing must all be true at one position. That is serializability with the feed as the order: a
read that was overwritten earlier is an anti-dependency that leads back, and so a cycle over keys (Adya, "Weak
Consistency", 1999).

Whether an entity has children, and the entity that was dropped last under a name, are registers, too: they change with
the names.

Memory grows with the number of live entities and running operations, not with the length of the history; if a client
looked for an entity to restore, also with the number of names under which entities were dropped. Only times of one
clock are compared; events of other writers are placed first (:meth:`Sweep.place`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from metastore.checker.account import account, line
from metastore.checker.finding import Finding
from metastore.checker.justice import Justice
from metastore.checker.operation import ClientOperation
from metastore.checker.records import Seen
from metastore.checker.timeline import Timelines
from metastore.checker.tree import CHILDREN, DEEPEST, DROPPED, NO_NAME, Placed
from metastore.kinds.families import families_of
from metastore.kinds.registry import OWNED_KINDS, kind_named
from metastore.names import parse_path
from metastore.port.conditions import ROOT_ID

__all__ = ["Sweep"]

_TOGETHER: Final = ("transaction", "freeze")
"""The actions whose reads are all true at one instant, even if they write nothing."""
_OWNERS: Final = {"partition": "table", "model_version": "model"}
"""The kind of the owner, for kinds of owned rows that can have only one kind of owner."""
_OF: Final = {"children": "children", "dropped": "dropped entity that can be restored"}
_EVERY: Final = 4096
"""After how many operations old values are forgotten."""
_names = lru_cache(maxsize=100_000)(parse_path)
Label = tuple[int, str, str]


class _Version(NamedTuple):
    version: int
    by: str


class _Meant(NamedTuple):
    """The entity at a path at one position, the names along the path, and the next position where one changes."""

    entity_id: int | None
    labels: list[Label]
    until: int | None


class _Open(NamedTuple):
    end: int
    number: int
    operation: ClientOperation
    least: tuple[int, ...]
    """For each read: the earliest position at which it may be true."""


class Sweep:
    """Checks each operation of one clock once, in the order of ``start``.

    ``since`` is the position before the first call: every operation must see the events up to it.
    """

    def __init__(self, since: int = 0) -> None:
        self._names: Timelines[Label, int] = Timelines()
        self._versions: Timelines[int, _Version] = Timelines()
        self._stands: Timelines[int, Label] = Timelines()
        self._since = since
        self._returned: tuple[int, str | None] = since, None
        self._open: list[_Open] = []
        self._justice = Justice()
        self._freezes: list[ClientOperation] = []
        """The freezes that may still hold while an operation runs that is called now, or later."""
        self._count = self._epoch_began = 0

    def place(self, events: Iterable[Placed]) -> None:
        """Take the events of writers that have no order: from before the run, of another clock, or without a record."""
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
                if name.entity_id is not None and not name.family.startswith(NO_NAME):
                    self._stands.put(name.entity_id, event.seq, label)
            if event.gone:
                self._stands.put(event.entity_id, event.seq, None)
            if event.seq <= self._since:
                self._require(event)
            self._justice.wrote(event)

    def take(self, operation: ClientOperation) -> Iterator[Finding]:
        """Take the next operation; yield each contradiction to earlier operations."""
        operation = operation._replace(reads=tuple([seen for seen in operation.reads if _is_checked(seen, operation)]))
        yield from self._return(operation.start)
        yield from account(operation)
        self._justice.begins(operation)
        self._freezes = [one for one in self._freezes if (one.held_to or 0) > operation.start]
        if operation.held_from is not None and operation.outcome in ("applied", "nothing"):
            self._freezes.append(operation)
        self._put(operation.events)
        least, who = self._returned
        if operation.events and operation.events[0].seq <= least:
            message = (
                f"it wrote at {operation.events[0].seq}, and an operation that returned before its call at {least}"
            )
            yield Finding("order", message, (*([who] if who else []), line(operation)))
        self._count += 1
        yield from self._held(operation)
        if (
            operation.end is not None and operation.outcome != "unknown"
        ):  # an operation with an unknown outcome may still be applied, so it does not count as ended
            reads = () if operation.events else operation.reads
            mine = tuple([self._least(operation, seen) for seen in reads])
            heapq.heappush(self._open, _Open(operation.end, self._count, operation, mine))
        if self._count % _EVERY == 0:
            self._forget()

    def _held(self, operation: ClientOperation) -> Iterator[Finding]:
        """Yield a finding if a writing operation ran completely within a freeze above its entity."""
        for freeze in self._freezes:
            began, ended = freeze.held_from, freeze.held_to
            inside = began is not None and ended is not None and began < operation.start
            if not inside or operation.end is None or operation.end > (ended or 0):
                continue
            for event in operation.events:
                scope = self._lead(Seen(freeze.path, True, kind=freeze.kind), freeze, event.seq - 1).entity_id
                if scope is not None and scope in self._above(event):
                    message = f"it wrote entity {event.entity_id} at {event.seq} while {freeze.path} was frozen"
                    yield Finding("cycle", message, (line(freeze), line(operation)))

    def _above(self, event: Placed) -> list[int]:
        """Return the entity of an event and its ancestors. A dropped entity counts at its last place."""
        ids, here, seq = [event.entity_id], event.entity_id, event.seq - event.gone
        for _ in range(DEEPEST):
            label, _ = self._stands.at(here, seq)
            if label is None or label[0] == ROOT_ID:
                break
            ids.append(here := label[0])
        return ids

    def close(self) -> Iterator[Finding]:
        """End the pass: let all open operations return."""
        yield from self._return(None)

    def _return(self, before: int | None) -> Iterator[Finding]:
        """Process the return of each operation that ended before ``before``."""
        while self._open and (before is None or self._open[0].end < before):
            yield from self._ends(heapq.heappop(self._open))

    def _ends(self, opened: _Open) -> Iterator[Finding]:
        operation, latest = opened.operation, 0
        yield from self._validated(operation)
        for event in operation.events:
            self._require(event)
            latest = event.seq
        if _is_together(operation) and opened.least and self._together(operation, max(opened.least)) is None:
            reads = ", ".join(_text(seen) for seen in operation.reads)
            message = f"it read {reads}, which were not all true at any one position"
            yield Finding("cycle", message, (line(operation),))
        for seen, least in zip(operation.reads, opened.least, strict=False):
            at = self._when(operation, seen, least)
            if at is None:
                yield self._unread(operation, seen, least)
            else:
                latest = max(latest, self._observed(operation, seen, at))
        yield from self._justice.ends(operation, self._newer)
        if latest > self._returned[0]:
            self._returned = latest, line(operation)

    # --- required positions

    def _require(self, event: Placed) -> None:
        """Require that later operations see an event, and the path to its entity."""
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

    def _least(self, operation: ClientOperation, seen: Seen) -> int:
        """Return the earliest position at which a read may be true, for an operation that is called now."""
        at = 0
        while True:
            meant = self._lead(seen, operation, at)
            required = [self._names.required(label) for label in meant.labels]
            if meant.entity_id is not None:
                required.append(self._versions.required(meant.entity_id))
            # move to the first later requirement only, and follow the path again: if a name leads elsewhere there, the
            # other requirements are those of another entity
            later = next((one for one in required if one > at), None)
            if later is None:
                return at
            at = later

    def _observed(self, operation: ClientOperation, seen: Seen, at: int) -> int:
        """Require that later operations see the values of a read at a position. Return the position that wrote them."""
        meant, latest = self._lead(seen, operation, at), 0
        for label in meant.labels:
            self._names.require(label, at)
            latest = max(latest, self._names.required(label))
        if meant.entity_id is not None:
            self._require_entity(meant.entity_id, at)
            latest = max(latest, self._versions.required(meant.entity_id))
        return min(latest, at)

    # --- reads

    def _validated(self, operation: ClientOperation) -> Iterator[Finding]:
        """Check that a writer's reads are true just before its position. All earlier writers were taken already."""
        if not operation.events:
            return
        at = operation.events[0].seq - 1
        for seen in operation.reads:
            if not self._is_so(operation, seen, at)[0]:
                by = self._who_overwrote(operation, seen, at)
                message = f"it read {_text(seen)}, which had changed before its position {at + 1}"
                yield Finding("cycle", message, (*by, line(operation)))

    def _together(self, operation: ClientOperation, at: int) -> int | None:
        """Return the first position from ``at`` on where all reads are true; None: there is none."""
        while True:
            positions = [self._when(operation, seen, at) for seen in operation.reads]
            later = [position for position in positions if position is not None]
            if len(later) < len(positions):
                return None
            if max(later) == at:
                return at
            at = max(later)

    def _when(self, operation: ClientOperation, seen: Seen, least: int) -> int | None:
        """Return the first position from ``least`` on where a read is true; None: there is none."""
        at: int | None = least
        while at is not None:
            so, change = self._is_so(operation, seen, at)
            if so:
                return at
            at = change
        return None

    def _is_so(self, operation: ClientOperation, seen: Seen, at: int) -> tuple[bool, int | None]:
        """Return whether a read is true at a position, and the next position where this can change."""
        meant = self._lead(seen, operation, at)
        if seen.path is not None and (
            meant.entity_id is None or not seen.there or seen.entity_id not in (None, meant.entity_id)
        ):
            return meant.entity_id is None and not seen.there, meant.until
        if meant.entity_id is None or not seen.there:
            return True, None  # a read by id that found nothing is not judged: perhaps an ancestor was missing
        version, later = self._versions.at(meant.entity_id, at)
        so = version is not None and seen.version in (None, version.version)
        return so, _sooner(meant.until, later)

    def _lead(self, seen: Seen, operation: ClientOperation, at: int) -> _Meant:
        """Follow a path at a position, up to the first name without an entity."""
        if seen.path is None:
            return _Meant(seen.entity_id, [], None)
        names = _names(seen.path)
        here: int | None = ROOT_ID
        labels: list[Label] = []
        until: int | None = None
        for family, name in _steps(seen.kind or operation.kind or "table", names, seen.of):
            assert here is not None
            label = (here, family, name)
            labels.append(label)
            here, later = self._names.at(label, at)
            until = _sooner(until, later)
            if here is None:
                break
        return _Meant(here, labels, until)

    def _unread(self, operation: ClientOperation, seen: Seen, least: int) -> Finding:
        message = f"it saw {_text(seen)}, which was not true at any position from {least} on, where it was called"
        by = self._who_overwrote(operation, seen, least)
        who = self._returned[1]
        return Finding("read", message, (*by, *([] if by or who is None else [who]), line(operation)))

    def _who_overwrote(self, operation: ClientOperation, seen: Seen, at: int) -> tuple[str, ...]:
        """Return a line about the operation that wrote the version which was there instead."""
        entity_id = seen.entity_id or self._lead(seen, operation, at).entity_id
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
        """Begin a new epoch if all operations that were called before the current one have returned."""
        if all(one.number > self._epoch_began for one in self._open):
            self._epoch_began = self._count
            self._names.next_epoch()
            self._versions.next_epoch()
            self._stands.next_epoch()


def _is_checked(seen: Seen, operation: ClientOperation) -> bool:
    """Whether a read can be checked. For owned rows, this needs a kind with only one kind of owner."""
    kind = seen.kind or operation.kind
    return kind not in OWNED_KINDS or kind in _OWNERS


def _is_together(operation: ClientOperation) -> bool:
    """Whether all reads must be true at one instant: those of a transaction, and those behind an error."""
    return operation.action in _TOGETHER or operation.outcome == "failed"


def _sooner(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


@lru_cache(maxsize=1024)
def _families(kind: str | None, depth: int) -> tuple[str, ...]:
    if kind in _OWNERS:
        return (*_families(_OWNERS[kind], depth - 1), kind)
    families = families_of(kind_named(kind or "table"), depth)
    return families if families is not None else ("",) * depth


@lru_cache(maxsize=100_000)
def _steps(kind: str, names: tuple[str, ...], of: str | None) -> tuple[tuple[str, str], ...]:
    """Return the family and the name of each step of the path from the root to the register that was read."""
    steps = tuple(zip(_families(kind, len(names)), names, strict=True))
    if of == "dropped":
        return (*steps[:-1], (DROPPED + kind, names[-1]))
    return (*steps, (CHILDREN, "")) if of == "children" else steps


def _text(seen: Seen) -> str:
    what = f"entity {seen.entity_id}" if seen.path is None else seen.path
    if seen.of is not None:
        return f"that {what} has {'' if seen.there else 'no '}{_OF[seen.of]}"
    if not seen.there:
        return f"that {what} was not there"
    if seen.path is not None and seen.entity_id is not None:
        what += f" as entity {seen.entity_id}"
    return what if seen.version is None else f"{what} at version {seen.version}"
