"""Where people have put what earlier imports made here, so that a repeated import makes none of it again.

An import finds what it made by the path at which it made it, which the history shows. It follows what people renamed or
moved. What they dropped stays dropped. It knows nothing of what ``gc`` has removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

from metastore.errors import DropPending, EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse
from metastore.kinds.entity import Entity
from metastore.names import format_path, parse_path
from metastore.store import Store
from metastore.transfer.walk import batched

__all__ = ["OF_ONE", "Place", "Places", "is_another"]

_PAGE: Final = 500
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


def is_another(store: Store, kind: str, place: Place, there: Names) -> bool:
    """Whether imports made what has a place elsewhere than at ``there``, and people then gave it this name."""
    if place.followed:
        return False
    manager: Any = store.manager(kind)
    entity = manager.load(place.path)
    moved = any(one.action in ("rename", "move") for one in manager.history(entity))
    return moved and _first_place(manager, entity) not in (place.path, there)


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
        self._store, self._lake, self._principal = store, root[:1], principal
        self._here: dict[Names, Names | None] = {root: root}
        """The place of each container; None: people have dropped it, or it is a failure."""
        self._new = {root} if new else set[Names]()
        """The containers that were made just now: nothing was below them."""
        self._moved: dict[str, Mapping[Names, Entity]] = {}

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
        if path[:-1] not in self._new and not (found is not None and self._is_own(found, path)):
            moved = self._moved_to(kind, path, here)
            if moved is None and found is None and self._dropped(kind, above).keys() & {path, here}:
                return None
            if moved is None and found is not None and found.created_by == self._principal:
                what = f"{format_path(here)} was imported under another name; rename it, and import again"
                raise EntityAlreadyExists(format_path(here), what)
            found = moved or found
        if found is None:
            found = manager.create(here, if_exists="return", **fields)
            self._new.add(path)
        self._here[path] = found.names
        return cast(Entity, found)

    def of(self, kind: str, paths: Sequence[Names]) -> dict[Names, Place | None]:
        """Return the place of each table or view, by the path that the source gives it; None: it was dropped here.

        A table that cannot be read now has a place: it is a failure when it is written.
        """
        places: dict[Names, Place | None] = dict.fromkeys(paths)
        above = {path: self._here.get(path[:-1], path[:-1]) for path in paths}
        wanted = {path: (*here, path[-1]) for path, here in above.items() if here is not None}
        missing, in_place = dict[Names, Names](), set[Names]()
        for (path, here), found in zip(wanted.items(), self._load(kind, [*wanted.values()]), strict=True):
            places[path] = Place(here, found is not None)
            if isinstance(found, Entity) and found.created_by == self._principal:
                in_place.add(here)
            elif not isinstance(found, Exception) and path[:-1] not in self._new:
                missing[path] = here
        if not missing:
            return places
        moved = self._by_first_place(kind, (one for one in self._live(kind) if one.names not in in_place))
        gone = defaultdict[Names, list[Names]](list)
        for path, here in missing.items():
            if (one := moved.get(path) or moved.get(here)) is not None:
                places[path] = Place(one.names, known=True, followed=True)
            elif places[path] == Place(here, False):
                gone[here[:-1]].append(path)
        for schema, lost in gone.items():
            with suppress(*OF_ONE):  # the schema was dropped just now: each of its tables is a failure
                dropped = self._dropped(kind, schema)
                places |= {path: None for path in lost if path in dropped or missing[path] in dropped}
        return places

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

    def _is_own(self, found: Entity, path: Names) -> bool:
        """Whether an import made a container at ``path``, or where it is now; a rename would count as a version."""
        if found.created_by != self._principal:
            return False
        return found.version == 1 or _first_place(self._manager(found.kind), found) in (path, found.names)

    def _moved_to(self, kind: str, path: Names, here: Names) -> Entity | None:
        if kind not in self._moved:
            self._moved[kind] = self._by_first_place(kind, self._live(kind))
        return self._moved[kind].get(path) or self._moved[kind].get(here)

    def _live(self, kind: str) -> Iterator[Entity]:
        """Yield the live entities of a kind that imports have made."""
        return (one for one in self._store.find(self._lake, kind=kind) if one.created_by == self._principal)

    def _dropped(self, kind: str, above: Names) -> Mapping[Names, Entity]:
        """Return what imports made and people dropped from ``above``, by its first place."""
        manager = self._manager(kind)
        return self._by_first_place(kind, (one for one in manager.dropped(above) if one.created_by == self._principal))

    def _by_first_place(self, kind: str, entities: Iterable[Entity]) -> dict[Names, Entity]:
        return {_first_place(self._manager(kind), one): one for one in entities}
