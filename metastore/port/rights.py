"""The rows of a user's rights from one read: the user, its groups and roles, grants, and owners of places."""

from __future__ import annotations

from typing import NamedTuple


class Whose(NamedTuple):
    """The user whose rights are read, by name in a metalake."""

    lake: int
    """The id of the metalake."""
    user: str


class MembershipRow(NamedTuple):
    """A live user or group. The user comes first."""

    id: int
    kind: str
    name: str
    scope_version: int
    enabled: bool


class RoleRow(NamedTuple):
    """A live role that a member has."""

    member: int
    id: int
    name: str
    scope_version: int


class GrantRow(NamedTuple):
    """A role's grant at a place. ``value`` has the privilege, and whether the grant denies it."""

    role: int
    value: str
    on: int


class RightRows(NamedTuple):
    """All these rows come from one instant. ``owners``: (place, the id of the user or group that owns it)."""

    members: list[MembershipRow]
    roles: list[RoleRow]
    owners: list[tuple[int, int]]
    grants: list[GrantRow]


class Chosen(NamedTuple):
    """The children that a listing shows: with ``only``, those with these ids; otherwise all others."""

    ids: tuple[int, ...]
    only: bool

    def shows_all(self, other: Chosen) -> bool:
        """Whether this shows everything that another choice among the same children shows."""
        mine, others = frozenset(self.ids), frozenset(other.ids)
        if other.only:
            return others <= mine if self.only else not others & mine
        return not self.only and mine <= others
