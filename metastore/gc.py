"""gc: delete what no caller can reach any more, in bounded batches. Any number of processes may run it at once.

It works in three steps. First, it makes each entity that was dropped before the retention unrestorable, in a separate
commit. Otherwise, a restore in the middle of gc could bring back a part of a tree. Then it deletes everything below
these entities, leaves first, and the entities themselves last. At the end, it deletes history that is older than the
retention and beyond ``keep_versions``. It also deletes orphaned rows: relations of purged ends, and of columns that no
revert can bring back any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import islice
from typing import Any, Final, cast

from metastore.arguments import positive_integer, shown
from metastore.errors import (
    DeadlineExceeded,
    DropPending,
    EntityNotFound,
    InvalidArgument,
    ScopeFrozen,
    UnreadableRow,
)
from metastore.feed.position import position_before
from metastore.feed.unread import unread
from metastore.managers.attempts import exclusive
from metastore.managers.drops.pending import PendingDrop
from metastore.managers.drops.row import above_pending, is_destroyed, pending_drops
from metastore.managers.purge import delete_trees
from metastore.managers.relations.writes import column_paths
from metastore.operation.perform import perform
from metastore.operation.request import Call, Fencing, Request
from metastore.operation.session import Session
from metastore.port.backend import Backend
from metastore.port.past import NotKept
from metastore.port.upkeep import BEFORE_ALL, HistoryLimits, Upkeep

__all__ = ["Collected", "collect"]

_ROOTS: Final = 100
"""How many entities gc asks for at once, to make them unrestorable or to delete them."""
_STEPS: Final = 1000
"""How many steps of history one statement examines."""
_PAGE: Final = 100
"""How many versions of an entity, with their documents, gc reads at once."""
_PATIENCE: Final = 5.0
"""How long gc tries to make one entity unrestorable (seconds)."""
_LONG_DEAD: Final = 3_600_000_000
"""How long ago a waiter must have been alive for gc to delete its place in the queue (µs)."""


@dataclass(frozen=True)
class Collected:
    """The result of a gc: how many rows it deleted."""

    entities: int
    """Deleted entities, each with its history and owned rows."""
    versions: int
    """Deleted versions from the history of entities that stay."""
    operations: int
    """Other deleted rows of the operation table."""
    staged: int = 0
    """Values staged under leases that ended, which gc handed to ``clean_up``."""
    overdue: tuple[str, ...] = ()
    """Consumers that gc did not wait for: they have left changes unread for too long, or have already lost some."""


class _Fenced:
    """A backend that checks a lease before each batch, so that a gc whose lease is lost ends before the next batch."""

    def __init__(self, backend: Upkeep, lease: Fencing) -> None:
        self._backend, self._lease = backend, lease

    def __getattr__(self, name: str) -> Any:
        self._lease.tokens()
        return getattr(self._backend, name)


def collect(
    session: Session, retention: timedelta, keep_versions: int, keep_unread: timedelta, lease: Fencing | None = None
) -> Collected:
    """Delete entities dropped longer than ``retention`` ago, and history beyond the newest ``keep_versions``.

    Changes that a consumer of the feed has not read stay for ``keep_unread``. Raises InvalidArgument; LeaseLost if the
    holder has lost the ``lease``: earlier deletions stay, and the next gc deletes the rest.
    """
    if not isinstance(keep_unread, timedelta) or keep_unread < timedelta(0):
        raise InvalidArgument(f"keep_unread is a timedelta of zero or more, not {shown(keep_unread)}")
    if not isinstance(retention, timedelta) or retention < timedelta(0):
        raise InvalidArgument(f"the retention is a timedelta of zero or more, not {shown(retention)}")
    keep_versions = positive_integer(keep_versions, "keep_versions")
    call = Call(deadline=_PATIENCE, lease=lease)
    backend = session.backend if lease is None else cast("Backend", _Fenced(session.backend, lease))
    began = session.metrics.gc_begun()
    # the earlier of two clocks, because a fast clock must not make gc delete rows that a caller may still need
    now = min(backend.now(), session.clock.micros())
    before = max(0, now - retention // timedelta(microseconds=1))
    # read after ``before`` is fixed: an entity with a later drop below it was not dropped before that time
    pending = above_pending(backend)
    _make_unrestorable(session, backend, before, pending, call)
    entities = _delete_trees(backend, pending)
    _end_destroyed(session, backend)
    of_columns = _sweep_relations(backend)
    backend.forget_pins()
    backend.forget_tickets()
    kept = unread(backend, now, keep_unread)
    limits = HistoryLimits(before, position_before(backend.past, before), keep_versions, kept.after)
    versions, operations = _delete_steps(backend, limits)
    _delete_of_columns(backend, of_columns)  # after the steps: only now it is known what no revert can restore
    backend.leases.forget_waiters(backend.now() - _LONG_DEAD)
    session.metrics.gc_ended(began, entities=entities, versions=versions, operations=operations)
    return Collected(entities, versions, operations, overdue=kept.overdue)


def _make_unrestorable(session: Session, backend: Upkeep, before: int, pending: set[int], call: Call) -> None:
    """Make entities *purging* that were dropped before ``before``, except those above a pending drop."""
    after = BEFORE_ALL
    while gone := backend.dropped_before(before, after, _ROOTS):
        after = gone[-1]
        for entity_id in [one.id for one in gone if one.id not in pending]:
            with suppress(ScopeFrozen, DeadlineExceeded):  # another operation works on it; the next gc finds it
                _purge(session, entity_id, before, call)


def _purge(session: Session, entity_id: int, before: int, call: Call) -> None:
    request = Request[int](
        verb="collect",
        what=lambda: f"collect {entity_id}",
        attempt=lambda view: exclusive.collect(view, entity_id, before, session.principal),
        replay=lambda steps: steps[0].entity_id or 0,
        arguments=list,
        exclusive=True,
    )
    perform(session, request, call)


def _delete_trees(backend: Upkeep, pending: set[int]) -> int:
    """Delete entities that are purging, and all below them, unless a drop is pending there; return how many."""
    deleted, after = 0, BEFORE_ALL
    while gone := backend.purging(after, _ROOTS):
        after = gone[-1]  # another gc may delete the rest of a root, so this one tries each root once
        deleted += delete_trees(backend, [one.id for one in gone if one.id not in pending])
    return deleted


def _end_destroyed(session: Session, backend: Backend) -> None:
    """End the drops of destroyed columns and partitions, if their table is live again, or deleted."""
    for drop in list(pending_drops(backend)):
        if is_destroyed(drop):
            with suppress(EntityNotFound, DropPending, ScopeFrozen, DeadlineExceeded, UnreadableRow):  # gc tries again
                PendingDrop(session, drop, held=True).finish()


def _sweep_relations(backend: Upkeep) -> list[tuple[int, int, int]]:
    """Delete relations with a missing end, which the gc of an older program left.

    Return the row, entity and column of each relation of a dropped column.
    """
    after: int | None = 0
    lost = list[tuple[int, int, int]]()
    while after is not None:
        swept, columns = backend.sweep_relations(after, _STEPS), cache(_columns)
        found = [(row_id, entity_id, column, columns(doc)) for row_id, entity_id, column, doc in swept.columns]
        lost += [row[:3] for row in found if row[3] is not None and row[2] not in row[3]]
        after = swept.last
    return lost


def _delete_of_columns(backend: Backend, lost: Iterable[tuple[int, int, int]]) -> None:
    """Delete those relations of dropped columns whose column no revert can bring back."""
    left = iter(lost)
    while some := list(islice(left, _STEPS)):
        gone = defaultdict[int, set[int]](set)
        for _, entity_id, column in some:
            gone[entity_id].add(column)
        kept = _kept_columns(backend, gone)
        backend.delete_columns([i for i, entity_id, column in some if column not in kept.get(entity_id, [column])])


def _columns(doc: str | None) -> Collection[int] | None:
    """Return an entity's columns, including those that are being dropped in steps; None: they cannot be read."""
    with suppress(UnreadableRow):
        return column_paths(doc, None, dropping=True).keys()
    return None


def _kept_columns(backend: Backend, lost: Mapping[int, set[int]]) -> dict[int, set[int]]:
    """Return the columns that each entity has had since the kept past, or at a pin: a revert may bring them back.

    Leave out entities for which this cannot be known, and those that had all ``lost`` columns at that time.
    """
    kept, ids = {}, list(lost)
    with suppress(NotKept):  # another gc has just moved the start of the past: leave the rest to the next gc
        pins = backend.readers.pins()  # a revert has a pin until it has committed: if it has none, ``now`` shows that
        now = backend.watermark().position
        since = min([backend.past.since(), *[pin.seq for pin in pins]])
        for entity_id, then in zip(ids, backend.past.by_id(since, ids), strict=True):
            if then and lost[entity_id] <= set(_columns(then.record.doc) or ()):
                continue  # the usual case, in which gc need not read all versions
            seen = [_columns(doc) for doc in _docs(backend, now, entity_id, then.record.version if then else 1)]
            if None not in seen:
                kept[entity_id] = {column for one in seen for column in one or ()}
    return kept


def _docs(backend: Backend, at: int, entity_id: int, first: int) -> Iterator[str | None]:
    after = first - 1
    while steps := backend.past.history(at, entity_id, after, _PAGE):
        yield from [step.doc for step in steps]
        after = steps[-1].version or 0


def _delete_steps(backend: Upkeep, limits: HistoryLimits) -> tuple[int, int]:
    """Delete old history; return how many versions of entities that stay, and how many other rows."""
    after, versions, others = 0, 0, 0
    backend.forget(limits.before)
    while True:
        last, some, more = backend.delete_steps(limits, after, _STEPS)
        versions, others = versions + some, others + more
        if last is None:
            return versions, others
        after = last
