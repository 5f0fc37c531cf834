"""Write operations down, apply them for others, and set marks, on tables that are dictionaries.

As in :mod:`metastore.backends.memory.commit`, a copy of the tables replaces them if every precondition holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from metastore.backends.memory.commit import check_caller, check_guards, take_claim
from metastore.backends.memory.tables import Tables
from metastore.backends.memory.tickets import check_line
from metastore.backends.precondition import PreconditionFailed
from metastore.port.commit import Commit
from metastore.port.intents import PENDING, Entry, Help, Mark, Resolution
from metastore.port.note import note_of_intent
from metastore.port.records import Step
from metastore.port.writes import Result


def _above(tables: Tables, entity_id: int | None) -> Iterator[tuple[int, int]]:
    """Yield the id and the scope version of an entity, and of all its ancestors."""
    while entity_id is not None and (stands := tables.stands.get(entity_id)) is not None:
        yield stands.id, stands.scope_version
        entity_id = stands.parent_id


def write_down(tables: Tables, entry: Entry, now: int) -> Result:
    """Note an operation that is not applied; return the number of intents that were pending before."""
    check_caller(tables, entry.caller, now)
    take_claim(tables, entry.operation_id, entry.claim)
    if entry.settled is not None and entry.settled not in _above(tables, entry.entity_id):
        raise PreconditionFailed("read")
    before = 0 if entry.entity_id is None else len(tables.pending(entry.entity_id))
    tables.steps.append(
        Step(
            operation_id=entry.operation_id,
            ordinal=0,
            seq=None,
            entity_id=entry.entity_id,
            version=None,
            owner_id=None,
            kind=entry.kind,
            action=entry.action,
            principal=entry.principal,
            time=now,
            path_before=entry.path,
            changes=entry.changes,
            attempt=entry.claim,
            deadline=now + round(entry.seconds * 1_000_000) if entry.action == PENDING else None,
            digest=entry.caller.digest if entry.caller else None,
            result=entry.result,
            format=entry.format,
            fences=note_of_intent(entry),
        )
    )
    return Result(entry.entity_id or 0, before, now)


def help_intents(tables: Tables, help_: Help, now: int) -> tuple[Result, ...]:
    """Resolve intents of one entity, in order."""
    check_guards(tables, help_.guards, None)
    stand = tables.stands.get(help_.id)
    if stand is not None and stand.mark is not None:
        raise PreconditionFailed("marked", help_.id)
    check_line(tables, help_.id, None, now)
    return _resolve_all(tables, help_, now)


def carry(tables: Tables, commit: Commit, now: int) -> None:
    """Resolve intents after a commit's own writes, and remove its ticket."""
    for help_ in commit.carries:
        check_guards(tables, help_.guards, commit.operation_id)
        _resolve_all(tables, help_, now)
    for entity_id in commit.leaves:
        tables.tickets.pop((entity_id, commit.ticket or 0), None)


def _resolve_all(tables: Tables, help_: Help, now: int) -> tuple[Result, ...]:
    body = tables.bodies.get(help_.id)
    if body is None or body.version != help_.version:
        raise PreconditionFailed("self", help_.id, body and body.version)
    return tuple([_resolve(tables, help_, one, now) for one in help_.resolutions])


def _resolve(tables: Tables, help_: Help, one: Resolution, now: int) -> Result:
    intent = tables.row_of(one.operation_id)
    if intent is None or intent.action != PENDING:
        raise PreconditionFailed("pending", help_.id)
    body, stand = tables.bodies[help_.id], tables.stands[help_.id]
    if one.action != "alter":
        attempt = (intent.attempt or 0) + (one.action in ("moved", "expired"))
        decided = intent._replace(action=one.action, result=one.result, time=now, attempt=attempt)
        tables.replace_step(intent, decided)
        return Result(help_.id, body.version, now)
    doc = body.doc if one.doc is None else one.doc
    body = body._replace(version=body.version + 1, doc=doc, modified_by=one.principal, modified_at=now)
    tables.bodies[help_.id] = body
    applied = intent._replace(
        seq=tables.draw("seq"),
        version=body.version,
        action="alter",
        time=now,
        path_before=help_.path,
        path_after=help_.path,
        scope_version=stand.scope_version,
        in_use=stand.in_use,
        parent_id=stand.parent_id,
        name=stand.name,
        fold=stand.fold,
        state=stand.state,
        doc=doc,
        changes=intent.changes if one.changes is None else one.changes,
    )
    tables.replace_step(intent, applied)
    return Result(help_.id, body.version, now)


def set_mark(tables: Tables, mark: Mark, now: int) -> Result:
    """Mark a guard; a freeze bumps its scope version."""
    check_guards(tables, mark.guards, None)
    stand = tables.stands.get(mark.id)
    if stand is None or mark.scope_version not in (None, stand.scope_version):
        raise PreconditionFailed("ancestor", mark.id, stand and stand.scope_version)
    if stand.mark not in (None, mark.operation_id) or stand.others_turn(now):
        raise PreconditionFailed("marked", mark.id)
    scope = stand.scope_version + (mark.scope_version is not None)
    until = now + round(mark.seconds * 1_000_000)
    tables.stands[mark.id] = stand._replace(
        mark=mark.operation_id, marked_at=now, marked_until=until, scope_version=scope
    )
    return Result(mark.id, scope, now)
