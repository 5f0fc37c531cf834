"""Where people have put what earlier imports made here, so that a repeated import makes none of it again.

An import finds what it made by the path at which it made it, which the history shows. It follows what people renamed or
moved. What they dropped stays dropped. It knows nothing of what ``gc`` has removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast
from unicodedata import is_normalized

from metastore.errors import DropPending, EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse
from metastore.kinds.entity import Entity
from metastore.names import clean_name, fold, format_path, parse_path
from metastore.store import Store
from metastore.transfer.walk import batched

__all__ = ["OF_ONE", "Place", "Places", "is_another"]

_PAGE: Final = 500
_READERS: Final = 8
"""How many histories are read at once."""
OF_ONE: Final = (EntityAlreadyExists, EntityNotFound, NotInUse, DropPending, InvalidArgument)
"""Errors of one entity, which say nothing of others."""
Names = tuple[str, ...]


class Place(NamedTuple):
    """Where a table or view belongs here."""

    path: Names
    known: bool
    """Whether it was there when the import began."""
    followed: bool = False
    """Whether people have renamed or moved it."""
    taken_by: Names | None = None
    """Another one of the source that has this place, because their names are one here."""

    def require_free(self) -> None:
        """Raise EntityAlreadyExists if another one of the source has this place."""
        if self.taken_by is not None:
            raise EntityAlreadyExists(format_path(self.path), f"{self.taken_by[-1]!r} there has this name here")


def is_another(store: Store, kind: str, place: Place, there: Names) -> bool:
    """Whether imports made what has a place elsewhere than at ``there``, and people then gave it this name."""
    manager: Any = store.manager(kind)
    return not place.followed and not _is_made_for(manager, manager.load(place.path), place.path, there)


def _is_made_for(manager: Any, entity: Entity, *paths: Names) -> bool:
    """Whether an entity was made at one of these paths, or has its first name; ancestors may have been renamed."""
    if entity.version == 1 or _first_place(manager, entity) in paths:  # a rename counts as a version
        return True
    return not any(one.action in ("rename", "move") for one in manager.history(entity))


def _first_place(manager: Any, entity: Entity) -> Names:
    """Return the path at which an entity was made, or the oldest that its history still shows."""
    oldest = next(iter(manager.history_page(entity, size=1).items), None)
    path = None if oldest is None else oldest.path_before or oldest.path_after
    return entity.names if path is None else parse_path(path)


class Places:
    """The places of one import below ``root``, a metalake or catalog. ``principal``: of all imports of its kind.

    In the source, a container has its own path; its place is the path that it has here. ``new``: the root was made just
    now.
    """

    def __init__(self, store: Store, root: Names, principal: str, *, new: bool) -> None:
        self._store, self._principal = store, principal
        self._here: dict[Names, Names | None] = {root: root}
        """The place of each container; None: people have dropped it, or it is a failure."""
        self._new = {root} if new else set[Names]()
        """The containers that were made just now: nothing was below them."""
        self._moved: dict[str, Mapping[Names, Entity]] = {}
        self._dropped: dict[tuple[str, Names], Mapping[Names, Entity]] = {}
        self._first: dict[int, Names] = {}
        self._folds: dict[Names, bool] = {}
        self._sources: dict[int, Names] = {}
        """The path that each container has in the source."""

    def container(self, kind: str, path: Names, **fields: Any) -> Entity | None:
        """Return the catalog or schema that the source has at ``path``, made if it is new; None: people dropped it.

        Raises one of OF_ONE; then nothing below it has a place.
        """
        above, manager = self._here.get(path[:-1], path[:-1]), self._manager(kind)
        self._here[path] = None
        if above is None:
            return None
        here = (*above, path[-1])
        (found,) = manager.load_many([here])
        if path[:-1] not in self._new and not (found is not None and self._is_own(found, path, here)):
            moved = self._moved_to(kind, path, here)
            if moved is None and self._is_dropped(kind, above, path, here):
                return None
            if moved is None and found is not None and found.created_by == self._principal:
                what = f"{format_path(here)} was imported under another name; rename it, and import again"
                raise EntityAlreadyExists(format_path(here), what)
            found = moved or found
        if found is None:
            try:
                found = manager.create(here, **fields)
                self._new.add(path)
            except EntityAlreadyExists:  # another import was faster
                found = manager.load(here)
        if (other := self._sources.setdefault(found.id, path)) != path:
            raise EntityAlreadyExists(found.path, f"{other[-1]!r} there has this name here")
        self._here[path] = found.names
        return cast(Entity, found)

    def of(self, kind: str, paths: Sequence[Names]) -> dict[Names, Place | None]:
        """Return the place of each table or view, by the path that the source gives it; None: it was dropped here.

        A table that cannot be read now has a place: it is a failure when it is written.
        """
        places: dict[Names, Place | None] = dict.fromkeys(paths)
        above = {path: self._here.get(path[:-1], path[:-1]) for path in paths}
        wanted = {path: (*here, path[-1]) for path, here in above.items() if here is not None}
        there = [*zip(wanted.items(), self._load(kind, [*wanted.values()]), strict=True)]
        with ThreadPoolExecutor(_READERS, "import-places") as readers:
            owns = readers.map(lambda one: isinstance(one[1], Entity) and self._is_own(one[1], *one[0]), there)
            own = {path for ((path, _), _), is_own in zip(there, owns, strict=True) if is_own}
        missing, free, ids = dict[Names, Names](), set[Names](), set[int]()
        for (path, here), found in there:
            places[path] = Place(found.names if isinstance(found, Entity) else here, found is not None)
            if path in own:
                ids.add(cast(Entity, found).id)
            elif not isinstance(found, Exception) and path[:-1] not in self._new:
                missing[path] = here
                if found is None or found.created_by == self._principal:
                    free.add(path)
        if missing:
            moved = self._by_first_place(kind, (one for one in self._live(kind) if one.id not in ids))
            for path, here in missing.items():
                if (one := moved.get(path) or moved.get(here)) is not None:
                    places[path] = Place(one.names, known=True, followed=True)
                    own.add(path)
                elif path in free:
                    with suppress(*OF_ONE):  # the schema was dropped just now: each of its tables is a failure
                        if self._is_dropped(kind, here[:-1], path, here):
                            places[path] = None
        return self._apart(places, own)

    def _apart(self, places: Mapping[Names, Place | None], own: AbstractSet[Names]) -> dict[Names, Place | None]:
        """Give each place to one table only: where a catalog folds names, or in NFC, two of them may be one name."""
        apart, taken = dict(places), dict[Names, Names]()
        said = [(path, place) for path, place in places.items() if place is not None]

        def rank(one: tuple[Names, Place]) -> tuple[bool, ...]:  # who gets the place this time gets it the next time
            path, name = one[0], one[0][-1]
            return path not in own, name != one[1].path[-1], not is_normalized("NFC", name)

        for path, place in sorted(said, key=rank):
            if (other := taken.setdefault(self._name(place.path), path)) != path:
                apart[path] = place._replace(taken_by=other)
        return apart

    def _name(self, path: Names) -> Names:
        """Return what the store compares of a path."""
        try:
            names = tuple(map(clean_name, path))
        except InvalidArgument:  # it is a failure when it is written
            return path
        if (folds := self._folds.get(names[:2])) is None:
            (catalog,) = self._load("catalog", [names[:2]])
            folds = self._folds[names[:2]] = isinstance(catalog, Entity) and bool(cast(Any, catalog).fold_case)
        return tuple(map(fold, names)) if folds else names

    def _manager(self, kind: str) -> Any:
        return self._store.manager(kind)

    def _load(self, kind: str, paths: Sequence[Names]) -> Iterator[Entity | Exception | None]:
        """Yield what is at each path, or one of OF_ONE."""
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
        """Whether an import made what is at ``here`` for ``path``."""
        return found.created_by == self._principal and _is_made_for(self._manager(found.kind), found, path, here)

    def _moved_to(self, kind: str, path: Names, here: Names) -> Entity | None:
        if kind not in self._moved:
            self._moved[kind] = self._by_first_place(kind, self._live(kind))
        return self._moved[kind].get(path) or self._moved[kind].get(here)

    def _live(self, kind: str) -> Iterator[Entity]:
        """Yield the live entities of a kind that imports have made, and people may have renamed."""
        return (one for one in self._store.find(kind=kind) if one.created_by == self._principal and one.version > 1)

    def _is_dropped(self, kind: str, above: Names, *paths: Names) -> bool:
        """Whether people have dropped from ``above`` what imports made at one of these paths."""
        manager, known = self._manager(kind), self._dropped.get((kind, above), {})
        if known.keys().isdisjoint(paths):  # people may have dropped it just now
            dropped = (one for one in manager.dropped(above) if one.created_by == self._principal)
            known = self._dropped[kind, above] = self._by_first_place(kind, dropped)
        return not known.keys().isdisjoint(paths)

    def _by_first_place(self, kind: str, entities: Iterable[Entity]) -> dict[Names, Entity]:
        found, manager = list(entities), self._manager(kind)
        new = [one for one in found if one.id not in self._first]
        with ThreadPoolExecutor(_READERS, "import-places") as readers:
            places = readers.map(lambda one: _first_place(manager, one), new)
            self._first |= {one.id: place for one, place in zip(new, places, strict=True)}
        return {self._first[one.id]: one for one in found}
