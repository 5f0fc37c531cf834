"""The reference model: the port, implemented as plainly as possible.

Tests compare the SQL backends with it, as their oracle; ``memory://`` serves tests and notebooks. It has rows in
dictionaries, one lock around every commit and every read, no index and no cache. A commit works on a copy of the
tables, which replaces them if every precondition holds. It was written from :mod:`metastore.port.backend` and
:mod:`metastore.port.commit`, not from the SQL. The data belong to one process, and end with the object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar
from uuid import UUID

from metastore.backends.memory import relations, tickets
from metastore.backends.memory.commit import apply
from metastore.backends.memory.gc import needless, next_seen, with_names
from metastore.backends.memory.intents import carry, help_intents, set_mark, write_down
from metastore.backends.memory.leases import MemoryLeases
from metastore.backends.memory.past import MemoryPast, MemoryReaders
from metastore.backends.memory.reads import MemoryReads
from metastore.backends.memory.restore import MemoryRestorer, require_empty
from metastore.backends.memory.secret_keys import MemorySecretKeys
from metastore.backends.memory.tables import Tables
from metastore.backends.precondition import PreconditionFailed
from metastore.clock import Clock
from metastore.errors import StoreClosed, outcome_forgotten
from metastore.port.backend import MOST_AHEAD, TOMBSTONES_STAY
from metastore.port.commit import Commit, CommitOutcome, Committed
from metastore.port.conditions import DROPPED, PURGING
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.intents import CLAIMABLE, FORMAT, PENDING, Entry, Help, Mark
from metastore.port.leases import LeaseRows
from metastore.port.past import PastRows, Readers
from metastore.port.records import Marked, Origin, Pending, Step, Turn
from metastore.port.relations import Sweep
from metastore.port.restore import Restorer
from metastore.port.secret_keys import SecretKeys
from metastore.port.stats import DatabaseStats
from metastore.port.tickets import NOBODY, Line
from metastore.port.upkeep import Gone, HistoryLimits
from metastore.port.writes import Result

T = TypeVar("T")


class _Closed:
    """The replacement for the lock of a closed store: the next call raises StoreClosed."""

    def __enter__(self) -> NoReturn:
        raise StoreClosed

    def __exit__(self, *_: object) -> None:
        """Do nothing, because entering always raises."""


class MemoryBackend(MemoryReads):
    """The implementation of :class:`metastore.port.backend.Backend` in the memory of one process."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._origin = Origin(f"memory/{clock.operation_id()}", run="the only one")

    def commit(self, commit: Commit) -> CommitOutcome:
        def applied(tables: Tables, now: int) -> tuple[Result | None, ...]:
            results = apply(tables, commit, now)
            carry(tables, commit, now)
            return results

        return self._attempt(applied)

    def _attempt(self, change: Callable[[Tables, int], tuple[Result | None, ...]]) -> CommitOutcome:
        try:
            return Committed(self._change(change))
        except PreconditionFailed as failed:
            return failed.conflict

    def _change(self, change: Callable[[Tables, int], T]) -> T:
        """Let ``change`` work on a copy of the tables, which replaces them if ``change`` raises no error."""
        with self._lock:
            changed = self._tables.copy()
            result = change(changed, self._clock.micros())
            self._tables = changed
            return result

    def write_down(self, entry: Entry) -> CommitOutcome:
        return self._attempt(lambda tables, now: (write_down(tables, entry, now),))

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int, ticket: int | None = None) -> Pending:
        with self._lock:
            pending, now = self._tables.pending(entity_id), self._clock.micros()
            ours = [s for s in pending if (s.format or 0) <= FORMAT or (s.deadline or 0) < now][:limit]
            chosen = [s for s in pending if s in ours or s.operation_id == operation_id]
            own = None if operation_id is None else self._tables.row_of(operation_id)
            known = self._known(entity_id)
            queued = tickets.line(self._tables, [entity_id], None, now).head is not None
            before = NOBODY if ticket is None else tickets.line(self._tables, [entity_id], ticket, now)
            return Pending(known, own and self._shown(own), chosen, now, queued, before)

    def scopes(self, ids: Sequence[int]) -> dict[int, int]:
        with self._lock:
            return {i: self._tables.stands[i].scope_version for i in ids if i in self._tables.stands}

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        with self._lock:
            row = self._tables.row_of(operation_id)
            if row is None or row.action != PENDING:
                return Turn(row and self._shown(row), 0)
            standing = tickets.line(self._tables, [entity_id], None, self._clock.micros())
            return Turn(None, self._tables.pending(entity_id).index(row), standing)

    def help(self, help: Help) -> CommitOutcome:
        return self._attempt(lambda tables, now: help_intents(tables, help, now))

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        with self._lock:
            row = self._tables.row_of(operation_id)
            if row is None:
                if self._tables.drawn["forgotten"] > self._clock.micros() - round(life * 1_000_000):
                    raise outcome_forgotten(operation_id)
                nothing = (None,) * 5
                step = Step(operation_id, 0, *nothing, "forbidden", None, self._clock.micros(), attempt=1)
                self._tables.steps.append(step)
                return 1
            if row.action not in CLAIMABLE:
                return None
            attempt = (row.attempt or 0) + 1
            self._tables.replace_step(row, row._replace(attempt=attempt, time=self._clock.micros()))
            return attempt

    def confirm(self, operation_id: UUID) -> list[Step]:
        """Return the rows: in memory, every readable row is final."""
        return self.steps(operation_id)

    def cancel(self, operation_id: UUID) -> bool:
        with self._lock:
            row = self._tables.row_of(operation_id)
            if row is None or row.action != PENDING:
                return False
            attempt, now = (row.attempt or 0) + 1, self._clock.micros()
            self._tables.replace_step(row, row._replace(action="cancelled", attempt=attempt, time=now))
            return True

    @property
    def notices(self) -> None:
        """Return None: this backend sends no notices, so waiting calls look at intervals."""

    def queue(self, ids: Sequence[int], patience: float) -> int:
        return self._work(lambda tables, now: tickets.queue(tables, ids, patience, now))

    def line(self, ids: Sequence[int], ticket: int | None) -> Line:
        return self._work(lambda tables, now: tickets.line(tables, ids, ticket, now))

    def leave(self, ids: Sequence[int], ticket: int, gap: float = 0.0) -> bool:
        return self._work(lambda tables, now: tickets.leave(tables, ids, ticket, gap, now))

    def mark(self, mark: Mark) -> CommitOutcome:
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
            now, marked = self._clock.micros(), list[Marked]()
            for stand in (self._tables.stands[i] for i in ids if i in self._tables.stands):
                until = stand.marked_until if stand.mark else stand.quiet_until
                if stand.mark and stand.lapsed(now):
                    until = 0
                if stand.mark or stand.others_turn(now):
                    marked.append(Marked(stand.id, stand.mark, ((until or 0) - now) / 1_000_000))
            return marked

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
            return DatabaseStats(now, SCHEMA_FORMAT, len(pending), min(pending, default=None), (), ())

    @property
    def leases(self) -> LeaseRows:
        return MemoryLeases(self._change, self._clock)

    def dropped_before(self, time: int, after: Gone, limit: int) -> list[Gone]:
        return self._gone(DROPPED, after, limit, time)

    def purging(self, after: Gone, limit: int) -> list[Gone]:
        return self._gone(PURGING, after, limit)

    def _gone(self, state: int, after: Gone, limit: int, time: int = 1 << 62) -> list[Gone]:
        with self._lock:
            gone = [s for s in self._tables.stands.values() if s.state == state and (s.dropped_at or 0) < time]
            return sorted(g for s in gone if (g := Gone(s.parent_id, s.family, s.key, s.id)) > after)[:limit]

    def below(self, entity_ids: Sequence[int], limit: int) -> list[int]:
        with self._lock:
            return sorted(s.id for i in entity_ids for s in self._tables.children(i))[:limit]

    def delete_relations(self, ids: Sequence[int], limit: int) -> int:
        return self._work(lambda tables, _: relations.delete_relations(tables, ids, limit))

    def sweep_relations(self, after: int, limit: int) -> Sweep:
        return self._work(lambda tables, _: relations.sweep(tables, self._known, after, limit))

    def delete_columns(self, relation_ids: Sequence[int]) -> None:
        self._work(lambda tables, _: relations.delete_columns(tables, relation_ids))

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

    def delete_steps(self, limits: HistoryLimits, after: int, limit: int) -> tuple[int | None, int, int]:
        before = limits.before
        with self._lock:
            looked = self.feed(after, limit).rows
            newest = max((s.seq or 0 for s in self._tables.steps), default=0)
            doomed = [s for s in looked if s.seq != newest and needless(self._tables, s, limits)]
            versions = sum(self._tables.row(s.entity_id) is not None for s in doomed)
            gone = {s.seq for s in doomed}
            since = max([self._tables.drawn["past_from"], *(next_seen(self._tables, s) for s in doomed)])
            self._tables.drawn["past_from"] = since
            self._collected = max([self._collected, *(s for s in gone if s is not None)])
            kept = [s for s in self._tables.steps if s.seq is None or s.seq not in gone]
            if after == 0:  # a read from the beginning includes steps without a position
                long_ago, now = before - TOMBSTONES_STAY, self._clock.micros()
                kept = [s for s in kept if s.seq is not None or s.time >= long_ago or (s.deadline or 0) > now]
            others = len(self._tables.steps) - len(kept) - versions
            self._tables.steps[:] = with_names(kept, doomed)
            return (looked[-1].seq if looked else None), versions, others

    def forget_tickets(self) -> None:
        self._work(tickets.forget)

    def forget_pins(self) -> None:
        with self._lock:
            now = self._clock.micros()
            old = [pin.name for pin in self._tables.pins.values() if (pin.expires_at or now) < now]
            for name in old:
                del self._tables.pins[name]

    @property
    def past(self) -> PastRows:
        return MemoryPast(self._work)

    @property
    def readers(self) -> Readers:
        return MemoryReaders(self._work)

    @property
    def secret_keys(self) -> SecretKeys:
        return MemorySecretKeys(self._work)

    def _work(self, work: Callable[[Tables, int], T]) -> T:
        with self._lock:
            return work(self._tables, self._clock.micros())

    def restorer(self) -> Restorer:
        def take(tables: Tables, collected_seq: int, epoch: str) -> None:
            with self._lock:
                require_empty(self._tables)
                self._tables, self._collected, self._epoch = tables, collected_seq, epoch

        with self._lock:
            require_empty(self._tables)
            return MemoryRestorer(self._tables.copy(), take)

    def reserve_ids(self, count: int) -> list[int]:
        with self._lock:
            return [self._tables.draw("id") for _ in range(count)]

    def now(self) -> int:
        return self._clock.micros()

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def known_origin(self) -> Origin | None:
        return self._origin

    def identify(self) -> Origin:
        return self._origin

    def format(self) -> tuple[int, int] | None:
        return SCHEMA_FORMAT, SCHEMA_FORMAT

    def pool_use(self) -> None:
        """Return None: memory has no connections."""

    def ping(self) -> None:
        with self._lock:
            """Memory always answers."""

    def in_one_go(self, work: Callable[[], T], *, for_many: bool = False) -> T:
        return work()

    def close(self) -> None:
        self._lock = _Closed()
