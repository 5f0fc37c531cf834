"""The history of an entity, and entries of history and change feed from rows of the operation table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from metastore.arguments import positive_integer
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.change import decode
from metastore.kinds.entity import Change, Entity, Owned, Version, utc
from metastore.kinds.kind import Kind
from metastore.kinds.secret import masked
from metastore.managers.pages.page import Page, TokenScope
from metastore.managers.pages.sources import NumberedSource, page_after
from metastore.managers.target import Target, find, in_hand, names_of
from metastore.names import parse_path
from metastore.operation.kept_result import entity_at
from metastore.operation.request import View, committed
from metastore.operation.session import ManagerSession
from metastore.operation.timed import timing
from metastore.plain import parsed
from metastore.port.backend import Reads
from metastore.port.note import reason_in
from metastore.port.records import Origin, Step, all_pages
from metastore.port.unreadable import Unreadable, check_unreadable, kept, naming

V = TypeVar("V", bound=Version)
_PAGE = 500


def history(session: ManagerSession, kind: Kind, target: Target, unreadable: Unreadable | None) -> Iterator[Version]:
    """Yield the entity's history, oldest first; ``unreadable`` gets the errors of damaged rows."""
    check_unreadable(unreadable)
    backend, origin = session.backend, session.backend.origin
    read = timing(session, "history", _own_steps(backend, target))
    steps = steps_of(read, _with_history(backend, kind, target))
    versions = (kept(partial(version_of, step, origin), unreadable) for step in steps)
    return (version for version in versions if version is not None)


def history_page(
    session: ManagerSession, kind: Kind, target: Target, size: int, token: str | None, after: int = 0
) -> Page[Version]:
    """Return one page of the entity's history, oldest first; without a token, after the version ``after``."""
    backend, origin, after = session.backend, session.backend.origin, positive_integer(after, "a version", least=0)

    def entity(in_token: int | None) -> int:
        try:
            entity_id = _with_history(backend, kind, target)
        except EntityNotFound:
            if in_token is None or isinstance(target, Entity):
                raise
            return in_token
        if in_token is not None and entity_id != in_token:
            raise InvalidArgument("the token is of another entity's history; begin without a token")
        return entity_id

    source = NumberedSource(
        listed=TokenScope("history", kind.name),
        entity=entity,
        read=_own_steps(backend, target),
        number=lambda step: step.version or 0,
        item=lambda step: version_of(step, origin),
    )
    return page_after(session, source, size, token, after)


def _own_steps(backend: Reads, target: Target) -> Callable[[int, int, int], Sequence[Step]]:
    def read(entity_id: int, after: int, limit: int) -> Sequence[Step]:
        return in_hand(backend, target, lambda: backend.history(entity_id, after, limit))

    return read


def _with_history(backend: Reads, kind: Kind, target: Target) -> int:
    """Return the id of the entity; a loaded entity may be a dropped one. Raises EntityNotFound."""
    if isinstance(target, Entity):
        names_of(kind, target)
        was_committed = committed(backend, target)
        if backend.by_id([target.id])[0] is None:
            if not was_committed:
                why = "the transaction that returned it did not commit, or it was purged"
                raise EntityNotFound(target.path, f"{target.path} (id {target.id}) has no history: {why}")
            raise EntityNotFound(
                target.path, f"{target.path} (id {target.id}) does not exist any more, nor does its history"
            )
        return target.id
    return find(View(backend, False), kind, target).chain[-1].id


def version_of(step: Step, origin: Origin) -> Version:
    """Return ``step`` as an entry of an entity's history. Raises UnreadableRow."""
    return naming(lambda: _made(Version, _fields(step, None, origin)), step.kind, step.entity_id, step.version)


def change_of(step: Step, position: str, origin: Origin) -> Change:
    """Return ``step`` as an entry of the change feed. Raises UnreadableRow."""
    fields = naming(lambda: _fields(step, position, origin), step.kind, step.entity_id, step.version, position)
    fields["position"], fields["kind"] = position, step.kind or ""
    fields["entity_id"], fields["other_path"] = step.entity_id or 0, step.other_path
    return _made(Change, fields)


def _fields(step: Step, position: str | None, origin: Origin) -> dict[str, Any]:
    """Return the fields of a :class:`Version`, with the function that makes its entity."""
    changes, path = step.changes, step.path_after or step.path_before
    if path is not None:
        # checked here, so that a damaged path fails in this call, and not when the caller asks for the entity
        parse_path(path)
    return {
        "version": step.version or 0,
        "operation_id": step.operation_id,
        "principal": step.principal,
        "reason": reason_in(step.fences),
        "time": utc(step.time),
        "action": step.action,
        "path_before": step.path_before,
        "path_after": step.path_after,
        "changes": decode(parsed(masked(changes))) if changes and changes != "[]" else (),
        "_entity": partial(_entity, step, position, origin),
    }


def _entity(step: Step, position: str | None, origin: Origin) -> Entity | Owned | None:
    """Return the entity as it was after a step. Raises UnreadableRow."""
    return naming(lambda: entity_at(step, origin=origin), step.kind, step.entity_id, step.version, position)


def _made(cls: type[V], fields: dict[str, Any]) -> V:
    """Return a frozen value without a call of its constructor.

    The constructor sets each field separately, which takes as long as all the rest of reading a change.
    """
    made = object.__new__(cls)
    made.__dict__.update(fields)
    return made


def steps_of(read: Callable[[int, int, int], Sequence[Step]], entity_id: int) -> Iterator[Step]:
    """Yield an entity's steps, oldest first, from a backend's ``history``."""
    return all_pages(lambda after: read(entity_id, after, _PAGE), 0, lambda step: step.version or 0, _PAGE)
