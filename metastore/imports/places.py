"""Where people have put what earlier imports made here, so that a repeated import makes none of it again.

An import finds what it made by the path at which it made it, which the history shows. It follows what people renamed or
moved. What they dropped stays dropped. It knows nothing of what ``gc`` has removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from metastore.kinds.entity import Entity
from metastore.names import parse_path
from metastore.store import Store
from metastore.transfer.walk import batched

__all__ = ["Place", "Places", "is_another"]

_PAGE: Final = 500
Names = tuple[str, ...]


class Place(NamedTuple):
    """Where a table or view belongs here. ``known``: it was there when the import began."""

    path: Names
    known: bool


def is_another(store: Store, kind: str, here: Names, there: Names) -> bool:
    """Whether people have renamed or moved what is ``here``, so that it is not what imports made at ``there``."""
    manager: Any = store.manager(kind)
    entity = manager.load(here)
    moved = any(one.action in ("rename", "move") for one in manager.history(entity))
    return moved and _first_place(manager, entity) not in (here, there)


def _first_place(manager: Any, entity: Entity) -> Names:
    """Return the path at which an entity was made, or the oldest that its history still shows."""
    oldest = next(manager.history(entity), None)
    path = None if oldest is None else oldest.path_before or oldest.path_after
    return entity.names if path is None else parse_path(path)


class Places:
    """The places of one import below ``root``, a metalake or catalog. ``principal``: of all imports of its kind."""

    def __init__(self, store: Store, root: Names, principal: str, *, new: bool) -> None:
        self._store, self._lake, self._principal = store, root[:1], principal
        self._here: dict[Names, Names | None] = {root: root}
        """The place of each container, by the path that the source gives it; None: people have dropped it."""
        self._new = {root} if new else set[Names]()
        """The containers that were made just now: nothing was below them."""
        self._moved: dict[str, Mapping[Names, Entity]] = {}

    def container(self, kind: str, path: Names, **fields: Any) -> Entity | None:
        """Return the catalog or schema that the source has at ``path``, made if it is new; None: people dropped it."""
        above, manager = self._here.get(path[:-1], path[:-1]), self._manager(kind)
        self._here[path] = None
        if above is None:
            return None
        (found,) = manager.load_many([(*above, path[-1])])
        if (found is None or found.created_by != self._principal) and path[:-1] not in self._new:
            if kind not in self._moved:
                self._moved[kind] = self._by_first_place(kind, self._live(kind))
            found = self._moved[kind].get(path, found)
            if found is None and path in self._dropped(kind, path[:-1], above, {path[-1]}):
                return None
        if found is None:
            found = manager.create((*above, path[-1]), if_exists="return", **fields)
            self._new.add(path)
        self._here[path] = found.names
        return cast(Entity, found)

    def of(self, kind: str, paths: Sequence[Names]) -> dict[Names, Place | None]:
        """Return the place of each table or view, by the path that the source gives it; None: it was dropped here."""
        above = {path: self._here.get(path[:-1], path[:-1]) for path in paths}
        places = {path: None if here is None else Place((*here, path[-1]), False) for path, here in above.items()}
        wanted = {place.path: path for path, place in places.items() if place is not None}
        found: dict[Names, Entity] = {}
        for some in batched(wanted, _PAGE):
            entities = self._manager(kind).load_many(some)
            found |= {here: one for here, one in zip(some, entities, strict=True) if one is not None}
        places |= {wanted[here]: Place(here, True) for here in found}
        missing = {path for here, path in wanted.items() if here not in found and path[:-1] not in self._new}
        if not missing:
            return places
        moved = self._by_first_place(kind, (one for one in self._live(kind) if one.names not in found))
        places |= {path: Place(moved[path].names, True) for path in missing & moved.keys()}
        missing -= moved.keys()
        for schema in {path[:-1] for path in missing}:
            names = {path[-1] for path in missing if path[:-1] == schema}
            here = cast(Names, above[(*schema, min(names))])
            places |= dict.fromkeys(missing & self._dropped(kind, schema, here, names))
        return places

    def _manager(self, kind: str) -> Any:
        return self._store.manager(kind)

    def _live(self, kind: str) -> Iterator[Entity]:
        """Yield the live entities of a kind that imports have made."""
        return (one for one in self._store.find(self._lake, kind=kind) if one.created_by == self._principal)

    def _by_first_place(self, kind: str, entities: Iterator[Entity]) -> dict[Names, Entity]:
        return {_first_place(self._manager(kind), one): one for one in entities}

    def _dropped(self, kind: str, above: Names, here: Names, names: Collection[str]) -> set[Names]:
        """Return the paths at which imports made what was dropped from ``here``, which the source calls ``above``.

        ``names``: those that are looked for. What has another one may have been renamed before.
        """
        dropped = [one for one in self._manager(kind).dropped(here) if one.created_by == self._principal]
        there = {(*above, one.name) for one in dropped if one.name in names}
        return there | {_first_place(self._manager(kind), one) for one in dropped if one.name not in names}
