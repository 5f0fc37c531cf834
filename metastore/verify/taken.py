"""Check that each commit that took a right away increased a scope version, so that commits relying on it failed.

This is the other half of invariant 14: ``evidence.py`` checks the commits that rely on rights. The rows of a commit
show whose scope version it must have increased: the object of a new denial or of another owner, the user or group that
got or lost a role or a group, the role that allows less, the metalake of a role or group that came back. A commit notes
these entities in its first row, unless it increased their scope versions by exclusive operations on them, or created
them itself.

Steps of programs before format 12 are not checked: they increased fewer scope versions, or noted nothing. Restored
steps, whose program is unknown, are not checked either; nor is a commit that lost rows to gc, because such a row may
have created the entity.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, NamedTuple

from metastore.governance.privileges import OWNER, effect_of
from metastore.port.format import RESTORED
from metastore.port.note import read_note
from metastore.port.snapshot import TableSnapshot
from metastore.verify.violations import Violation

__all__ = ["check_taken"]

_GROUPS = ("role", "group")
_NOTES_FROM = 12
"""The first format whose programs increase, and note, all scope versions that they must."""
_MANY = 500
"""How many grants are looked up at once."""


class _Row(NamedTuple):
    """One row of the operation table."""

    operation_id: Any
    ordinal: int
    seq: int | None
    entity_id: int | None
    version: int | None
    owner_id: int | None
    other_id: int | None
    parent_id: int | None
    kind: str | None
    action: str
    path_before: str | None
    path_after: str | None
    fences: str | None
    through: int | None
    writer: int | None

    def violation(self, entity_id: int | None) -> Violation:
        """Return the violation if the commit did not increase the scope version of an entity."""
        what = f"{self.action} of a {self.kind}" if self.owner_id is not None else f"the {self.action}"
        return Violation(
            14,
            self.entity_id,
            self.path_after or self.path_before,
            f"position {self.seq}: {what} takes a right away, and raised no scope version of entity {entity_id}: "
            "writes that relied on the right still succeeded",
        )


def check_taken(snapshot: TableSnapshot) -> Iterator[Violation]:
    """Yield a violation for each write that took a right away without increasing the scope version."""
    rows = (_Row(*row) for row in snapshot.rows("operation", _Row._fields, _Row._fields[:2]))
    grants = (grant for _, group in groupby(rows, key=lambda row: row.operation_id) for grant in _unraised(group))
    while some := list(islice(grants, _MANY)):
        denied = _denying(snapshot, [row for row in some if row.kind == "grant"])
        for row in some:
            if row.kind != "grant":
                yield row.violation(row.parent_id if row.owner_id is None else row.owner_id)
            elif (row.entity_id, row.version) in denied and row.action == "create":
                yield row.violation(row.other_id)
            elif (row.entity_id, row.version) not in denied and row.action == "drop":
                yield row.violation(row.owner_id)


def _unraised(rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the rows of an operation that should have increased a scope version but did not.

    For grants the caller must still check whether they deny.
    """
    group = [row for row in rows if row.seq is not None]
    if not any(_may_take(row) for row in group) or not _tells(group):
        return
    done = {row.entity_id for row in group if row.owner_id is None and row.action != "alter"}
    done |= _noted(group[0])
    for row in group:
        if _may_take(row) and not _ids(row) <= done:
            yield row


def _tells(group: list[_Row]) -> bool:
    """Whether a commit notes all scope versions that it increased.

    That is true if its program does so, and if no row of the commit is missing.
    """
    first, last = group[0], group[-1]
    if first.writer is None or not _NOTES_FROM <= first.writer < RESTORED:
        return False
    whole = [row.ordinal for row in group] == list(range(len(group)))
    return whole and (len(group) == 1 if first.through is None else last.seq == first.through)


def _may_take(row: _Row) -> bool:
    if row.owner_id is None:
        return row.kind in _GROUPS and row.action == "restore"
    return row.kind in (OWNER, "membership") or (row.kind == "grant" and row.action != "alter")


def _ids(row: _Row) -> set[int | None]:
    """Return the entity whose scope version the row must have increased; a grant must only if it takes a right away."""
    if row.owner_id is None:
        return {row.parent_id}
    return {row.other_id if row.kind == "grant" and row.action == "create" else row.owner_id}


def _noted(first: _Row) -> set[int | None]:
    """Return the increased entities in the operation's note; the check of the feed reports an unreadable note."""
    try:
        return set() if first.fences is None else {*read_note(first.fences).raised}
    except ValueError:
        return set()


def _denying(snapshot: TableSnapshot, grants: list[_Row]) -> set[tuple[int | None, int | None]]:
    """Return the ids and versions of those rows of grants that deny."""
    ids = sorted({row.entity_id for row in grants if row.entity_id is not None})
    columns = ("entity_id", "version", "doc")
    rows = snapshot.rows("operation", columns, columns[:2], ids) if ids else ()
    return {(entity_id, version) for entity_id, version, doc in rows if _denies(doc)}


def _denies(doc: str | None) -> bool:
    try:
        return not effect_of(json.loads(doc or "{}")["value"])[1]
    except (ValueError, TypeError, LookupError, AttributeError):
        return False  # the check of the relation's own history reports the damage
