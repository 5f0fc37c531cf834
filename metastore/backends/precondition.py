"""The exception that ends a commit in a backend that checks the preconditions one after the other."""

from __future__ import annotations

from dataclasses import replace

from metastore.port.commit import Cause, Conflicted
from metastore.port.records import Record
from metastore.port.writes import Update


class PreconditionFailed(Exception):
    """A precondition does not hold: the backend rolls back everything and answers with ``conflict``."""

    def __init__(self, cause: Cause, row_id: int | None = None, found: int | None = None) -> None:
        super().__init__(cause)
        self.conflict = Conflicted(cause, row_id, found)


def of_found(write: Update, found: Record | None) -> Update:
    """Return an update by name as an update of the found entity. Raises PreconditionFailed."""
    if found is None or found.chain[-1].kind != write.event.kind:
        raise PreconditionFailed("self")
    node = found.chain[-1]
    if write.version not in (0, found.version):
        raise PreconditionFailed("self", node.id, found.version)
    place = write.place and replace(write.place, fold=node.fold)
    return replace(write, id=node.id, version=found.version, scope_version=node.scope_version, place=place, named=None)
