"""Leases on PostgreSQL: parameters, and the meaning of the rows. The statements are in ``lease_sql``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from metastore.backends.postgres import lease_sql as sql
from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.parameters import Row, Statement, plain, texts
from metastore.backends.postgres.sending import attempt
from metastore.backends.sql.dialect import Fetch
from metastore.clock import SYSTEM
from metastore.deadlines import remaining
from metastore.errors import MetastoreError
from metastore.port.commit import Conflicted, Unknown
from metastore.port.conditions import LeaseToken
from metastore.port.leases import Fenced, LeaseRow, Mirror, Staged, Take, Taken, Waker, changes_of

_LAST = (1 << 63) - 1
"""The ticket of a client that is in no queue: every waiter is before it."""
_POLL, _BLIND_POLL = 1.0, 0.25
"""How often a waiter looks at the queue (seconds): with notices, and without them (behind a pooler)."""
Sending = Callable[[list[Statement]], list[Row]]
"""Sends statements as one transaction, and again if the connection was dead; returns the rows of those that write."""


class TakeRow(NamedTuple):
    """One row of the statement that takes leases, with the columns of its last SELECT: one for each lease, or one."""

    now: int
    name: str | None
    """The lease that was taken; None: none was taken."""
    id: int
    token: int
    acquired_at: int
    expires_at: int
    held_name: str | None
    """The first lease that another process holds; None: no such lease."""
    held_id: int
    held_token: int
    held_owner: str | None
    held_incarnation: str | None
    held_acquired_at: int | None
    held_expires_at: int | None
    ahead: str | None
    """A lease for which another waiter is earlier in line."""
    all_or_none: float

    def taken(self, take: Take) -> LeaseRow:
        """Return the lease that was taken."""
        assert self.name is not None
        holder = (take.owner, take.incarnation)
        return LeaseRow(self.name, self.id, self.token, *holder, self.acquired_at, self.expires_at)

    @property
    def held(self) -> LeaseRow | None:
        """The lease that another process holds."""
        if self.held_name is None:
            return None
        holder = (self.held_owner, self.held_incarnation, self.held_acquired_at, self.held_expires_at)
        return LeaseRow(self.held_name, self.held_id, self.held_token, *holder)


class PostgresLeases:
    """The implementation of :class:`metastore.port.leases.LeaseRows`."""

    def __init__(self, pool: Pool, ask: Fetch, send: Sending) -> None:
        self._pool, self._ask, self._send = pool, ask, send

    def take(self, take: Take) -> Taken | Conflicted | Unknown:
        parameters = {
            "operation_id": take.operation_id,
            "principal": take.principal,
            "names": texts(take.names),
            "paths": texts(take.paths),
            "owner": take.owner,
            "incarnation": take.incarnation,
            "ttl": take.ttl,
            "ticket": _LAST if take.ticket is None else take.ticket,
            "changes": changes_of(take.owner, take.incarnation),
        }
        rows = attempt(self._pool, sql.TAKE, parameters)
        if isinstance(rows, Conflicted | Unknown):
            return rows
        taken = [TakeRow(*row) for row in rows]
        first = taken[0]
        return Taken(
            first.now, tuple([row.taken(take) for row in taken if row.name is not None]), first.held, first.ahead
        )

    def renew(self, held: Sequence[LeaseToken], ttl: int) -> int | None:
        ((count, expires_at),) = self._ask(sql.RENEW, {**_tokens(held), "ttl": ttl})
        return expires_at if count == len(held) else None

    def release(
        self, held: Sequence[LeaseToken], paths: Sequence[str], operation_id: UUID, by: str | None
    ) -> int | Conflicted | Unknown:
        parameters = {**_tokens(held), "paths": texts(paths), "operation_id": operation_id, "principal": by}
        rows = attempt(self._pool, sql.RELEASE, parameters)
        return int(rows[0][0]) if isinstance(rows, list) else rows

    def break_(self, name: str, path: str, operation_id: UUID, by: str | None) -> bool | Conflicted | Unknown:
        parameters = {"names": texts([name]), "paths": texts([path]), "operation_id": operation_id, "principal": by}
        rows = attempt(self._pool, sql.BREAK, parameters)
        return bool(rows[0][0]) if isinstance(rows, list) else rows

    def mirror(self, mirror: Mirror) -> LeaseToken | Conflicted | Unknown | None:
        parameters = {
            "operation_id": mirror.operation_id,
            "principal": mirror.principal,
            "name": mirror.name,
            "path": mirror.path,
            "token": mirror.token,
            "incarnation": mirror.incarnation,
            "changes": changes_of(mirror.owner, mirror.incarnation),
        }
        rows = attempt(self._pool, sql.MIRROR, parameters)
        if isinstance(rows, Conflicted | Unknown):
            return rows
        ((lease_id, token, seen_id, seen_token, incarnation, _),) = rows
        if lease_id is not None:
            return LeaseToken(mirror.name, lease_id, token, mirror.incarnation)
        if (seen_token, incarnation) == (mirror.token, mirror.incarnation):
            return LeaseToken(mirror.name, seen_id, seen_token, mirror.incarnation)
        return None

    def rows(self, names: Sequence[str] | None, after: str, limit: int) -> tuple[int, list[LeaseRow]]:
        given = names is not None
        parameters = {"names": texts(names or ()), "after": after, "limit": limit}
        rows = self._ask(sql.ROWS[given], {k: parameters[k] for k in (("names",) if given else ("after", "limit"))})
        return (rows[0][0] if rows else 0), [LeaseRow(*row[1:]) for row in rows]

    def enter(self, names: Sequence[str], owner: str) -> int:
        return int(self._ask(sql.ENTER, {"names": texts(names), "owner": owner})[0][0])

    def leave(self, ticket: int, names: Sequence[str]) -> None:
        self._ask(sql.LEAVE, {"ticket": ticket, "names": texts(names)})

    @contextmanager
    def waker(self, ticket: int, names: Sequence[str]) -> Iterator[Waker]:
        """Listen on a separate connection; if none is available, the waiter looks at intervals."""
        channel = f"{sql.CHANNEL}{ticket}"
        connection: psycopg.Connection[Any] | None = None
        with suppress(psycopg.Error, MetastoreError):
            connection = self._pool.own_connection(f"UNLISTEN *; LISTEN {channel}")
        listener = _Listener(connection, channel)
        try:
            yield listener
        finally:
            if connection is not None:
                self._pool.take_back_own(connection, usable=listener.works)

    def stage(
        self, under: LeaseToken, staged_id: UUID, entity_id: int, key: str, value: str, by: str | None
    ) -> bool | None:
        what = {"id": staged_id, "entity_id": entity_id, "key": key, "value": value, "principal": by}
        ((staged, held),) = self._together(False, sql.STAGE, {**_tokens([under]), **what})
        return bool(staged) if staged or not held else None

    def staged(self, lease_id: int, token: int) -> list[Staged]:
        return [Staged(*row) for row in self._ask(sql.UNDER, {"lease_id": lease_id, "token": token})]

    def left_behind(self, after: UUID, limit: int) -> list[Staged]:
        return [Staged(*row) for row in self._ask(sql.LEFT_BEHIND, {"after": after, "limit": limit})]

    def doom(self, staged_id: UUID) -> bool:
        return bool(self._together(True, sql.DOOM, {"id": staged_id}))

    def _together(self, alone: bool, text: str, parameters: dict[str, Any]) -> list[Row]:
        """Send a statement in one transaction after the one that separates stagings and clean-ups."""
        return self._send([Statement(sql.CALM[alone], {}), Statement(text, parameters, writes=True)])

    def forget_published(self) -> None:
        self._ask(sql.FORGET_PUBLISHED, {})

    def unstage(self, ids: Sequence[UUID]) -> None:
        self._ask(sql.UNSTAGE, {"ids": plain(ids)})

    def fenced(self, lease_id: int, after: int, limit: int) -> list[Fenced]:
        parameters = {"pattern": f"%[{lease_id},%", "after": after, "limit": limit}
        return [Fenced(*row) for row in self._ask(sql.FENCED_BY, parameters)]

    def forget_waiters(self, before: int) -> None:
        self._ask(sql.FORGET_WAITERS, {"before": before})


def _tokens(held: Sequence[LeaseToken]) -> dict[str, Any]:
    return {
        "names": texts([lease.name for lease in held]),
        "tokens": plain([lease.token for lease in held]),
        "incarnations": texts([lease.incarnation for lease in held]),
    }


class _Listener:
    """A wait for a notice on a waiter's channel; without a connection, a wait for the time to pass."""

    def __init__(self, connection: psycopg.Connection[Any] | None, channel: str) -> None:
        self._connection, self._channel = connection, channel

    @property
    def works(self) -> bool:
        """Whether the connection can be used again."""
        return self._connection is not None

    def wait(self, seconds: float) -> None:
        ends = SYSTEM.monotonic() + min(seconds, _BLIND_POLL if self._connection is None else _POLL)
        while (left := min(ends - SYSTEM.monotonic(), remaining(SYSTEM, math.inf))) > 0:
            if self._connection is None:
                SYSTEM.sleep(left)
            elif self._called(left):
                return

    def _called(self, seconds: float) -> bool:
        assert self._connection is not None
        try:
            calls = list(self._connection.notifies(timeout=seconds, stop_after=1))
            return any(call.channel == self._channel for call in calls)
        except psycopg.Error:
            self._connection = None
            return False
