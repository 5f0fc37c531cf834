"""The reference model: the port, kept in the plainest way that can be believed.

It is the oracle that the SQL backends are compared with, and ``memory://`` for a test or a
notebook. Rows in dictionaries, one lock around every commit and every read, no index, no cache:
a commit works on a copy of the tables, which takes their place if all of it held. It is written
from :mod:`metastore.port.backend` and :mod:`metastore.port.commit`, not from the SQL. Everything is
gone with the object, and belongs to one process.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from metastore.backends.memory.commit import Refused, apply, newest_dropped
from metastore.backends.memory.intents import help_intents, set_mark, write_down
from metastore.backends.memory.leases import MemoryLeases
from metastore.backends.memory.restore import MemoryRestorer, require_empty
from metastore.backends.memory.tables import Body, MemorySnapshot, Stand, Tables
from metastore.clock import Clock
from metastore.errors import StoreClosed, outcome_forgotten
from metastore.names import fold
from metastore.port.backend import (
    FORMAT,
    MOST_AHEAD,
    TOMBSTONES_STAY,
    Guards,
    Matches,
    Search,
    TableSnapshot,
    Watermark,
)
from metastore.port.commit import (
    CLAIMABLE,
    DROPPED,
    LIVE,
    PENDING,
    PURGING,
    ROOT_ID,
    Commit,
    Committed,
    Conflicted,
    Entry,
    Help,
    Mark,
    Outcome,
    Result,
)
from metastore.port.commit import FORMAT as CHANGES
from metastore.port.leases import LeaseRows
from metastore.port.records import (
    ROOT,
    Child,
    Known,
    Lookup,
    Marked,
    Node,
    Origin,
    OwnedRecord,
    Pending,
    Record,
    Resolved,
    RowPage,
    Step,
    Turn,
)
from metastore.port.restore import Restorer
from metastore.port.stats import DatabaseStats
from metastore.port.unreadable import DEEPEST, too_deep

__all__ = ["MemoryBackend"]


T = TypeVar("T")


class _Closed:
    """In place of the lock, once the store is closed: whoever wants it is told so."""

    def __enter__(self) -> NoReturn:
        raise StoreClosed

    def __exit__(self, *_: object) -> None:
        """Nobody was let in."""


class MemoryBackend:
    """Keeps the promises of :class:`metastore.port.backend.Backend` in the memory of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock: AbstractContextManager[Any] = threading.RLock()
        above_all = -1
        root = Stand(ROOT_ID, above_all, "root", "root", "", "", False, LIVE, True, ROOT.scope_version, None)
        self._tables = Tables({ROOT_ID: root})
        self._epoch = f"{clock.micros():014x}"
        self._origin = Origin(f"memory/{clock.operation_id()}")
        self._collected = 0

    # --- commit

    def commit(self, commit: Commit) -> Outcome:
        return self._attempt(lambda tables, now: apply(tables, commit, now))

    def _attempt(self, change: Callable[[Tables, int], tuple[Result | None, ...]]) -> Outcome:
        """Let ``change`` work on a copy of the tables, which takes their place if nothing was refused."""
        with self._lock:
            changed = self._tables.copy()
            try:
                results = change(changed, self._clock.micros())
            except Refused as refused:
                return Conflicted(refused.cause, refused.id, refused.found)
            self._tables = changed
            return Committed(results)

    # --- operations that are written down

    def write_down(self, entry: Entry) -> Outcome:
        return self._attempt(lambda tables, now: (write_down(tables, entry, now),))

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int) -> Pending:
        with self._lock:
            pending, now = self._tables.pending(entity_id), self._clock.micros()
            ours = [s for s in pending if (s.format or 0) <= CHANGES or (s.deadline or 0) < now][:limit]
            chosen = [s for s in pending if s in ours or s.operation_id == operation_id]
            own = None if operation_id is None else self._tables.row_of(operation_id)
            known = self._known(entity_id)
            return Pending(known, own and self._shown(own), chosen, now)

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        with self._lock:
            row = self._tables.row_of(operation_id)
            if row is None or row.action != PENDING:
                return Turn(row and self._shown(row), 0)
            return Turn(None, self._tables.pending(entity_id).index(row))

    def help(self, help: Help) -> Outcome:
        return self._attempt(lambda tables, now: help_intents(tables, help, now))

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        with self._lock:
            row = self._tables.row_of(operation_id)
            if row is None:
                if self._tables.drawn["forgotten"] > self._clock.micros() - round(life * 1_000_000):
                    raise outcome_forgotten(operation_id)
                nothing = (None,) * 5
                self._tables.steps.append(
                    Step(operation_id, 0, *nothing, "forbidden", None, self._clock.micros(), *(None,) * 8, attempt=1)
                )
                return 1
            if row.action not in CLAIMABLE:
                return None
            attempt = (row.attempt or 0) + 1
            self._tables.replace_step(row, row._replace(attempt=attempt, time=self._clock.micros()))
            return attempt

    def cancel(self, operation_id: UUID) -> bool:
        with self._lock:
            row = self._tables.row_of(operation_id)
            if row is None or row.action != PENDING:
                return False
            self._tables.replace_step(row, row._replace(action="cancelled", attempt=(row.attempt or 0) + 1))
            return True

    # --- marks

    def mark(self, mark: Mark) -> Outcome:
        return self._attempt(lambda tables, now: (set_mark(tables, mark, now),))

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        with self._lock:
            stand = self._tables.stands.get(entity_id)
            if stand is None or stand.mark != operation_id:
                return False
            self._tables.stands[entity_id] = stand.unmarked(self._clock.micros())
            return True

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        with self._lock:
            now, found = self._clock.micros(), list[Marked]()
            for stand in (self._tables.stands[i] for i in ids if i in self._tables.stands):
                until = stand.marked_until if stand.mark else stand.quiet_until
                if stand.mark and stand.lapsed(now):
                    until = 0
                if stand.mark or stand.others_turn(now):
                    found.append(Marked(stand.id, stand.mark, ((until or 0) - now) / 1_000_000))
            return found

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        with self._lock:
            now, stand = self._clock.micros(), self._tables.stands.get(entity_id)
            if stand is None or stand.mark != operation_id or not stand.lapsed(now):
                return False
            self._tables.stands[entity_id] = stand.unmarked(now)._replace(scope_version=stand.scope_version + 1)
            return True

    def stats(self, since: int, limit: int) -> DatabaseStats:
        with self._lock:
            now = self._clock.micros()
            pending = [s.time for s in self._tables.steps if s.action == PENDING]
            return DatabaseStats(now, FORMAT, len(pending), min(pending, default=None), (), ())

    @property
    def leases(self) -> LeaseRows:
        return MemoryLeases(self._lease_change, self._clock)

    def _lease_change(self, change: Callable[[Tables, int], T]) -> T:
        with self._lock:
            changed = self._tables.copy()
            result = change(changed, self._clock.micros())
            self._tables = changed
            return result

    # --- entities

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        with self._lock:
            return [self._follow(lookup) for lookup in lookups]

    def _follow(self, lookup: Lookup) -> Resolved:
        nodes: list[Node] = []
        above = lookup.start
        for family, name in zip(lookup.families, lookup.names, strict=True):
            stand = self._tables.live_child(above.id, family, fold(name) if above.fold else name)
            if stand is None:
                return Resolved(tuple(nodes), None)
            above = _node(stand)
            nodes.append(above)
        return Resolved(tuple(nodes), Record(tuple(nodes), *self._tables.bodies[above.id]))

    def by_id(self, ids: Sequence[int]) -> list[Known | None]:
        with self._lock:
            return [self._known(i) for i in ids]

    def _known(self, entity_id: int) -> Known | None:
        if entity_id not in self._tables.bodies:
            return None
        chain: list[Stand] = []
        at = entity_id
        while at != ROOT_ID:
            chain.append(self._tables.stands[at])
            at = chain[-1].parent_id
            if len(chain) > DEEPEST:
                raise too_deep(chain[0].kind, entity_id)
        chain.reverse()
        record = Record(tuple([_node(s) for s in chain]), *self._tables.bodies[entity_id])
        states = [s.state for s in chain]
        return Known(record, states[-1], all(s == LIVE for s in states), PURGING in states)

    def hold(self, guards: Guards) -> bool:
        with self._lock:
            return self._held(guards)

    def has_children(self, entity_id: int, besides: Sequence[int] = ()) -> bool:
        with self._lock:
            return any(s.state == LIVE and s.id not in besides for s in self._tables.children(entity_id))

    def children(
        self, parent_id: int, kind: str, family: str, state: int, after: tuple[str, int], limit: int, guards: Guards
    ) -> RowPage[Child]:
        with self._lock:
            wanted = (kind, family, state)
            found = [s for s in self._tables.children(parent_id) if (s.kind, s.family, s.state) == wanted]
            # live names are unique, so that the key alone says where the next page starts
            later = [s for s in found if (s.key > after[0] if state == LIVE else (s.key, s.id) > after)]
            rows = [self._child(s) for s in sorted(later, key=lambda s: (s.key, s.id))]
            return RowPage(True, rows[:limit]) if self._held(guards) else RowPage(False, [])

    def names(
        self, parent_id: int, kind: str, family: str, after: str, limit: int, guards: Guards
    ) -> RowPage[tuple[str, str]]:
        with self._lock:
            page = self.children(parent_id, kind, family, LIVE, (after, 0), limit, guards)
            return RowPage(page.held, [(child.key, child.node.name) for child in page.rows])

    def find(self, search: Search) -> Matches:
        with self._lock:
            live = [s for s in self._tables.stands.values() if s.state == LIVE and s.id != ROOT_ID]
            keyed: list[tuple[tuple[Any, ...], Stand]]
            if search.parents is None:
                keyed = sorted(((s.name, s.id), s) for s in live if s.name < search.before)
            else:
                below = [s for s in live if s.parent_id in search.parents]
                keyed = sorted(((s.parent_id, s.family, s.key), s) for s in below)
            page = [(key, s) for key, s in keyed if key > search.after][: search.limit]
            records = [known.record for _, s in page if (known := self._fitting(s, search)) is not None]
            last = page[-1][0] if len(page) == search.limit else None
            return Matches(records, [(s.id, s.kind) for _, s in page], last)

    def _fitting(self, stand: Stand, search: Search) -> Known | None:
        known = self._known(stand.id)
        if known is None or not known.live or search.kind not in ("", stand.kind):
            return None
        pattern = re.escape(search.glob).replace(r"\*", ".*").replace(r"\?", ".")
        above = [ROOT_ID, *(node.id for node in known.record.chain[:-1])]
        fits = re.fullmatch(pattern, stand.name, re.DOTALL) and search.parent in (-1, stand.parent_id)
        return known if fits and search.scope in above else None

    def gone(self, parent_id: int, kind: str, family: str, key: str) -> Child | None:
        with self._lock:
            last = newest_dropped(self._tables, parent_id, kind, family, key)
            return last and self._child(last)

    def _child(self, stand: Stand) -> Child:
        return Child(stand.key, _node(stand), stand.state, *self._tables.bodies[stand.id])

    def _held(self, guards: Guards) -> bool:
        stands = self._tables.stands
        return all(i in stands and stands[i].scope_version == scope for i, scope in guards)

    # --- owned rows

    def owned(self, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
        with self._lock:
            rows = [r for r in self._tables.owned.values() if (r.owner_id, r.kind) == (owner_id, kind)]
            rows = sorted((r for r in rows if r.name > after), key=lambda r: r.name)
            return RowPage(True, rows[:limit]) if self._held(guards) else RowPage(False, [])

    def owned_by_name(self, owner_ids: Sequence[int], kind: str, names: Sequence[str]) -> list[OwnedRecord | None]:
        with self._lock:
            return [self._tables.owned.get((i, kind, name)) for i, name in zip(owner_ids, names, strict=True)]

    # --- operations

    def history(self, entity_id: int, after: int, limit: int) -> list[Step]:
        with self._lock:
            steps = [s for s in self._tables.steps if s.entity_id == entity_id and (s.version or 0) > after]
            return [self._shown(s) for s in sorted(steps, key=lambda s: s.version or 0)[:limit]]

    def steps(self, operation_id: UUID) -> list[Step]:
        with self._lock:
            return [self._shown(s) for s in self._tables.steps if s.operation_id == operation_id]

    def feed(self, after: int, limit: int) -> RowPage[Step]:
        with self._lock:
            later = [s for s in self._tables.steps if s.seq is not None and s.seq > after]
            return RowPage(True, [self._shown(s) for s in later[:limit]])

    def feed_start(self) -> tuple[str, int]:
        with self._lock:
            return self._epoch, self._collected

    def event_at(self, seq: int) -> tuple[UUID | None, bool]:
        with self._lock:
            return next((s.operation_id for s in self._tables.steps if s.seq == seq), None), False

    def _shown(self, step: Step) -> Step:
        """Return ``step`` with who created the entity or owned row, and when, if it still exists."""
        row = self._row(step.entity_id)
        return step if row is None else step._replace(created_by=row.created_by, created_at=row.created_at)

    def _row(self, row_id: int | None) -> Body | OwnedRecord | None:
        """Return what exists under an id."""
        if row_id in self._tables.bodies:
            return self._tables.bodies[row_id]
        return next((r for r in self._tables.owned.values() if r.id == row_id), None)

    # --- gc

    def dropped_before(self, time: int, limit: int) -> list[int]:
        with self._lock:
            gone = [s for s in self._tables.stands.values() if s.state == DROPPED]
            return sorted(s.id for s in gone if s.dropped_at is not None and s.dropped_at < time)[:limit]

    def purging(self, limit: int) -> list[int]:
        with self._lock:
            return sorted(s.id for s in self._tables.stands.values() if s.state == PURGING)[:limit]

    def below(self, entity_id: int, limit: int) -> list[tuple[int, str]]:
        with self._lock:
            return sorted((s.id, s.kind) for s in self._tables.children(entity_id))[:limit]

    def delete_entities(self, ids: Sequence[int]) -> int:
        with self._lock:
            doomed = [i for i in set(ids) if i in self._tables.bodies and not any(self._tables.children(i))]
            for entity_id in doomed:
                del self._tables.stands[entity_id]
                del self._tables.bodies[entity_id]
                for key in [k for k in self._tables.owned if k[0] == entity_id]:
                    del self._tables.owned[key]
            return len(doomed)

    def forget(self, before: int) -> None:
        with self._lock:
            now, forgotten = self._clock.micros(), self._tables.drawn["forgotten"]
            self._tables.drawn["forgotten"] = max(before, now if forgotten > now + MOST_AHEAD else forgotten)

    def delete_steps(self, before: int, keep: int, after: int, limit: int) -> tuple[int | None, int, int]:
        with self._lock:
            looked = self.feed(after, limit).rows
            newest = max((s.seq or 0 for s in self._tables.steps), default=0)
            doomed = [s for s in looked if s.time < before and s.seq != newest and self._needless(s, before, keep)]
            versions = sum(self._row(s.entity_id) is not None for s in doomed)
            gone = {s.seq for s in doomed}
            self._collected = max([self._collected, *(s for s in gone if s is not None)])
            kept = [s for s in self._tables.steps if s.seq is None or s.seq not in gone]
            if after == 0:  # what has no position goes with the first batch
                long_ago, now = before - TOMBSTONES_STAY, self._clock.micros()
                kept = [s for s in kept if s.seq is not None or s.time >= long_ago or (s.deadline or 0) > now]
            others = len(self._tables.steps) - len(kept) - versions
            self._tables.steps[:] = kept
            return (looked[-1].seq if looked else None), versions, others

    def _needless(self, step: Step, before: int, keep: int) -> bool:
        """Whether an old step may go: its row is gone, or has ``keep`` newer versions, and none older stays."""
        row, version = self._row(step.entity_id), step.version or 0
        older = [s for s in self._tables.steps if s.entity_id == step.entity_id and (s.version or 0) < version]
        return (row is None or version <= row.version - keep) and all(s.time < before for s in older)

    @contextmanager
    def snapshot(self) -> Iterator[TableSnapshot]:
        with self._lock:
            snapshot = MemorySnapshot(self._tables.copy(), self._collected)
        yield snapshot

    def watermark(self) -> Watermark:
        with self._lock:
            return Watermark(self._tables.drawn["seq"], 0)

    def decided(self, watermark: Watermark) -> bool:
        return True

    def restorer(self) -> Restorer:
        def take(tables: Tables, collected_seq: int, epoch: str) -> None:
            with self._lock:
                require_empty(self._tables)
                self._tables, self._collected, self._epoch = tables, collected_seq, epoch

        with self._lock:
            require_empty(self._tables)
            return MemoryRestorer(self._tables.copy(), take)

    # --- the rest

    def reserve_ids(self, count: int) -> list[int]:
        with self._lock:
            return [self._tables.draw("id") for _ in range(count)]

    def now(self) -> int:
        return self._clock.micros()

    @property
    def origin(self) -> Origin:
        return self._origin

    def identify(self) -> Origin:
        return self._origin

    def format(self) -> tuple[int, int] | None:
        return FORMAT, FORMAT

    def pool_use(self) -> None:
        """There are no connections."""

    def ping(self) -> None:
        with self._lock:
            """Memory always answers."""

    def close(self) -> None:
        self._lock = _Closed()


def _node(stand: Stand) -> Node:
    return Node(stand.id, stand.kind, stand.name, stand.scope_version, stand.in_use, stand.fold)
