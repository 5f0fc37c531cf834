"""Leases in the memory model: :mod:`metastore.port.leases` over dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from metastore.backends.memory.tables import Tables, Work
from metastore.clock import Clock
from metastore.port.commit import Conflicted, Unknown
from metastore.port.conditions import LeaseToken
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
from metastore.port.records import Step

_LOOKS = 0.005


class MemoryLeases:
    """The implementation of :class:`metastore.port.leases.LeaseRows`."""

    def __init__(self, change: Work, clock: Clock) -> None:
        self._change, self._clock = change, clock

    def take(self, take: Take) -> Taken | Conflicted | Unknown:
        def change(tables: Tables, now: int) -> Taken | Conflicted:
            refused = self._refused(tables, take.names, take.ticket, now)
            mine = [key for key in tables.waiters if key[1] == take.ticket]
            if refused is not None:
                tables.waiters.update({key: (tables.waiters[key][0], now + ALIVE) for key in mine})
                return refused
            if tables.row_of(take.operation_id) is not None:
                return Conflicted("operation")
            for key in mine:
                del tables.waiters[key]
            return Taken(now, tuple([self._take_one(tables, take, n, now) for n in range(len(take.names))]), None, None)

        return self._change(change)

    def _refused(self, tables: Tables, names: Sequence[str], ticket: int | None, now: int) -> Taken | None:
        rows = [tables.leases[name] for name in names if name in tables.leases]
        held = [row for row in rows if row.owner is not None and (row.expires_at or 0) > now]
        line = sorted(
            (t, name)
            for (name, t), (_, until) in tables.waiters.items()
            if name in names and now < until <= now + ALIVE
        )
        ahead = [name for t, name in line if ticket is None or t < ticket]
        return Taken(now, (), held[0] if held else None, ahead[0] if ahead else None) if held or ahead else None

    def _take_one(self, tables: Tables, take: Take, n: int, now: int) -> LeaseRow:
        name = take.names[n]
        before = tables.leases.get(name)
        lease_id, token = (before.id, before.token + 1) if before is not None else (tables.draw("id"), 1)
        row = LeaseRow(name, lease_id, token, take.owner, take.incarnation, now, now + take.ttl)
        tables.leases[name] = row
        action = "acquire" if before is None or before.owner is None else "takeover"
        _log(tables, row, action, (take.operation_id, n, take.principal, now, take.paths[n]))
        return row

    def renew(self, held: Sequence[LeaseToken], ttl: int) -> int | None:
        def change(tables: Tables, now: int) -> int | None:
            ours = [row for lease in held if (row := _ours(tables, lease)) is not None]
            tables.leases.update({row.name: row._replace(expires_at=now + ttl) for row in ours})
            return now + ttl if len(ours) == len(held) else None

        return self._change(change)

    def release(self, held: Sequence[LeaseToken], paths: Sequence[str], operation_id: UUID, by: str | None) -> int:
        def change(tables: Tables, now: int) -> int:
            before = _sent_before(tables, operation_id)
            ours = [(row, path) for lease, path in zip(held, paths, strict=True) if (row := _ours(tables, lease))]
            for n, (row, path) in enumerate(ours, before):
                _free(tables, row, "release", (operation_id, n, by, now, path))
            return before + len(ours)

        return self._change(change)

    def break_(self, name: str, path: str, operation_id: UUID, by: str | None) -> bool:
        def change(tables: Tables, now: int) -> bool:
            if _sent_before(tables, operation_id):
                return True
            row = tables.leases.get(name)
            if row is None or row.owner is None:
                return False
            _free(tables, row, "break", (operation_id, 0, by, now, path))
            return True

        return self._change(change)

    def mirror(self, mirror: Mirror) -> LeaseToken | Conflicted | Unknown | None:
        def change(tables: Tables, now: int) -> LeaseToken | Conflicted | None:
            before = tables.leases.get(mirror.name)
            known = 0 if before is None else before.token
            token = known + 1 if mirror.token is None else mirror.token
            if before is not None and token <= known:
                same = (token, mirror.incarnation) == (known, before.incarnation)
                return LeaseToken(mirror.name, before.id, known, mirror.incarnation) if same else None
            if tables.row_of(mirror.operation_id) is not None:
                return Conflicted("operation")
            lease_id = tables.draw("id") if before is None else before.id
            row = LeaseRow(mirror.name, lease_id, token, mirror.owner, mirror.incarnation, None, None)
            _log(tables, row, "mirror", (mirror.operation_id, 0, mirror.principal, now, mirror.path))
            tables.leases[mirror.name] = row._replace(owner=None)
            return LeaseToken(mirror.name, lease_id, token, mirror.incarnation)

        return self._change(change)

    def rows(self, names: Sequence[str] | None, after: str, limit: int) -> tuple[int, list[LeaseRow]]:
        def look(tables: Tables, now: int) -> tuple[int, list[LeaseRow]]:
            leases = sorted(tables.leases.values())
            if names is None:
                leases = [row for row in leases if row.name > after and row.owner is not None][:limit]
            else:
                leases = [row for row in leases if row.name in names]
            alive = [name for (name, _), (_, until) in tables.waiters.items() if now < until <= now + ALIVE]
            return now, [row._replace(waiting=alive.count(row.name)) for row in leases]

        return self._change(look)

    def enter(self, names: Sequence[str], owner: str) -> int:
        def change(tables: Tables, now: int) -> int:
            ticket = tables.draw("id")
            tables.waiters.update({(name, ticket): (owner, now + ALIVE) for name in names})
            return ticket

        return self._change(change)

    def leave(self, ticket: int, names: Sequence[str]) -> None:
        self._change(lambda tables, _: [tables.waiters.pop((name, ticket), None) for name in names])

    @contextmanager
    def waker(self, ticket: int, names: Sequence[str]) -> Iterator[Waker]:
        def may_take() -> bool:
            return self._change(lambda tables, now: self._refused(tables, names, ticket, now) is None)

        yield Looker(self._clock, may_take, lambda: _LOOKS)

    def stage(
        self, under: LeaseToken, staged_id: UUID, entity_id: int, key: str, value: str, by: str | None
    ) -> bool | None:
        def change(tables: Tables, now: int) -> bool | None:
            row = _ours(tables, under)
            if row is None:
                return False
            if any(s.value == value and s.state == DOOMED for s in tables.staged.values()):
                return None
            what = (row.id, row.token, row.name, entity_id, key, value, by, now)
            tables.staged.setdefault(staged_id, Staged(staged_id, *what, tables.draw("id"), STAGED))
            return True

        return self._change(change)

    def staged(self, lease_id: int, token: int) -> list[Staged]:
        def look(tables: Tables, _: int) -> list[Staged]:
            rows = [s for s in tables.staged.values() if (s.lease_id, s.token, s.state) == (lease_id, token, STAGED)]
            return sorted(rows, key=lambda row: row.number)

        return self._change(look)

    def left_behind(self, after: UUID, limit: int) -> list[Staged]:
        def look(tables: Tables, _: int) -> list[Staged]:
            rows = [s for s in tables.staged.values() if s.state != PUBLISHED and s.id > after and _gone(tables, s)]
            shown = {s.value for s in tables.staged.values() if s.state == PUBLISHED}
            return [row._replace(visible=row.value in shown) for row in sorted(rows)[:limit]]

        return self._change(look)

    def doom(self, staged_id: UUID) -> bool:
        def change(tables: Tables, _: int) -> bool:
            row = tables.staged.get(staged_id)
            if row is None or row.state == PUBLISHED or not _gone(tables, row):
                return False
            twins = [s for s in tables.staged.values() if s.value == row.value and s.id != row.id]
            if any(s.state == PUBLISHED or not _gone(tables, s) for s in twins):
                return False
            tables.staged[staged_id] = row._replace(state=DOOMED)
            return True

        return self._change(change)

    def forget_published(self) -> None:
        def change(tables: Tables, _: int) -> None:
            others = {s.value for s in tables.staged.values() if s.state != PUBLISHED}
            for row in list(tables.staged.values()):
                if row.state == PUBLISHED and _gone(tables, row) and row.value not in others:
                    del tables.staged[row.id]

        self._change(change)

    def unstage(self, ids: Sequence[UUID]) -> None:
        self._change(lambda tables, _: [tables.staged.pop(i, None) for i in ids])

    def fenced(self, lease_id: int, after: int, limit: int) -> list[Fenced]:
        def look(tables: Tables, _: int) -> list[Fenced]:
            later = [s for s in tables.steps if s.seq is not None and s.seq > after]
            steps = [s for s in later if f"[{lease_id}," in (s.fences or "")]
            return [
                Fenced(s.seq or 0, s.operation_id, s.principal, s.time, s.path_after or s.path_before, s.fences or "")
                for s in steps[:limit]
            ]

        return self._change(look)

    def forget_waiters(self, before: int) -> None:
        def change(tables: Tables, _: int) -> None:
            for key in [key for key, (_, until) in tables.waiters.items() if until < before]:
                del tables.waiters[key]

        self._change(change)


def _ours(tables: Tables, lease: LeaseToken) -> LeaseRow | None:
    row = tables.leases.get(lease.name)
    return row if row is not None and (row.token, row.incarnation) == (lease.token, lease.incarnation) else None


def _sent_before(tables: Tables, operation_id: UUID) -> int:
    """Return how many leases an earlier sending of the same call changed."""
    return sum(step.operation_id == operation_id and step.kind == "lease" for step in tables.steps)


def _gone(tables: Tables, staged: Staged) -> bool:
    """Return whether the lease no longer has the token under which a value was staged."""
    row = tables.leases.get(staged.lease)
    return row is None or (row.id, row.token) != (staged.lease_id, staged.token)


def _free(tables: Tables, row: LeaseRow, action: str, event: tuple[UUID, int, str | None, int, str]) -> None:
    _log(tables, row._replace(token=row.token + 1), action, event)
    tables.leases[row.name] = LeaseRow(row.name, row.id, row.token + 1, None, None, None, None)


def _log(tables: Tables, row: LeaseRow, action: str, event: tuple[UUID, int, str | None, int, str]) -> None:
    operation_id, ordinal, by, now, path = event
    tables.steps.append(
        Step(
            operation_id=operation_id,
            ordinal=ordinal,
            seq=tables.draw("seq"),
            entity_id=row.id,
            version=row.token,
            owner_id=None,
            kind="lease",
            action=action,
            principal=by,
            time=now,
            path_after=path,
            changes=changes_of(row.owner, row.incarnation),
        )
    )
