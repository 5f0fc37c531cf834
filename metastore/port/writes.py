"""The writes of a commit to entities, owned rows and relations, each with its event; and the result of a write."""

from __future__ import annotations

from metastore.port.records import Record
from metastore.port.relations import RelationKey
from metastore.port.value import value


@value
class Event:
    """The content of history and feed about one write. ``changes`` is JSON text."""

    kind: str
    action: str
    path_before: str | None
    path_after: str | None
    changes: str = "[]"
    other_path: str | None = None
    """For a relation: the path of its other end."""


@value
class Insert:
    """A new entity with version 1 and scope version 1. Without ``id``, the backend draws one."""

    parent_id: int
    kind: str
    family: str
    name: str
    key: str
    fold: bool
    doc: str
    event: Event
    id: int | None = None


@value
class Place:
    """The place of an entity: its parent and its name."""

    parent_id: int
    name: str
    key: str
    fold: bool


@value
class Named:
    """A live child of an entity, given by its name. The backend finds it at the instant of the commit."""

    parent_id: int
    family: str
    key: str


@value
class Update:
    """One more version of the entity ``id``, which must have the version ``version`` before.

    With ``scope_version`` the update is exclusive: it also expects that scope version, and raises it by one. Only an
    exclusive update may change the place, the state or the in-use flag. ``empty``: it must have no live children.

    With ``named`` it is an exclusive update, alone in its commit, of the live child with that name and the event's
    kind. Then ``id`` and ``scope_version`` are 0, a ``version`` of 0 means any version, and the entity keeps its own
    ``fold``. The commit conflicts ("self") if no such child exists. A backend may always answer so: the sender then
    reads the entity, and gives its id.
    """

    id: int
    version: int
    event: Event
    doc: str | None = None
    scope_version: int | None = None
    place: Place | None = None
    state: int | None = None
    in_use: bool | None = None
    empty: bool = False
    named: Named | None = None


@value
class Put:
    """Write an owned row of ``owner_id``; ``version`` is the expected one, 0 for a new row.

    ``id``: the row's id, because a row that was deleted and created again is another row. 0: the same commit creates
    it.
    """

    owner_id: int
    kind: str
    name: str
    version: int
    doc: str
    event: Event
    id: int = 0


@value
class Delete:
    """Delete an owned row of ``owner_id``, whose version is ``version``; ``id`` as in :class:`Put`."""

    owner_id: int
    kind: str
    name: str
    version: int
    event: Event
    id: int = 0


@value
class Relate:
    """Write or remove a relation. ``version`` is the expected one, 0 for a new relation; ``id``: see :class:`Put`.

    Its key is (from_id, kind, slot, column_id, value). ``slot`` is ``to_id``; or 0, so that the unique key allows one
    relation of the kind from an entity. History keeps ``doc``.
    """

    from_id: int
    kind: str
    slot: int
    column_id: int
    value: str
    to_id: int
    version: int
    doc: str
    event: Event
    id: int = 0
    removes: bool = False

    @property
    def key(self) -> RelationKey:
        """The value that identifies the relation."""
        return RelationKey(self.from_id, self.kind, self.slot, self.column_id, self.value)


Write = Insert | Update | Put | Delete | Relate


@value
class Advance:
    """A consumer of the feed has read up to ``to``. Its stored position must be ``seq``."""

    name: str
    seq: int
    to: int


@value
class Result:
    """The result of a write: the id, the new version, and the database's time (µs since 1970)."""

    id: int
    version: int
    time: int
    scope_version: int | None = None
    """The scope version after an update that is not exclusive, which does not check it. None: as it was seen."""
    found: Record | None = None
    """For an update by name with a new place: the entity before the update, without its ancestors."""
