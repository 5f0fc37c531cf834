"""Read a user's rights in the memory model."""

from __future__ import annotations

from collections.abc import Collection

from metastore.backends.memory.tables import Stand, Tables
from metastore.port.conditions import LIVE
from metastore.port.rights import GrantRow, MembershipRow, RightRows, RoleRow, Whose


def rights(tables: Tables, whose: Whose, places: Collection[int], below: int | None) -> RightRows:
    """Return a user's rights at these entities, and at the children of ``below``."""
    user = tables.live_child(whose.lake, "user", whose.user)
    if user is None:
        return RightRows([], [], [], [])
    members = [user, *_in(tables, user, "group")]
    roles = [RoleRow(m.id, r.id, r.name, r.scope_version) for m in members for r in _in(tables, m, "role")]
    at = {*places, *([] if below is None else [child.id for child in tables.children(below)])}
    rows = tables.relations.values()
    ids, role_ids = {member.id for member in members}, {role.id for role in roles}
    return RightRows(
        [MembershipRow(m.id, m.kind, m.name, m.scope_version, m.in_use) for m in members],
        roles,
        [(row.from_id, row.to_id) for row in rows if row.kind == "owner" and row.from_id in at and row.to_id in ids],
        [
            GrantRow(row.from_id, row.value, row.to_id)
            for row in rows
            if row.kind == "grant" and row.to_id in at and row.from_id in role_ids
        ],
    )


def _in(tables: Tables, member: Stand, kind: str) -> list[Stand]:
    """Return the live groups, or roles, of a member."""
    ids = [row.to_id for row in tables.relations.values() if (row.from_id, row.kind) == (member.id, "membership")]
    stands = [tables.stands[i] for i in ids if i in tables.stands]
    return [one for one in stands if one.kind == kind and one.state == LIVE]
