"""Stage work outside the store, where no reader sees it, and publish it in one commit under the lease.

A late holder may still produce files. A value that it stages is refused, or belongs to a token that has become invalid.
No commit can publish such a value, no reader sees it, and gc hands it over for removal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from metastore.arguments import items, shown
from metastore.errors import EntityNotFound, InvalidArgument, UnreadableRow
from metastore.kinds.change import EntityChange, SetProperty
from metastore.kinds.entity import Entity, utc
from metastore.kinds.kind import MAX_DOC
from metastore.kinds.registry import kind_named
from metastore.leases.hold import Hold
from metastore.managers.target import in_hand, not_live
from metastore.names import clean_text
from metastore.operation.request import Call
from metastore.operation.session import Session
from metastore.port.backend import Backend
from metastore.port.conditions import LeaseToken
from metastore.port.leases import Staged
from metastore.port.unreadable import document
from metastore.transaction.transaction import Transaction, run_transaction

__all__ = ["LeftBehind", "StoreStaging", "clear_away"]

_PAGE = 500
_FIRST = UUID(int=0)


@dataclass(frozen=True)
class LeftBehind:
    """A value that was staged under a lease, but never published, and that no commit can publish any more."""

    lease: str
    token: int
    entity_id: int
    key: str
    value: str
    principal: str | None
    time: datetime


class StoreStaging:
    """Stages and publishes values in a store (:class:`metastore.leases.hold.Staging`)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def stage(self, token: LeaseToken, entity: Entity, key: str, value: str) -> bool:
        if not isinstance(entity, Entity):
            raise InvalidArgument(f"work is staged for an entity that was loaded, not for {shown(entity)}")
        key, value = _text(key, "the key of what is staged"), _text(value, "what is staged")
        session = self._session
        rows, staged_id = session.backend.leases, session.clock.operation_id()
        stage = partial(rows.stage, token, staged_id, entity.id, key, value, session.principal)
        try:
            staged = in_hand(session.backend, entity, stage)
        except EntityNotFound:  # the value may be staged for another entity with this id
            rows.unstage([staged_id])
            raise
        if staged is None:
            raise InvalidArgument(f"{shown(value)} was left behind, and gc is cleaning it up; give new work a new name")
        return staged

    def publish(self, hold: Hold, changes: object, only: object) -> tuple[Entity, ...]:
        wanted = None if only is None else {_entity(e).id for e in items(only, "entities")}
        work = changes if callable(changes) and not isinstance(changes, type) else None
        given = () if work is not None else list(_given(changes))  # read once, because ``fn`` may run several times

        def fn(tx: Transaction) -> tuple[Entity, ...]:
            rows = self._session.backend.leases
            staged = [s for t in hold.tokens() for s in rows.staged(t.id, t.token)]
            staged = [s for s in staged if wanted is None or s.entity_id in wanted]
            newest = {(s.entity_id, s.key): s.value for s in staged}
            tx.publishes = tuple([s.id for s in staged if s.value in newest.values()])
            alters: dict[int, tuple[Entity, list[EntityChange]]] = {
                e.id: (e, [SetProperty(k, v) for (i, k), v in newest.items() if i == e.id])
                for e in self._entities(sorted({s.entity_id for s in staged}))
            }
            if work is not None:
                work(tx)
            for entity, more in _by_entity(given, [e for e, _ in alters.values()]):
                alters.setdefault(entity.id, (entity, []))[1].extend(more)
            return tuple([tx.manager(e.kind).alter(e, *all_of_it) for e, all_of_it in alters.values()])

        return run_transaction(self._session, fn, Call(lease=hold))

    def _entities(self, ids: Sequence[int]) -> list[Entity]:
        entities: list[Entity] = []
        for entity_id, known in zip(ids, self._session.backend.by_id(ids), strict=True):
            if known is None or not known.live:
                gone = "purged" if known is None else "dropped"
                raise not_live(
                    self._session.backend,
                    known,
                    str(entity_id),
                    f"the entity {entity_id}, for which a value was staged, was {gone}; publish the rest with only=; "
                    "gc cleans up what was staged for this one",
                )
            entities.append(kind_named(known.record.chain[-1].kind).entity(known.record))
        return entities


def _entity(entity: object) -> Entity:
    if not isinstance(entity, Entity):
        raise InvalidArgument(f"an entity that was loaded is expected, not {shown(entity)}")
    return entity


def _given(changes: object) -> Iterator[tuple[Entity | None, list[EntityChange]]]:
    """Yield each entity with its changes; None: the one entity that has staged values."""
    if isinstance(changes, Mapping):
        yield from ((_entity(entity), _changes(more)) for entity, more in changes.items())
    else:
        yield None, _changes(changes)


def _by_entity(
    given: Iterable[tuple[Entity | None, list[EntityChange]]], entities: Sequence[Entity]
) -> Iterator[tuple[Entity, list[EntityChange]]]:
    for entity, more in given:
        if entity is not None:
            yield entity, more
        elif more and len(entities) != 1:
            raise InvalidArgument(
                f"values are staged for {len(entities)} entities; say which changes belong to which: "
                "publish({entity: [change]})"
            )
        else:
            yield from ((e, more) for e in entities)


def _changes(changes: object) -> list[EntityChange]:
    several = [changes] if isinstance(changes, EntityChange) else changes
    if not isinstance(several, Iterable) or isinstance(several, str | bytes):
        raise InvalidArgument(f"changes are a change or a list of changes, as for alter, not {shown(changes)}")
    listed = list(several)
    for change in listed:
        if not isinstance(change, EntityChange):
            raise InvalidArgument(f"a change is an EntityChange, as for alter, not {shown(change)}")
    return listed


def _text(text: object, what: str) -> str:
    clean = clean_text(text, what)
    if not clean or "\x00" in clean:
        raise InvalidArgument(f"{what} must be a non-empty string without NUL")
    if len(clean) > MAX_DOC:
        raise InvalidArgument(f"{what} has {len(clean)} characters; no entity can hold more than {MAX_DOC} bytes")
    return clean


def clear_away(backend: Backend, clean_up: Callable[[LeftBehind], None] | None) -> int:
    """Call ``clean_up`` with each value that was left behind, then delete its row; return the number of these values.

    Without ``clean_up``, they stay. A visible value, which was published or is in its entity's document, is never
    handed over. A value stays if that document is damaged. If ``clean_up`` raises, the error ends the call, and the
    next call hands over the same value again.
    """
    rows = backend.leases
    after, count = _FIRST, 0
    while staged := rows.left_behind(after, _PAGE):
        after = staged[-1].id
        shown_now, unreadable = _shown(backend, staged)
        rows.unstage([s.id for s in staged if s.visible or s.id in shown_now])
        hidden = [s for s in staged if not s.visible and s.id not in shown_now | unreadable]
        for work in hidden if clean_up is not None else []:
            assert clean_up is not None
            if rows.doom(work.id):
                clean_up(_left_behind(work))
                rows.unstage([work.id])
                count += 1
    rows.forget_published()
    return count


def _shown(backend: Backend, staged: Sequence[Staged]) -> tuple[set[UUID], set[UUID]]:
    """Return the ids of the values that their entities' documents hold, and of those whose documents are damaged."""
    shown_now, unreadable = set[UUID](), set[UUID]()
    known = backend.by_id([s.entity_id for s in staged])
    for one, there in zip(staged, known, strict=True):
        try:
            if there is not None and _holds(document(there.record), one.value):
                shown_now.add(one.id)
        except UnreadableRow:
            unreadable.add(one.id)
    return shown_now, unreadable


def _holds(json: object, value: str) -> bool:
    if isinstance(json, Mapping):
        return any(_holds(inner, value) for inner in json.values())
    return any(_holds(inner, value) for inner in json) if isinstance(json, list) else json == value


def _left_behind(staged: Staged) -> LeftBehind:
    what = (staged.lease, staged.token, staged.entity_id, staged.key, staged.value)
    return LeftBehind(*what, staged.principal, utc(staged.time))
