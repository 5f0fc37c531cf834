"""The metalake or catalog into which an import goes: found again after a rename, and used by one import at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metastore.errors import EntityNotFound
from metastore.imports.notes import Notes
from metastore.kinds.entity import Entity
from metastore.names import format_path

if TYPE_CHECKING:
    from metastore.leases.lease import Lease
    from metastore.store import Store

__all__ = ["PATIENCE", "TTL", "Root", "open_root"]

TTL: Final = 15.0
"""How long an import keeps its place after its process has died (seconds)."""
PATIENCE: Final = TTL + 5.0
"""How long an import waits for another one (seconds): the lease of one that was killed ends in this time."""
Names = tuple[str, ...]


class Root(NamedTuple):
    """The place into which an import goes."""

    path: Names
    """Its path as the import names it."""
    entity: Entity
    """The entity in the store; it may have another name."""
    notes: Notes
    lease: Lease
    new: bool
    """It was made just now: nothing was below it."""


@contextmanager
def open_root(store: Store, path: Names, principal: str, **fields: Any) -> Iterator[Root]:
    """Give the place of an import, made with ``fields`` if it is new, to one import at a time.

    An import of the same kind into the same place waits until the other one ends, or until the lease of a killed one is
    over. Raises LeaseHeld if the other one still runs then; EntityNotFound if people have dropped the place since an
    import went into it.
    """
    made = set[int]()
    _, entity, _ = _found(store, path, principal, made, fields)
    with store.leases.acquire(f"{principal} into {entity.id}", ttl=TTL, timeout=PATIENCE) as lease:
        # look again: people may have renamed or dropped the entity while this import waited for the lease
        metalake, entity, notes = _found(store, path, principal, made, fields)
        new = entity.id in made and not notes.of(entity.kind, 0, [path])
        notes.add("metalake", 0, path[:1], metalake)
        notes.add(entity.kind, 0, path, entity)
        notes.write(lease)
        yield Root(path, entity, notes, lease, new)


def _found(
    store: Store, path: Names, principal: str, made: set[int], fields: dict[str, Any]
) -> tuple[Entity, Entity, Notes]:
    """Return the metalake, the place (made if no import went there), and the notes of the metalake.

    People may have moved a catalog to another metalake; its notes stay in the metalake that the import names.
    """
    metalake = _live(store, "metalake", path[:1])
    if metalake is None:
        metalake = _renamed_metalake(store, path[:1], principal)
    if metalake is None:
        metalake = _made(store, "metalake", path[:1], made, {} if len(path) > 1 else fields)
    notes = Notes(store, metalake, principal)
    if len(path) == 1:
        return metalake, metalake, notes
    here = (*metalake.names, path[-1])
    if (catalog := _live(store, "catalog", here)) is None:
        noted = notes.of("catalog", 0, [path]).get(path)
        if noted is not None and noted.dropped:
            raise _dropped(path)
        if noted is not None:
            return metalake, store.catalogs.load(noted.path), notes
        catalog = _made(store, "catalog", here, made, fields)
    return metalake, catalog, notes


def _live(store: Store, kind: str, path: Names) -> Entity | None:
    manager: Any = store.manager(kind)
    (found,) = manager.load_many([path])
    return found  # type: ignore[no-any-return]


def _made(store: Store, kind: str, path: Names, made: set[int], fields: dict[str, Any]) -> Entity:
    manager: Any = store.manager(kind)
    entity: Entity = manager.create(path, if_exists="return", **fields)
    made.add(entity.id)
    return entity


def _renamed_metalake(store: Store, path: Names, principal: str) -> Entity | None:
    """Return the metalake into which an import by this name went. Raises EntityNotFound if people dropped it."""
    for metalakes in (store.metalakes.list(), store.metalakes.dropped()):
        for metalake in metalakes:
            noted = Notes(store, metalake, principal).of("metalake", 0, [path]).get(path)
            if noted is not None and noted.id == metalake.id:
                if noted.dropped:
                    raise _dropped(path)
                return metalake
    return None


def _dropped(path: Names) -> EntityNotFound:
    text = format_path(path)
    message = f"{text} was dropped here after an import went into it; restore it, purge it, or name another place"
    return EntityNotFound(text, message)
