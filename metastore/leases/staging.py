"""Work outside the store: written down where nobody sees it, and made visible by one commit under the lease.

A holder who is late may go on producing files for as long as he likes. What he stages is refused, or belongs to a token
that nobody has any more: no commit can publish it, no reader sees it, and gc hands it over to be removed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from metastore.arguments import shown
from metastore.backends.lease_port import LeaseRows, Staged
from metastore.changes import EntityChange, SetProperty
from metastore.commit import LeaseToken
from metastore.entity import Entity, utc
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds import kind_named
from metastore.kinds.kind import MAX_DOC
from metastore.leases.lease import Hold
from metastore.names import clean_text
from metastore.session import Call, Session
from metastore.transaction import Transaction, run_transaction

__all__ = ["LeftBehind", "StoreStaging", "clear_away"]

_PAGE = 500
_FIRST = UUID(int=0)


@dataclass(frozen=True)
class LeftBehind:
    """Something that was staged under a lease and never published; nobody can publish it any more."""

    lease: str
    token: int
    entity_id: int
    key: str
    value: str
    principal: str | None
    time: datetime


class StoreStaging:
    """Keeps the promises of :class:`metastore.leases.lease.Staging`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._one_at_a_time = threading.Lock()  # what one thread publishes the other need not find published

    def stage(self, token: LeaseToken, entity: Entity, key: str, value: str) -> bool:
        if not isinstance(entity, Entity):
            raise InvalidArgument(f"work is staged for an entity that was loaded, not for {shown(entity)}")
        key, value = _text(key, "the key of what is staged"), _text(value, "what is staged")
        session = self._session
        rows, staged_id = session.backend.leases, session.clock.operation_id()
        return rows.stage(token, staged_id, entity.id, key, value, session.principal)

    def publish(self, hold: Hold, changes: object) -> tuple[Entity, ...]:
        with self._one_at_a_time:
            rows = self._session.backend.leases
            staged = [s for t in hold.tokens() for s in rows.staged(t.id, t.token) if not s.published]
            newest = {(s.entity_id, s.key): s.value for s in staged}
            ids = tuple([s.id for s in staged if newest[s.entity_id, s.key] == s.value])
            entities = self._entities(sorted({s.entity_id for s in staged}))
            work = changes if callable(changes) and not isinstance(changes, type) else None
            more_changes = list(_by_entity(changes, entities)) if work is None else []  # once: fn runs again

            def fn(tx: Transaction) -> tuple[Entity, ...]:
                tx.publishes = ids
                wanted: dict[int, tuple[Entity, list[EntityChange]]] = {
                    e.id: (e, [SetProperty(k, v) for (i, k), v in newest.items() if i == e.id]) for e in entities
                }
                if work is not None:
                    work(tx)
                for entity, more in more_changes:
                    wanted.setdefault(entity.id, (entity, []))[1].extend(more)
                return tuple([tx.manager(e.kind).alter(e, *all_of_it) for e, all_of_it in wanted.values()])

            return run_transaction(self._session, fn, Call(lease=hold))

    def _entities(self, ids: Sequence[int]) -> list[Entity]:
        found: list[Entity] = []
        for entity_id, known in zip(ids, self._session.backend.by_id(ids), strict=True):
            if known is None:
                message = f"the entity {entity_id}, for which something was staged, was purged; stage it for another"
                raise EntityNotFound(str(entity_id), message)
            found.append(kind_named(known.record.chain[-1].kind).entity(known.record))
        return found


def _by_entity(changes: object, entities: Sequence[Entity]) -> Iterator[tuple[Entity, list[EntityChange]]]:
    if isinstance(changes, Mapping):
        for entity, more in changes.items():
            if not isinstance(entity, Entity):
                raise InvalidArgument(f"changes are given by entities that were loaded, not by {shown(entity)}")
            yield entity, _changes(more)
        return
    more = _changes(changes)
    if more and len(entities) != 1:
        raise InvalidArgument(
            f"something is staged for {len(entities)} entities: say which changes are for which, "
            "publish({entity: [change]})"
        )
    yield from ((entity, more) for entity in entities)


def _changes(changes: object) -> list[EntityChange]:
    several = [changes] if isinstance(changes, EntityChange) else changes
    if not isinstance(several, Iterable) or isinstance(several, str | bytes):
        raise InvalidArgument(f"changes are what alter takes, not {shown(changes)}")
    found = list(several)
    for change in found:
        if not isinstance(change, EntityChange):
            raise InvalidArgument(f"a change is what alter takes, not {shown(change)}")
    return found


def _text(text: object, what: str) -> str:
    found = clean_text(text, what)
    if not found or "\x00" in found:
        raise InvalidArgument(f"{what} must be a non-empty string without NUL")
    if len(found) > MAX_DOC:
        raise InvalidArgument(f"{what} has {len(found)} characters; no entity can hold more than {MAX_DOC} bytes")
    return found


def clear_away(rows: LeaseRows, clean_up: Callable[[LeftBehind], None] | None) -> int:
    """Forget what was published; hand over what nobody can publish any more, and then forget that. Return how many.

    What ``clean_up`` raises ends it; what it was given then comes again. Without it, only what was published goes.
    """
    after, count = _FIRST, 0
    while staged := rows.left_behind(after, _PAGE):
        after = staged[-1].id
        rows.unstage([s.id for s in staged if s.published])
        for work in [s for s in staged if not s.published] if clean_up is not None else []:
            assert clean_up is not None
            clean_up(_left_behind(work))
            rows.unstage([work.id])
            count += 1
    return count


def _left_behind(staged: Staged) -> LeftBehind:
    what = (staged.lease, staged.token, staged.entity_id, staged.key, staged.value)
    return LeftBehind(*what, staged.principal, utc(staged.time))
