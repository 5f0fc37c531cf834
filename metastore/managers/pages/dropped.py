"""Find the dropped entities that were at one path."""

from __future__ import annotations

from typing import Any

from metastore.kinds.entity import Entity
from metastore.managers.target import root_or_last
from metastore.operation.guards import key_under

_SIZE = 200


def dropped_at(manager: Any, names: tuple[str, ...]) -> list[Entity]:
    """Return the entities of a manager's kind that were dropped at a path, the last dropped one at the end.

    Raises EntityNotFound for a missing parent.
    """
    found, token = list[Entity](), None
    while True:
        page = manager.dropped_page(names[:-1] or None, size=_SIZE, token=token, prefix=names[-1])
        same = [one for one in page.items if _is_named(one, names[-1])]
        found, token = found + same, page.next_token
        if token is None or len(same) < len(page.items):  # all following entities have longer names
            return sorted(found, key=lambda one: (one.modified_at, one.id))


def _is_named(entity: Entity, name: str) -> bool:
    parent = root_or_last(entity.record.chain[:-1])
    return key_under(parent, entity.name) == key_under(parent, name)
