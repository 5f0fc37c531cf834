"""Gather the relations of an entity: its owner, the tags on it and its columns, and the grants that apply to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from metastore.kinds.attached import Attached, attached
from metastore.kinds.entity import Entity
from metastore.kinds.registry import kind_named
from metastore.kinds.relation import TAG_ON
from metastore.managers.all import Managers
from metastore.managers.relations.ends import end_of
from metastore.managers.relations.reads import live_related
from metastore.managers.relations.writes import column_paths
from metastore.port.relations import NO_COLUMN

__all__ = ["Around", "around", "granted"]


class Around(NamedTuple):
    """The owner, the tags and the grants of an entity."""

    owner: str | None
    tags: list[Attached]
    """The entity's own and inherited tags, then those of its columns."""
    grants: list[dict[str, str]]
    """The grants and denials on the entity and above it; for a role, first its own."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {"owner": self.owner, "tags": [one.to_dict() for one in self.tags], "grants": self.grants}


def around(store: Managers, entity: Entity) -> Around:
    """Return the owner, tags and grants of an entity."""
    owner = store.owners.of(entity)
    tags = [*store.tags.on(entity), *_of_columns(store, entity)]
    of_role = [one.to_dict() for one in store.roles.grants(entity)] if entity.kind == "role" else []
    grants = [{"role": g["role"], "privilege": g["privilege"], "effect": g["effect"], "on": g["path"]} for g in of_role]
    return Around(None if owner is None else owner.path, tags, grants + list(granted(store, entity)))


def granted(store: Managers, entity: Entity) -> Iterator[dict[str, str]]:
    """Yield the privileges that roles are allowed or denied on an entity, then those on its ancestors."""
    for one in (entity, *_above(store, entity)):
        for grant in store.relations("grant").targets(one):
            effect, _, privilege = (grant.value or "").partition(":")
            yield {"role": grant.target_path, "privilege": privilege, "effect": effect, "on": grant.path}


def _above(store: Managers, entity: Entity) -> list[Entity]:
    """Return the ancestors of an entity, the nearest first; the package of an ancestor's kind need not be installed."""
    backend = store._session.backend  # noqa: SLF001  (a manager loads one kind at a time)
    known = backend.by_id([node.id for node in reversed(entity.record.chain[:-1])])
    records = [one.record for one in known if one is not None and one.live]
    return [kind_named(record.chain[-1].kind).entity(record, backend.origin) for record in records]


def _of_columns(store: Managers, entity: Entity) -> Iterator[Attached]:
    backend = store._session.backend  # noqa: SLF001  (a manager reads the tags of one column at a time)
    paths = column_paths(entity.record.doc, entity.record.chain[-1])
    for row, far, _, here in live_related(backend, TAG_ON, end_of(entity, ())):
        if row.column_id != NO_COLUMN and (names := paths.get(row.column_id)) is not None:
            yield attached(row, here.chain, far.chain, names)
