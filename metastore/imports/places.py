"""Find the entities that earlier imports made, wherever people moved them, so that a repeat makes none again.

An import notes the id of each entity that it made (:mod:`metastore.imports.notes`). It follows the entities that people
renamed or moved. Entities that they dropped stay dropped. An entity has no note if an import was killed just then, or
if an older release made it. Such entities are found by the path at which they were made, which the history shows.
Entities that ``gc`` has removed are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast
from unicodedata import is_normalized

from metastore.errors import DropPending, EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse
from metastore.imports.notes import Noted
from metastore.imports.root import Root
from metastore.kinds.entity import Entity
from metastore.names import clean_name, fold, format_path, parse_path
from metastore.store import Store
from metastore.transfer.walk import batched

__all__ = ["OF_ONE", "Place", "Places", "is_another"]

_PAGE: Final = 500
_READERS: Final = 8
"""How many histories are read at once."""
OF_ONE: Final = (EntityAlreadyExists, EntityNotFound, NotInUse, DropPending, InvalidArgument)
"""Errors that concern only one entity."""
Names = tuple[str, ...]


class Place(NamedTuple):
    """The place of a table or view in the store."""

    path: Names
    known: bool
    """Whether the entity was there when the import began."""
    own: bool = False
    """Whether imports surely made it for its path in the source, whatever its name is by now."""
    taken_by: Names | None = None
    """Another entity of the source that has this place, because both names are equal here."""

    def require_free(self) -> None:
        """Raise EntityAlreadyExists if another entity of the source has this place."""
        if self.taken_by is not None:
            raise _is_there(self.path, self.taken_by)


def _is_there(here: Names, other: Names) -> EntityAlreadyExists:
    return EntityAlreadyExists(format_path(here), f"{other[-1]!r} of the other catalog already has this name here")


def is_another(store: Store, kind: str, place: Place, there: Names) -> bool:
    """Return whether imports made the entity at a place for another path than ``there``, and people renamed it."""
    manager: Any = store.manager(kind)
    return not place.own and not _is_made_for(manager, manager.load(place.path), place.path, there)


def _is_made_for(manager: Any, entity: Entity, *paths: Names) -> bool:
    """Whether an entity was made at one of these paths, or was never renamed or moved; its ancestors may have been."""
    if entity.version == 1 or _first_place(manager, entity) in paths:  # a rename counts as a version
        return True
    return not any(one.action in ("rename", "move") for one in manager.history(entity))


def _first_place(manager: Any, entity: Entity) -> Names:
    """Return the path at which an entity was made, or the oldest that its history still shows."""
    oldest = next(iter(manager.history_page(entity, size=1).items), None)
    path = None if oldest is None else oldest.path_before or oldest.path_after
    return entity.names if path is None else parse_path(path)


class Places:
    """The places of one import below ``root``, a metalake or catalog.

    ``principal``: the principal of all imports of this kind.

    A container's path is the one in the source; its place is the path that it has here.
    """

    def __init__(self, store: Store, root: Root, principal: str) -> None:
        self._store, self._root, self._principal = store, root, principal
        self._here: dict[Names, Names | None] = {root.path: root.entity.names}
        """The place of each container; None: people have dropped it, or its import failed."""
        self._new = {root.path} if root.new else set[Names]()
        """The containers that were made just now, and were empty."""
        self._moved: dict[str, Mapping[Names, Entity]] = {}
        self._dropped: dict[tuple[str, Names], Mapping[Names, Entity]] = {}
        self._first: dict[int, Names] = {}
        self._folds: dict[Names, bool] = {}
        self._sources: dict[int, Names] = {}
        """The path that each container has in the source."""

    def container(self, kind: str, path: Names, **fields: Any) -> Entity | None:
        """Return the catalog or schema that the source has at ``path``, made if it is new.

        Return None if people dropped it, or an entity above it.

        Raises one of OF_ONE; then nothing below it has a place.
        """
        above, manager = self._here.get(path[:-1], path[:-1]), self._manager(kind)
        self._here[path] = None
        noted = None if path[:-1] in self._new else self._noted(kind, [path]).get(path)
        if noted is not None:
            return None if noted.dropped else self._stands(path, manager.load(noted.path))
        if above is None:
            return None
        here = (*above, path[-1])
        (found,) = manager.load_many([here])
        if path[:-1] not in self._new and not (found is not None and self._is_own(found, path, here)):
            moved = self._moved_to(kind, path, here)
            if moved is None and (gone := self._dropped_one(kind, above, path, here)) is not None:
                self._note(kind, path, gone)
                return None
            if moved is None and found is not None and found.created_by == self._principal:
                if found.names[-1] != path[-1] and (other := self._made_for_another(found, path)) is not None:
                    raise _is_there(here, other)
                what = f"{format_path(here)} was imported under another name; rename it, and import again"
                raise EntityAlreadyExists(format_path(here), what)
            found = moved or found
        if found is None:
            try:
                found = manager.create(here, lease=self._root.lease, **fields)
                self._new.add(path)
            except EntityAlreadyExists:  # somebody else was faster
                found = manager.load(here)
        found = self._stands(path, found)
        self._note(kind, path, found)
        return found

    def _stands(self, path: Names, found: Entity) -> Entity:
        """Note the place of a container. Raises EntityAlreadyExists if another one of the source has it."""
        if (other := self._sources.setdefault(found.id, path)) != path:
            raise _is_there(found.names, other)
        self._here[path] = found.names
        return found

    def of(self, kind: str, paths: Sequence[Names]) -> dict[Names, Place | None]:
        """Return the place of each table or view, by its path in the source; None: it was dropped here.

        A table that cannot be read now has a place: writing it fails later.
        """
        places: dict[Names, Place | None] = dict.fromkeys(paths)
        noted = self._noted(kind, [path for path in paths if path[:-1] not in self._new])
        for path, one in noted.items():
            places[path] = None if one.dropped else Place(one.path, known=True, own=True)
        others = [path for path in paths if path not in noted]
        places |= self._without_note(kind, others, {one.id for one in noted.values()})
        self._root.notes.write(self._root.lease)
        return self._apart(places)

    def remember(self, kind: str, places: Mapping[Names, Place | None]) -> None:
        """Note the entities that the import has just made at these places."""
        said = [(path, place) for path, place in places.items() if place is not None]
        new = {path: place.path for path, place in said if not place.known and place.taken_by is None}
        for path, found in zip(new, self._load(kind, [*new.values()]), strict=True):
            # a rename counts as a version: people may have given this name to another one just now
            if isinstance(found, Entity) and found.created_by == self._principal and found.version == 1:
                self._note(kind, path, found)
        self._root.notes.write(self._root.lease)

    def _noted(self, kind: str, paths: Sequence[Names]) -> dict[Names, Noted]:
        depth = len(self._root.path)  # without the root's name, which may differ in the next import
        noted = self._root.notes.of(kind, self._root.entity.id, [path[depth:] for path in paths])
        return {(*self._root.path, *path): one for path, one in noted.items()}

    def _note(self, kind: str, path: Names, entity: Entity) -> None:
        self._root.notes.add(kind, self._root.entity.id, path[len(self._root.path) :], entity)

    def _without_note(self, kind: str, paths: Sequence[Names], noted: AbstractSet[int]) -> dict[Names, Place | None]:
        """Return the places of entities that have no note, and note them.

        ``noted``: the ids of entities that have one.
        """
        places: dict[Names, Place | None] = dict.fromkeys(paths)
        above = {path: self._here.get(path[:-1], path[:-1]) for path in paths}
        wanted = {path: (*here, path[-1]) for path, here in above.items() if here is not None}
        there = [*zip(wanted.items(), self._load(kind, [*wanted.values()]), strict=True)]
        with ThreadPoolExecutor(_READERS, "import-places") as readers:

            def owns(one: tuple[tuple[Names, Names], Entity | Exception | None]) -> bool:
                return isinstance(one[1], Entity) and one[1].id not in noted and self._is_own(one[1], *one[0])

            own = {path for ((path, _), _), is_own in zip(there, readers.map(owns, there), strict=True) if is_own}
        missing, free, ids = dict[Names, Names](), set[Names](), {*noted}
        for (path, here), found in there:
            places[path] = Place(found.names if isinstance(found, Entity) else here, found is not None, path in own)
            if path in own:
                ids.add(cast(Entity, found).id)
                self._note(kind, path, cast(Entity, found))
            elif not isinstance(found, Exception) and path[:-1] not in self._new:
                missing[path] = here
                if found is None or found.created_by == self._principal:
                    free.add(path)
        if missing:
            places |= self._moved_or_dropped(kind, missing, free, ids)
        for (path, _), found in there:
            place = places[path]
            if (
                place is not None
                and not place.own
                and isinstance(found, Entity)
                and found.created_by == self._principal
            ):
                places[path] = place._replace(taken_by=self._made_for_another(found, path))
        return places

    def _moved_or_dropped(
        self, kind: str, missing: Mapping[Names, Names], free: AbstractSet[Names], ids: AbstractSet[int]
    ) -> dict[Names, Place | None]:
        """Return the places of entities that people moved or dropped.

        ``ids``: the entities that were made for other paths.
        """
        places = dict[Names, Place | None]()
        moved = self._by_first_place(kind, (one for one in self._live(kind) if one.id not in ids))
        for path, here in missing.items():
            if (one := moved.get(path) or moved.get(here)) is not None:
                places[path] = Place(one.names, known=True, own=True)
                self._note(kind, path, one)
            elif path in free:
                with suppress(*OF_ONE):  # the schema was dropped just now: each of its tables becomes a failure later
                    if (gone := self._dropped_one(kind, here[:-1], path, here)) is not None:
                        places[path] = None
                        self._note(kind, path, gone)
        return places

    def _apart(self, places: Mapping[Names, Place | None]) -> dict[Names, Place | None]:
        """Give each place to one table only: two names may be equal in NFC, or in a catalog that folds names."""
        apart, taken = dict(places), dict[Names, Names]()
        said = [(path, place) for path, place in places.items() if place is not None]

        # the order does not change from one import to the next, so the same table gets the place each time
        def rank(one: tuple[Names, Place]) -> tuple[bool, ...]:
            name, place = one[0][-1], one[1]
            return not place.own, name != place.path[-1], not is_normalized("NFC", name)

        for path, place in sorted(said, key=rank):
            if (other := taken.setdefault(self._name(place.path), path)) != path:
                apart[path] = place._replace(taken_by=other)
        return apart

    def _name(self, path: Names) -> Names:
        """Return a path as the store compares it."""
        try:
            names = tuple(map(clean_name, path))
        except InvalidArgument:  # the write to this path fails later
            return path
        if (folds := self._folds.get(names[:2])) is None:
            (catalog,) = self._load("catalog", [names[:2]])
            folds = self._folds[names[:2]] = isinstance(catalog, Entity) and bool(cast(Any, catalog).fold_case)
        return tuple(map(fold, names)) if folds else names

    def _manager(self, kind: str) -> Any:
        return self._store.manager(kind)

    def _load(self, kind: str, paths: Sequence[Names]) -> Iterator[Entity | Exception | None]:
        """Yield the entity at each path, None, or one of the errors OF_ONE."""
        load_many = self._manager(kind).load_many
        for some in batched(paths, _PAGE):
            try:
                yield from load_many(some)
            except OF_ONE:
                for path in some:
                    try:
                        yield from load_many([path])
                    except OF_ONE as error:
                        yield error

    def _is_own(self, found: Entity, path: Names, here: Names) -> bool:
        """Whether an import made ``found``, which is at ``here``, for ``path``."""
        if found.created_by != self._principal or self._made_for_another(found, path) is not None:
            return False
        return _is_made_for(self._manager(found.kind), found, path, here)

    def _made_for_another(self, found: Entity, path: Names) -> Names | None:
        """Return the path in the source for which imports made an entity, if it is not ``path`` but in its namespace.

        Where a catalog folds names, the source's table ``Orders`` must not get the data of its table ``orders``.
        """
        # a rename counts as a version
        first = found.names if found.version == 1 else _first_place(self._manager(found.kind), found)
        other = (*path[:-1], first[-1])
        noted = self._noted(found.kind, [other]).get(other) if other != path else None
        return other if noted is not None and noted.id == found.id else None

    def _moved_to(self, kind: str, path: Names, here: Names) -> Entity | None:
        if kind not in self._moved:
            self._moved[kind] = self._by_first_place(kind, self._live(kind))
        return self._moved[kind].get(path) or self._moved[kind].get(here)

    def _live(self, kind: str) -> Iterator[Entity]:
        """Yield the live entities of a kind that imports have made, and people may have renamed."""
        return (one for one in self._store.find(kind=kind) if one.created_by == self._principal and one.version > 1)

    def _dropped_one(self, kind: str, above: Names, *paths: Names) -> Entity | None:
        """Return the entity that imports made at one of these paths, and that people dropped from ``above``."""
        manager, known = self._manager(kind), self._dropped.get((kind, above), {})
        if known.keys().isdisjoint(paths):  # people may have dropped it just now
            dropped = (one for one in manager.dropped(above) if one.created_by == self._principal)
            known = self._dropped[kind, above] = self._by_first_place(kind, dropped)
        return next((known[path] for path in paths if path in known), None)

    def _by_first_place(self, kind: str, entities: Iterable[Entity]) -> dict[Names, Entity]:
        found, manager = list(entities), self._manager(kind)
        new = [one for one in found if one.id not in self._first]
        with ThreadPoolExecutor(_READERS, "import-places") as readers:
            places = readers.map(lambda one: _first_place(manager, one), new)
            self._first |= {one.id: place for one, place in zip(new, places, strict=True)}
        return {self._first[one.id]: one for one in found}
