"""Write under ``If-Match`` and under a client's key, so that a repeat gets the result of the first request.

The commit of a write checks its precondition: the id and the version that the tag names. A repeat of a write that was
applied finds a newer version, or no entity at all. So the outcome of the key's first request is looked up first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from uuid import UUID

from metastore.errors import OperationIdReused, VersionConflict
from metastore.http.etags import Tags, etag
from metastore.kinds.entity import Entity
from metastore.managers.declared import DeclaredManager
from metastore.store import Store

__all__ = ["conditioned"]

T = TypeVar("T")
Write = Callable[[Any, dict[str, Any]], T]
"""A write to a path or an entity, with the call's options."""


def conditioned(
    store: Store, manager: DeclaredManager, path: str, tags: Tags | None, key: UUID | None, write: Write[T]
) -> T:
    """Run a write under its precondition, and return its result.

    Raises VersionConflict (412) if no tag names the entity's state.
    """
    options = {} if key is None else {"operation_id": key}
    if tags is None or tags.anything:  # the write itself raises if the entity does not exist
        return write(path, options)
    for entity in _meant(store, manager, path, key):
        versions = sorted(tags.versions_of(entity.id), key=lambda version: _likely(entity, version))
        for version in versions:
            try:
                return write(entity, {**options, "expected_version": version})
            except OperationIdReused:  # the key's first request may have had another one of these versions
                if version == versions[-1]:
                    raise
    raise VersionConflict(path, None, etag(entity), f"{path} has the tag {etag(entity)}; load it again")


def _meant(store: Store, manager: DeclaredManager, path: str, key: UUID | None) -> Iterator[Entity]:
    """Yield the entity that the key's first request returned, then the entity at the path. Raises EntityNotFound."""
    known = None if key is None else store.outcome(key).result
    if isinstance(known, Entity) and known.kind == manager._kind.name:  # noqa: SLF001  (the same package)
        yield known
    yield manager.load(path)


def _likely(entity: Entity, version: int) -> tuple[bool, bool, int]:
    """Return a sort key of versions: the current one first, then the one before it, then the newest."""
    return version != entity.version, version != entity.version - 1, -version
