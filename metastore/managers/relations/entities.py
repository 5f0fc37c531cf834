"""Load the entities at the ends of relations: owners, members, roles, groups."""

from __future__ import annotations

from collections.abc import Iterator

from metastore.kinds.entity import Entity
from metastore.kinds.registry import kind_named
from metastore.kinds.relation import Relation
from metastore.managers.relations.ends import EndOf
from metastore.managers.relations.reads import live_relating, related_end
from metastore.operation.session import ManagerSession
from metastore.port.relations import in_one_metalake

_MANY = 200


def leads_to(session: ManagerSession, relation: Relation, end: EndOf, kind: str | None = None) -> list[Entity]:
    """Return the entities to which an entity is related, by name; ``kind``: only entities of this kind."""
    members = related_end(session.backend, relation, end)
    ids = [far.chain[-1].id for _, far in members.rows if in_one_metalake(members.end, far)]
    entities = [entity for entity in _loaded(session, ids) if kind in (None, entity.kind)]
    return sorted(entities, key=lambda entity: (entity.kind, entity.name))


def leading_to(
    session: ManagerSession, relation: Relation, end: EndOf, kinds: tuple[str, ...] = ()
) -> Iterator[Entity]:
    """Yield the entities that are related to an entity, by id; ``kinds``: only entities of these kinds."""
    ids: list[int] = []
    for row, target, _, _ in live_relating(session.backend, relation, end):
        if not kinds or target.chain[-1].kind in kinds:
            ids.append(row.from_id)
        if len(ids) == _MANY:
            yield from _loaded(session, ids)
            ids = []
    yield from _loaded(session, ids)


def _loaded(session: ManagerSession, ids: list[int]) -> Iterator[Entity]:
    origin = session.backend.origin
    for known in session.backend.by_id(ids) if ids else []:
        if known is not None and known.live:
            yield kind_named(known.record.chain[-1].kind).entity(known.record, origin)
