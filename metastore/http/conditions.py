"""Write under ``If-Match`` and under a client's key, so that a repeat gets what the first request got.

The precondition of a write is checked by its commit: the id and the version that the tag names. A repeat of a write
that was applied finds a newer version, or no entity at all. So what the key has done is asked first.
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
"""Writes to a path or an entity, with options of the call."""


def conditioned(
    store: Store, manager: DeclaredManager, path: str, tags: Tags | None, key: UUID | None, write: Write[T]
) -> T:
    """Return what a write returns. Raises VersionConflict (412) if no tag names the state that it meets."""
    options = {} if key is None else {"operation_id": key}
    if tags is None or tags.anything:  # the write itself raises if the entity does not exist
        return write(path, options)
    for entity in _meant(store, manager, path, key):
        versions = sorted(tags.versions_of(entity.id), key=lambda version: _likely(entity, version))
        for version in versions:
            try:
                return write(entity, {**options, "expected_version": version})
            except OperationIdReused:  # the key was used with another of these tags
                if version == versions[-1]:
                    raise
    raise VersionConflict(path, None, etag(entity), f"{path} has the tag {etag(entity)}; load it again")


def _meant(store: Store, manager: DeclaredManager, path: str, key: UUID | None) -> Iterator[Entity]:
    """Yield the entity that the key's first request returned, then what is at the path. Raises EntityNotFound."""
    known = None if key is None else store.outcome(key).result
    if isinstance(known, Entity) and known.kind == manager._kind.name:  # noqa: SLF001  (the same package)
        yield known
    yield manager.load(path)


def _likely(entity: Entity, version: int) -> tuple[bool, bool, int]:
    """Return an order of versions: that of now, the one before, then the newest."""
    return version != entity.version, version != entity.version - 1, -version
