"""The backend for PostgreSQL 14 and later, through psycopg 3.

A commit is one statement if it has only one insert (create.py; create_owned.py with the owner), only one new document
(alter.py), or only one exclusive update (exclusive.py). Any other commit (general_commit.py) is one message, and so one
round trip and one transaction. Each of these files has a statement's SQL, its parameters, and the meaning of its rows.
This file chooses among them; ``sending.py`` sends them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from metastore.backends.postgres import (
    alter,
    by_name,
    carry,
    create,
    create_owned,
    exclusive,
    general_commit,
    intents,
    sending,
    tickets,
)
from metastore.backends.postgres.announcing import Announcing, Pass, Unannounced
from metastore.backends.postgres.fragments import DURABLE
from metastore.backends.postgres.home import CLUSTER, HIDDEN, INFO, NOTE, Home
from metastore.backends.postgres.leases import PostgresLeases
from metastore.backends.postgres.members import PostgresMembers
from metastore.backends.postgres.parameters import Row, Statement, plain, texts
from metastore.backends.postgres.preludes import preludes
from metastore.backends.postgres.readers import PostgresReaders
from metastore.backends.postgres.restore import PostgresRestorer
from metastore.backends.postgres.secret_keys import PostgresSecretKeys
from metastore.backends.postgres.together import below, message
from metastore.backends.postgres.upkeep import PostgresUpkeep
from metastore.backends.postgres.waking import Waking, told_by, told_by_batch, told_by_leaving
from metastore.backends.sql.decode import pending, steps_of_json
from metastore.backends.sql.limits import Limits
from metastore.backends.sql.past import SqlPast
from metastore.backends.sql.stats import postgres_stats
from metastore.errors import BackendRefused, BackendUnavailable, MigrationNeeded, outcome_forgotten
from metastore.port.batches import Batch, Below, Written
from metastore.port.commit import Commit, CommitOutcome, Conflicted, Unknown
from metastore.port.format import one_info
from metastore.port.intents import PENDING, Entry, Help, Mark
from metastore.port.leases import LeaseRows
from metastore.port.members import Covered, MemberRows, covered, covered_by_help
from metastore.port.past import PastRows, Readers
from metastore.port.records import Marked, Origin, Pending, Record, Step, Turn
from metastore.port.restore import Restorer
from metastore.port.secret_keys import SecretKeys
from metastore.port.stats import DatabaseStats, PoolUse
from metastore.port.tickets import LONGEST_GAP, NOBODY, Line
from metastore.port.writes import Insert, Update, Write
from metastore.urls import Url

T = TypeVar("T")

_DATABASE = """SELECT epoch || '/' || (SELECT oid::text FROM pg_database WHERE datname = current_database())
  FROM info"""
_RESERVE = f"SELECT nextval('entity_id_seq') FROM generate_series(1, %(count)s) WHERE {DURABLE}"
"""Draws ids durably: after a crash the server must not give the same ids to another client."""
_SCOPES = "SELECT id, scope_version FROM guard WHERE id = ANY(%(ids)s::bigint[])"
_log = logging.getLogger("metastore")


class PostgresBackend(PostgresUpkeep):
    """The implementation of :class:`metastore.port.backend.Backend` on PostgreSQL."""

    _identity: Origin | None = None

    def __init__(self, url: Url, timeout: float, limits: Limits | None = None, *, replica: bool = False) -> None:
        super().__init__(url, timeout, limits, replica=replica)
        self._announcing = Announcing(self._rows, timeout)
        self._sender, self.notices = sending.Sender(self.pool), Waking(self.pool)

    def commit(self, commit: Commit) -> CommitOutcome:
        """Apply ``commit`` in one round trip. If the cache has members, announce it first."""
        alone = self._announcing.alone
        if alone is not None:
            try:
                return self._commit(commit, alone)
            except Unannounced:  # a cache has joined: announce the commit first
                self._announcing.alone = None
        # an announcement names the entity's id, so a commit by name must find the entity first
        if commit.by_name:
            return Conflicted("self")
        return self._announcing.send(
            lambda may: self._commit(commit, may), lambda: _covered(commit), lambda: [commit.operation_id]
        )

    def _commit(self, commit: Commit, may: Pass) -> CommitOutcome:
        if _is_rare(commit):
            return self._general(commit, may)
        if len(commit.writes) == 1 and (commit.ticket is not None or commit.carries):
            return self._carrying(commit, commit.writes[0], may)
        own = _own_statements(commit)
        if own is None:
            return self._general(commit, may)
        statements, outcome = own
        sent = may.around([*preludes(commit), *statements], commit.operation_id)
        return self._sender.one(sent, outcome, commit.patience, commit.run)

    def _carrying(self, commit: Commit, write: Write, may: Pass) -> CommitOutcome:
        """Apply a commit of one write that carries intents, or that has a ticket."""
        if not isinstance(write, Update) or not carry.fits(commit, write):
            return self._general(commit, may)
        statements = may.around([carry.statement(commit, write)], commit.operation_id)
        told = told_by(commit)
        return self._sender.one(statements, lambda row: carry.outcome(commit, write, row), run=commit.run, told=told)

    def _general(self, commit: Commit, may: Pass) -> CommitOutcome:
        # a commit that skips existing names may succeed without a row, so its announcement is removed in any case
        again = None if commit.skip_existing else commit.operation_id
        return self._sender.several(
            may.around([*preludes(commit), *general_commit.statements(commit)], again),
            lambda rows: general_commit.outcome(commit, rows),
            commit.patience,
            commit.run,
            told_by(commit),
        )

    def find_below(self, wanted: Sequence[Below]) -> list[Record | bool]:
        return below.found(wanted, self._quick(below.FIND_BELOW, below.parameters(wanted)))

    def write_together(self, batch: Batch, patience: int) -> Written | Conflicted | Unknown:
        told = told_by_batch(batch)
        rows = self._announcing.send(
            lambda may: self._sender.batch(message.statements(batch, patience), may, batch.run, told),
            lambda: _covered_by(batch),
            lambda: batch.operations,
        )
        return message.written(batch, rows) if isinstance(rows, list) else rows

    def write_down(self, entry: Entry) -> CommitOutcome:
        return self._sender.one(intents.write_down_statements(entry), lambda row: intents.written_down(entry, row))

    def pending(self, entity_id: int, operation_id: UUID | None, limit: int, ticket: int | None = None) -> Pending:
        parameters = {"ids": plain([entity_id]), "id": entity_id, "own": operation_id, "limit": limit}
        if ticket is None:
            rows, line = self._quick(intents.PENDING_OF, parameters), NOBODY
        else:
            rows = self._quick(intents.PENDING_IN_LINE, {**parameters, "ticket": ticket})
            line, rows = tickets.line(rows[0][-6:]), [row[:-6] for row in rows]
        chain = [row[4:] for row in rows if row[4] is not None]
        steps, now, queued, confirms = rows[0][:4]
        found = pending(steps_of_json(steps), chain, entity_id, operation_id, now, queued, line)
        self._confirm_helper(found.own, confirms)
        return found

    def scopes(self, ids: Sequence[int]) -> dict[int, int]:
        return dict(self._rows(_SCOPES, {"ids": list(ids)}))

    def turn(self, entity_id: int, operation_id: UUID) -> Turn:
        rows = self._quick(intents.TURN, {"id": entity_id, "own": operation_id})
        if not rows:
            return Turn(None, 0)
        (row,) = rows
        turn = Turn(steps_of_json(row[1])[0] if row[1] else None, row[0], tickets.line(row[3:]))
        self._confirm_helper(turn.own, row[2])
        return turn

    def _confirm_helper(self, own: Step | None, confirms: bool) -> None:
        """Confirm a helper's commit before its effect counts as this operation's result."""
        if confirms and own is not None and own.action != PENDING:
            found = self.confirm(own.operation_id)
            if not found or (found[0].action, found[0].version) != (own.action, own.version):
                raise BackendUnavailable("another server answers now, which has not applied the change; call again")

    def queue(self, ids: Sequence[int], patience: float) -> int:
        parameters = {"ids": plain(ids), "patience": round(patience * 1_000_000)}
        return int(self._quick(tickets.QUEUE, parameters)[0][0])

    def line(self, ids: Sequence[int], ticket: int | None) -> Line:
        return tickets.line(self._quick(tickets.LINE, {"ids": plain(ids), "own": ticket})[0])

    def leave(self, ids: Sequence[int], ticket: int, gap: float = 0.0) -> bool:
        told = told_by_leaving(ids, ticket) if gap == 0 else None  # in a gap, no ticket has its turn
        parameters = {"ids": plain(ids), "own": ticket, "gap": min(round(gap * 1_000_000), LONGEST_GAP)}
        return bool(self._quick(tickets.LEAVE, parameters, told))

    def help(self, help: Help) -> CommitOutcome:
        operations = [one.operation_id for one in help.resolutions]
        rows = self._announcing.send(
            lambda may: self._sender.batch([intents.help_statement(help)], may),
            lambda: covered_by_help(help),
            lambda: operations,
        )
        return intents.helped(help, rows[0][0]) if isinstance(rows, list) else rows

    def forbid(self, operation_id: UUID, life: float = 0.0) -> int | None:
        """Insert a tombstone. The insert waits for an original in flight, and fails if that commits."""
        parameters = {"operation_id": operation_id, "life": round(life * 1_000_000)}
        try:
            rows = self._rows(intents.FORBID, parameters)
        except psycopg.errors.UniqueViolation:
            rows = self._rows(intents.FORBID_AGAIN, parameters)
            return rows[0][0] if rows else None
        # nothing was inserted, so the existing rows decide
        rows = rows or self._rows(intents.FORBID_AGAIN, parameters)
        if not rows and not self.steps(operation_id):
            raise outcome_forgotten(operation_id)
        return rows[0][0] if rows else None

    def cancel(self, operation_id: UUID) -> bool:
        return bool(self._rows(intents.CANCEL, {"operation_id": operation_id}))

    def mark(self, mark: Mark) -> CommitOutcome:
        return self._sender.several(intents.mark_statements(mark), lambda rows: intents.marked(mark, rows))

    def unmark(self, entity_id: int, operation_id: UUID) -> bool:
        return bool(self._rows(intents.UNMARK, {"id": entity_id, "operation_id": operation_id}))

    def marked(self, ids: Sequence[int]) -> list[Marked]:
        return [Marked(row[0], row[1], float(row[2])) for row in self._rows(intents.MARKED, {"ids": list(ids)})]

    def clear(self, entity_id: int, operation_id: UUID) -> bool:
        return bool(self._rows(intents.CLEAR, {"id": entity_id, "operation_id": operation_id}))

    def stats(self, since: int, limit: int) -> DatabaseStats:
        return postgres_stats(self._rows, since, limit)

    def reserve_ids(self, count: int) -> list[int]:
        return [row[0] for row in self._rows(_RESERVE, {"count": count})]

    @property
    def leases(self) -> LeaseRows:
        def send(statements: list[Statement]) -> list[Row]:
            return self._read(lambda connection: sending.rows_of_writes(connection, statements), writes=True)

        return PostgresLeases(self.pool, self._rows, send)

    @property
    def cache_members(self) -> MemberRows:
        """The processes that cache under a lease."""
        return PostgresMembers(self.pool, self._rows, self._announcing.silence)

    @property
    def past(self) -> PastRows:
        return SqlPast(self.sql, self._quick, _listed, _spread)

    @property
    def readers(self) -> Readers:
        return PostgresReaders(self.pool, self._rows, self.confirm)

    @property
    def secret_keys(self) -> SecretKeys:
        return PostgresSecretKeys(self._rows)

    def restorer(self) -> Restorer:
        return PostgresRestorer(self.pool, self._announcing)

    def when_started(self, forget: Callable[[], None]) -> None:
        self.pool.when_started = forget

    @property
    def known_origin(self) -> Origin | None:
        known = self._identity
        return known if known is not None and known.run == self.pool.run else None

    @property
    def origin(self) -> Origin:
        known = self._identity
        return known if known is not None and known.run == self.pool.run else self.identify()

    def identify(self) -> Origin:
        """Return the feed's epoch and the database's number; a copy made by TEMPLATE has the same epoch in its rows."""
        ((database,),) = self._rows(_DATABASE, {})
        known, run = self._identity, self.pool.run
        if known is None or (known.database, known.run) != (database, run):
            known = self._identity = Origin(database, run=run)
        return known

    def format(self) -> tuple[int, int] | None:
        """Return the formats. If the database is a copy, note its new place: its feed then gets its own epoch."""
        try:
            rows = self._rows(INFO, {})
        except MigrationNeeded:
            self._check_usage()
            return None
        written_format, compatible, noted, database, may_note, cached = one_info(rows)
        self._here = here = Home(self._cluster(), database)
        known = here.completed(Home.parse(noted))
        if may_note and str(known) != noted:
            copied = here.differs(Home.parse(noted))
            self._rows(NOTE, {"here": str(known), "noted": noted, "copied": copied, "epoch": f"{self.now():014x}"})
        if cached:
            _log.warning(
                "the sequences %s draw several numbers at once: changes get positions out of order, and readers of the "
                "feed miss some; ALTER SEQUENCE … CACHE 1, then close all connections",
                ", ".join(cached),
            )
        return written_format, compatible

    def _cluster(self) -> str | None:
        """Return the cluster's number; None: this role may not read it."""
        try:
            return str(self._rows(CLUSTER, {})[0][0])
        except BackendRefused:
            return None

    def _check_usage(self) -> None:
        """Raise BackendRefused if the tables are in a schema that this role may not use."""
        for schema, role in self._rows(HIDDEN, {}):
            raise BackendRefused(
                f"the role {role} may not use the schema {schema}, where the tables are; "
                f"GRANT USAGE ON SCHEMA {schema} TO {role} (docs/operations.md has all rights that a role needs)"
            )

    def pool_use(self) -> PoolUse:
        return self.pool.use()

    def ping(self) -> None:
        self._rows("SELECT 1", {})

    def in_one_go(self, work: Callable[[], T], *, for_many: bool = False) -> T:
        return work()

    def close(self) -> None:
        self.notices.close()
        self._announcing.close()
        self.pool.close()


def _covered(commit: Commit) -> Covered:
    """Return the entities that a commit changes, including those of the intents that it resolves."""
    covers = covered(commit.writes)
    for help_ in commit.carries:
        covers = covers.and_(covered_by_help(help_))
    return covers


def _covered_by(batch: Batch) -> Covered:
    found = covered([one.write for one in (*batch.inserts, *batch.updates)])
    return found.and_(Covered(ids=frozenset([one.id for one in batch.alters])))


def _own_statements(commit: Commit) -> tuple[Sequence[Statement], Callable[[Row], CommitOutcome]] | None:
    """Return the statements for commits of this form, and the meaning of their row; None: it takes the general one."""
    if len(commit.writes) == 1:
        (write,) = commit.writes
        if isinstance(write, Insert) and write.id is None:
            return [create.statement(commit, write)], partial(create.outcome, commit)
        if isinstance(write, Update) and write.scope_version is None and write.doc is not None:
            return [alter.statement(commit, write)], partial(alter.outcome, commit, write)
        if isinstance(write, Update) and (write.named is not None or exclusive.fits(commit, write)):
            form = exclusive if write.named is None else by_name
            return form.statements(commit, write), partial(form.outcome, commit, write)
    if create_owned.fits(commit):
        return [create_owned.statement(commit)], partial(create_owned.outcome, commit)
    return None


def _is_rare(commit: Commit) -> bool:
    """Whether a commit has a part that only the general statement can apply."""
    if commit.reads or commit.claim or commit.held is not None or commit.skip_existing or commit.overlook:
        return True
    for guard in commit.guards:  # a loop for speed: each commit runs this
        if guard.exclusive:
            return True
    return bool(commit.publishes or commit.advance)


def _listed(values: Sequence[int] | Sequence[str]) -> str:
    return texts([str(value) for value in values])


def _spread(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as one array for each column: ids first, then texts."""
    first, *others = columns
    return {first: plain([row[first] for row in rows]), **{one: texts([row[one] for row in rows]) for one in others}}
