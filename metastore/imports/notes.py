"""Notes about the entities that imports made: the id of each, by its path in the source.

They are rows of the metalake, one for each entity. So a rename, a move or a drop of an entity does not touch its note,
and gc does not remove the note. A note holds until its entity is purged or removed. A copy of a metalake may have the
notes of the original, where an id may belong to another entity: the time of creation shows that. A note has a path only
as a hash. Users do not see notes in the feed, because they could guess the paths of entities that they do not see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from metastore.kinds.entity import Entity
from metastore.kinds.kind import dump
from metastore.kinds.origin import ORIGIN, Origin
from metastore.kinds.registry import kind_named
from metastore.managers.owned import OwnedManager
from metastore.managers.owned_rows import Row
from metastore.port.records import Known, OwnedRecord
from metastore.port.unreadable import naming
from metastore.transfer.walk import batched

if TYPE_CHECKING:
    from metastore.leases.lease import Lease
    from metastore.store import Store

__all__ = ["Noted", "Notes"]

_PAGE: Final = 500
Names = tuple[str, ...]


class Noted(NamedTuple):
    """An entity that a note names, which is not purged."""

    id: int
    path: Names
    """Its names now, or when it was dropped."""
    dropped: bool
    """Whether people have dropped it, or an ancestor. During a drop in steps, it does not count as dropped yet."""


class Notes:
    """The notes of one metalake about the entities that one kind of import (``principal``) made."""

    def __init__(self, store: Store, metalake: Entity, principal: str) -> None:
        self._store, self._metalake, self._principal = store, metalake, principal
        self._rows = OwnedManager[Origin](store._session, ORIGIN, kind_named("metalake"))  # noqa: SLF001  (no store has one)
        self._new: dict[str, Row] = {}

    def of(self, kind: str, root: int, paths: Iterable[Names]) -> dict[Names, Noted]:
        """Return the entities that the notes name.

        ``paths``: the source's paths below ``root``, the id of an import's place. Raises UnreadableRow for a damaged
        note.
        """
        backend, found = self._store._session.backend, dict[Names, Noted]()  # noqa: SLF001  (as above)
        for some in batched(paths, _PAGE):
            names = [self._name(kind, root, path) for path in some]
            rows = backend.owned_by_name([self._metalake.id] * len(names), ORIGIN.name, names)
            noted = [(path, *_said(row)) for path, row in zip(some, rows, strict=True) if row is not None]
            known = backend.by_id([one for _, one, _ in noted])
            for (path, one, made), there in zip(noted, known, strict=True):
                if there is not None and _is_same(there, kind, made):
                    at = tuple(node.name for node in there.record.chain)
                    found[path] = Noted(one, at, not there.live and not there.dropping)
        return found

    def add(self, kind: str, root: int, path: Names, entity: Entity) -> None:
        """Note an entity with the next :meth:`write`."""
        values = {"id": entity.id, "created_at": entity.record.created_at}
        name = self._name(kind, root, path)
        doc = ORIGIN.document(None, {}, {"key": str(entity.id), "values": values})
        self._new[name] = Row(name, dump(doc, (name,)))

    def write(self, lease: Lease) -> None:
        """Write the new notes, under the import's lease."""
        rows, self._new = [*self._new.values()], {}
        for some in batched(rows, _PAGE):
            self._rows.put_many(self._metalake, some, lease=lease)

    def _name(self, kind: str, root: int, path: Names) -> str:
        """Return the name of a note. It has a hash, because a path may be longer than a name."""
        text = json.dumps([self._principal, kind, root, path])
        return f"{self._principal} {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _said(row: OwnedRecord) -> tuple[int, int]:
    """Return the id that a note names, and the time at which its entity was made. Raises UnreadableRow."""

    def read() -> tuple[int, int]:
        values: Mapping[str, int] = json.loads(row.doc)["values"]
        return int(values["id"]), int(values["created_at"])

    return naming(read, row.kind, row.owner_id, row.version)


def _is_same(known: Known, kind: str, made: int) -> bool:
    record = known.record
    return not known.doomed and record.chain[-1].kind == kind and record.created_at == made
