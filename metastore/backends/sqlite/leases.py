"""Leases on SQLite: each change is inside a transaction that excludes all other writers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from metastore.backends.precondition import PreconditionFailed
from metastore.backends.sql.dialect import Fetch
from metastore.backends.sqlite.checks import take_row
from metastore.backends.sqlite.group import Written, wrote
from metastore.backends.sqlite.writer import next_id, next_seq
from metastore.clock import Clock
from metastore.port.commit import Conflicted, Unknown
from metastore.port.conditions import LeaseToken
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.leases import (
    ALIVE,
    DOOMED,
    PUBLISHED,
    STAGED,
    Fenced,
    LeaseRow,
    Looker,
    Mirror,
    Staged,
    Take,
    Taken,
    Waker,
    changes_of,
)

Row = tuple[Any, ...]

_LOOKS = 0.02
"""How often a waiter looks whether it has its turn (seconds). The look only reads, so it blocks no writer."""

_COLUMNS = "name, id, token, owner, incarnation, acquired_at, expires_at"
_ALIVE = f"alive_until > :now AND alive_until <= :now + {ALIVE}"
"""Whether a waiter is alive: its last look is recent, and not ahead of a set-back clock."""
_WAITING = f"(SELECT count(*) FROM lease_waiter w WHERE w.name = lease.name AND {_ALIVE})"
_BY_NAME = f"SELECT {_COLUMNS}, {_WAITING} FROM lease WHERE name IN (SELECT value FROM json_each(:names)) ORDER BY name"
_AFTER = (
    f"SELECT {_COLUMNS}, {_WAITING} FROM lease WHERE name > :after AND owner IS NOT NULL ORDER BY name LIMIT :limit"
)
_AHEAD = f"""SELECT name FROM lease_waiter WHERE name IN (SELECT value FROM json_each(:names))
  AND (:ticket IS NULL OR ticket < :ticket) AND {_ALIVE} ORDER BY ticket LIMIT 1"""
_FREE = """UPDATE lease SET token = token + 1, owner = NULL, incarnation = NULL, took_over = 0, acquired_at = NULL,
  expires_at = NULL WHERE name = ? RETURNING id, token"""
_COLUMNS_STAGED = "id, lease_id, token, lease, entity_id, key, value, principal, time, number, state"
_GONE = "NOT EXISTS (SELECT 1 FROM lease l WHERE l.name = s.lease AND l.token = s.token AND l.id = s.lease_id)"
_TWIN = "SELECT 1 FROM staged o WHERE o.value = s.value AND o.id <> s.id AND"


class SqliteLeases:
    """The implementation of :class:`metastore.port.leases.LeaseRows`."""

    def __init__(self, written: Written, ask: Fetch, clock: Clock) -> None:
        self._written, self._ask, self._clock = written, ask, clock

    def take(self, take: Take) -> Taken | Conflicted | Unknown:
        parameters = {"names": json.dumps(take.names), "ticket": take.ticket, "now": self._clock.micros()}
        refused = self._refused(self._ask, parameters)
        if refused is not None and take.ticket is None:
            return refused  # a read is enough to refuse, so no writer has to wait
        try:
            return self._written(lambda connection, now: self._take(connection, take, now))
        except PreconditionFailed as failed:
            return failed.conflict

    def _refused(self, ask: Fetch, parameters: dict[str, Any]) -> Taken | None:
        now = parameters["now"]
        rows = [LeaseRow(*row) for row in ask(_BY_NAME, parameters)]
        held = next((row for row in rows if row.owner is not None and (row.expires_at or 0) > now), None)
        ahead = ask(_AHEAD, parameters)
        return None if held is None and not ahead else Taken(now, (), held, ahead[0][0] if ahead else None)

    def _take(self, connection: Any, take: Take, now: int) -> Taken:
        def ask(text: str, parameters: dict[str, Any]) -> list[Row]:
            rows: list[Row] = connection.execute(text, parameters).fetchall()
            return rows

        parameters = {"names": json.dumps(take.names), "ticket": take.ticket, "now": now}
        refused = self._refused(ask, parameters)
        if refused is not None:
            sql = "UPDATE lease_waiter SET alive_until = ? WHERE ticket = ?"
            connection.execute(sql, (now + ALIVE, take.ticket))
            return refused
        take_row(connection, take.operation_id, 0)
        taken = [self._take_one(connection, take, n, now) for n in range(len(take.names))]
        connection.execute("DELETE FROM lease_waiter WHERE ticket = ?", (take.ticket,))
        return Taken(now, tuple(taken), None, None)

    def _take_one(self, connection: Any, take: Take, n: int, now: int) -> LeaseRow:
        name, expires_at = take.names[n], now + take.ttl
        held = connection.execute("SELECT id, token, owner FROM lease WHERE name = ?", (name,)).fetchone()
        lease_id, token, before = held or (next_id(connection), 0, None)
        holder = (token + 1, take.owner, take.incarnation, before is not None, now, expires_at)
        connection.execute(
            """INSERT INTO lease (name, id, token, owner, incarnation, took_over, acquired_at, expires_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET token = excluded.token,
            owner = excluded.owner, incarnation = excluded.incarnation, took_over = excluded.took_over,
            acquired_at = excluded.acquired_at, expires_at = excluded.expires_at""",
            (name, lease_id, *holder),
        )
        action = "acquire" if before is None else "takeover"
        changes = changes_of(take.owner, take.incarnation)
        event = (take.operation_id, n, lease_id, token + 1, action, take.principal, now, take.paths[n], changes)
        _log(connection, event)
        return LeaseRow(name, lease_id, token + 1, take.owner, take.incarnation, now, expires_at)

    def renew(self, held: Sequence[LeaseToken], ttl: int) -> int | None:
        def change(connection: Any, now: int) -> int | None:
            sql = "UPDATE lease SET expires_at = ? WHERE name = ? AND token = ? AND incarnation = ? RETURNING 1"
            done = [connection.execute(sql, (now + ttl, *_own(lease))).fetchall() for lease in held]
            return now + ttl if all(done) else None

        return self._written(change)

    def release(self, held: Sequence[LeaseToken], paths: Sequence[str], operation_id: UUID, by: str | None) -> int:
        def change(connection: Any, now: int) -> int:
            count = _sent_before(connection, operation_id)
            for lease, path in zip(held, paths, strict=True):
                sql = "SELECT owner, incarnation FROM lease WHERE name = ? AND token = ? AND incarnation = ?"
                whose = connection.execute(sql, _own(lease)).fetchone()
                if whose is not None:
                    _free(connection, lease.name, whose, ("release", path, operation_id, count, by, now))
                    count += 1
            return count

        return self._written(change)

    def break_(self, name: str, path: str, operation_id: UUID, by: str | None) -> bool:
        def change(connection: Any, now: int) -> bool:
            if _sent_before(connection, operation_id):
                return True
            sql = "SELECT owner, incarnation FROM lease WHERE name = ? AND owner IS NOT NULL"
            whose = connection.execute(sql, (name,)).fetchone()
            if whose is not None:
                _free(connection, name, whose, ("break", path, operation_id, 0, by, now))
            return whose is not None

        return self._written(change)

    def mirror(self, mirror: Mirror) -> LeaseToken | Conflicted | Unknown | None:
        def change(connection: Any, now: int) -> LeaseToken | None:
            sql = "SELECT id, token, incarnation FROM lease WHERE name = ?"
            held = connection.execute(sql, (mirror.name,)).fetchone()
            lease_id, known, incarnation = held or (next_id(connection), 0, None)
            token = known + 1 if mirror.token is None else mirror.token
            if token > known:
                take_row(connection, mirror.operation_id, 0)
                connection.execute(
                    """INSERT INTO lease (name, id, token, incarnation, took_over) VALUES (?, ?, ?, ?, 0)
                    ON CONFLICT (name) DO UPDATE SET token = excluded.token, incarnation = excluded.incarnation,
                    owner = NULL, acquired_at = NULL, expires_at = NULL""",
                    (mirror.name, lease_id, token, mirror.incarnation),
                )
                changes = changes_of(mirror.owner, mirror.incarnation)
                event = (mirror.operation_id, 0, lease_id, token, "mirror", mirror.principal, now, mirror.path, changes)
                _log(connection, event)
            elif (token, mirror.incarnation) != (known, incarnation):
                return None
            return LeaseToken(mirror.name, lease_id, token, mirror.incarnation)

        try:
            return self._written(change)
        except PreconditionFailed as failed:
            return failed.conflict

    def rows(self, names: Sequence[str] | None, after: str, limit: int) -> tuple[int, list[LeaseRow]]:
        now = self._clock.micros()
        parameters = {"names": json.dumps(names), "after": after, "limit": limit, "now": now}
        return now, [LeaseRow(*row) for row in self._ask(_AFTER if names is None else _BY_NAME, parameters)]

    def enter(self, names: Sequence[str], owner: str) -> int:
        def change(connection: Any, now: int) -> int:
            ticket = next_id(connection)
            rows = [(name, ticket, owner, now + ALIVE) for name in names]
            connection.executemany(
                "INSERT INTO lease_waiter (name, ticket, owner, alive_until) VALUES (?, ?, ?, ?)", rows
            )
            return ticket

        return self._written(change)

    def leave(self, ticket: int, names: Sequence[str]) -> None:
        self._written(lambda c, _: c.execute("DELETE FROM lease_waiter WHERE ticket = ?", (ticket,)).rowcount)

    @contextmanager
    def waker(self, ticket: int, names: Sequence[str]) -> Iterator[Waker]:
        def may_take() -> bool:
            parameters = {"names": json.dumps(names), "ticket": ticket, "now": self._clock.micros()}
            return self._refused(self._ask, parameters) is None

        yield Looker(self._clock, may_take, lambda: self._clock.uniform(_LOOKS / 2, _LOOKS * 3 / 2))

    def stage(
        self, under: LeaseToken, staged_id: UUID, entity_id: int, key: str, value: str, by: str | None
    ) -> bool | None:
        def change(connection: Any, now: int) -> bool | None:
            doomed = "SELECT 1 FROM staged WHERE value = ? AND state = ?"
            if connection.execute(doomed, (value, DOOMED)).fetchone() is not None:
                return None
            return bool(
                connection.execute(
                    f"""INSERT INTO staged ({_COLUMNS_STAGED})
                    SELECT ?, id, token, name, ?, ?, ?, ?, ?, ?, ? FROM lease
                    WHERE name = ? AND token = ? AND incarnation = ?
                    ON CONFLICT (id) DO UPDATE SET time = time RETURNING 1""",
                    (str(staged_id), entity_id, key, value, by, now, next_id(connection), STAGED, *_own(under)),
                ).fetchall()
            )

        return self._written(change)

    def staged(self, lease_id: int, token: int) -> list[Staged]:
        sql = f"""SELECT {_COLUMNS_STAGED} FROM staged
          WHERE lease_id = :lease_id AND token = :token AND state = {STAGED} ORDER BY number"""
        return [_staged(row) for row in self._ask(sql, {"lease_id": lease_id, "token": token})]

    def left_behind(self, after: UUID, limit: int) -> list[Staged]:
        sql = f"""SELECT {_COLUMNS_STAGED}, EXISTS ({_TWIN} o.state = {PUBLISHED}) FROM staged s
          WHERE id > :after AND state <> {PUBLISHED} AND {_GONE} ORDER BY id LIMIT :limit"""
        return [_staged(row) for row in self._ask(sql, {"after": str(after), "limit": limit})]

    def doom(self, staged_id: UUID) -> bool:
        sql = f"""UPDATE staged AS s SET state = {DOOMED} WHERE id = :id AND state <> {PUBLISHED} AND {_GONE}
          AND NOT EXISTS ({_TWIN} (o.state = {PUBLISHED} OR EXISTS (SELECT 1 FROM lease l
            WHERE l.name = o.lease AND l.token = o.token AND l.id = o.lease_id))) RETURNING 1"""
        return wrote(self._written, sql, id=str(staged_id))

    def forget_published(self) -> None:
        sql = f"""DELETE FROM staged AS s WHERE state = {PUBLISHED} AND {_GONE}
          AND NOT EXISTS ({_TWIN} o.state <> {PUBLISHED})"""
        self._written(lambda c, _: c.execute(sql).rowcount)

    def unstage(self, ids: Sequence[UUID]) -> None:
        self._written(lambda c, _: c.executemany("DELETE FROM staged WHERE id = ?", [(str(i),) for i in ids]).rowcount)

    def fenced(self, lease_id: int, after: int, limit: int) -> list[Fenced]:
        sql = """SELECT seq, operation_id, principal, time, coalesce(path_after, path_before), fences FROM operation
          WHERE fences IS NOT NULL AND seq > :after AND fences LIKE :pattern ORDER BY seq LIMIT :limit"""
        rows = self._ask(sql, {"pattern": f"%[{lease_id},%", "after": after, "limit": limit})
        return [Fenced(row[0], UUID(row[1]), *row[2:]) for row in rows]

    def forget_waiters(self, before: int) -> None:
        self._written(lambda c, _: c.execute("DELETE FROM lease_waiter WHERE alive_until < ?", (before,)).rowcount)


def _own(lease: LeaseToken) -> tuple[str, int, str]:
    return lease.name, lease.token, lease.incarnation


def _sent_before(connection: Any, operation_id: UUID) -> int:
    """Return how many leases an earlier sending of the same call changed."""
    sql = "SELECT count(*) FROM operation WHERE operation_id = ? AND kind = 'lease'"
    return int(connection.execute(sql, (str(operation_id),)).fetchone()[0])


def _free(connection: Any, name: str, whose: Row, event: tuple[str, str, UUID, int, str | None, int]) -> None:
    action, path, operation_id, ordinal, by, now = event
    ((lease_id, token),) = connection.execute(_FREE, (name,)).fetchall()
    _log(connection, (operation_id, ordinal, lease_id, token, action, by, now, path, changes_of(*whose)))


def _log(connection: Any, event: tuple[UUID, int, int, int, str, str | None, int, str, str]) -> None:
    operation_id, ordinal, *rest = event
    connection.execute(
        f"""INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, kind, action, principal,
        time, path_after, changes) VALUES ({SCHEMA_FORMAT}, ?, ?, ?, ?, ?, 'lease', ?, ?, ?, ?, ?)""",
        (str(operation_id), ordinal, next_seq(connection), *rest),
    )


def _staged(row: Row) -> Staged:
    staged = Staged(*row)
    return staged._replace(id=UUID(row[0]), visible=bool(staged.visible))
