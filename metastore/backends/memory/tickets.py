"""Let transactions queue for an entity in the memory model: take a ticket, read the line, leave it."""

from __future__ import annotations

from collections.abc import Sequence

from metastore.backends.memory.tables import Tables, Ticket
from metastore.backends.precondition import PreconditionFailed
from metastore.port.commit import Commit
from metastore.port.tickets import LONGEST_GAP, TICKETS_STAY, Line
from metastore.port.writes import Update


def queue(tables: Tables, ids: Sequence[int], patience: float, now: int) -> int:
    """Take a ticket behind all existing tickets."""
    number = tables.draw("ticket")
    for entity_id in ids:
        if entity_id in tables.stands:
            gap = tables.tickets.pop((entity_id, 0), Ticket(0, 0, 0))
            since = max(now, gap.since, *(0, *[t.since for _, t in _standing(tables, entity_id)]))
            tables.tickets[entity_id, number] = Ticket(now, round(patience * 1_000_000), since)
            if gap.since > now:
                tables.tickets[entity_id, 0] = gap
    return number


def line(tables: Tables, ids: Sequence[int], ticket: int | None, now: int) -> Line:
    """Return the line before a ticket; without a ticket, the line of all tickets that count now."""
    there = [(number, entity_id, one) for entity_id in ids for number, one in _standing(tables, entity_id)]
    mine = [one for number, _, one in there if number == ticket]
    exists = sum(entity_id in tables.stands for entity_id in ids)
    before = sorted(
        (number, entity_id, one)
        for number, entity_id, one in there
        if (number < ticket if ticket is not None else one.since <= now)
    )
    gap = max([0, *[one.since - now for one in mine]]) / 1e6
    held = ticket is not None and len(mine) == exists
    if not before:
        return Line(held=held, gap=gap)
    number, entity_id, one = before[0]
    body = tables.bodies.get(entity_id)
    ahead = len({number for number, _, _ in before})
    return Line(held, number, ahead, one.patience / 1e6, body and body.version, gap)


def leave(tables: Tables, ids: Sequence[int], ticket: int, gap: float, now: int) -> bool:
    """Remove a ticket, after which the others' turn begins."""
    gone = [entity_id for entity_id in ids if tables.tickets.pop((entity_id, ticket), None) is not None]
    until = now + min(round(gap * 1_000_000), LONGEST_GAP)
    for entity_id in gone if gap > 0 else ():
        tables.tickets[entity_id, 0] = Ticket(now, 0, until)
        for number, one in _standing(tables, entity_id):
            tables.tickets[entity_id, number] = one._replace(since=max(one.since, until))
    return bool(gone)


def forget(tables: Tables, now: int) -> None:
    """Remove the tickets whose owners have died."""
    for key in [key for key, one in tables.tickets.items() if one.time < now - TICKETS_STAY]:
        del tables.tickets[key]


def check_tickets(tables: Tables, commit: Commit, now: int) -> None:
    """Refuse to write an entity that another transaction queues for.

    An operation with a mark is exempt: the mark gives it the scope.
    """
    if commit.held is not None:
        return
    for write in commit.writes:
        if isinstance(write, Update) and write.scope_version is None:
            check_line(tables, write.id, commit.ticket, now)


def check_line(tables: Tables, entity_id: int, ticket: int | None, now: int) -> None:
    """Refuse to write an entity that has an older ticket than the caller's."""
    own = tables.tickets.get((entity_id, -1 if ticket is None else ticket))
    for number, one in _standing(tables, entity_id):
        if one.since <= now and (own is None or ticket is None or number < ticket):
            raise PreconditionFailed("ticket", entity_id)


def _standing(tables: Tables, entity_id: int) -> list[tuple[int, Ticket]]:
    return [(number, one) for (where, number), one in tables.tickets.items() if where == entity_id and number > 0]
