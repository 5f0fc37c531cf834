"""Decide what a user may do, from the facts of one read. Pure.

A user may do something to an object if three things hold:

* it is a live, enabled user of the object's metalake;
* at each catalog and schema above the object it may use the entities below: it has ``use_catalog`` or ``use_schema``,
  or it owns that container, or an ancestor;
* at the object it has one of the privileges that the operation needs, or it owns the object, or something above it.

A user has a privilege for an object if one of its roles, or of the roles of its enabled groups, allows the privilege at
the object or anywhere above, and none of them denies it there. A denial does not bind an owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metastore.cached import cached_property
from metastore.governance.privileges import OWNERSHIP, WAY, needs_of

__all__ = ["Decision", "Facts", "Granted", "Level", "Member", "Ruling", "decide", "sees"]


class Level(NamedTuple):
    """A node on the path from the metalake to an object."""

    id: int
    kind: str
    path: str


class Member(NamedTuple):
    """The user, or one of its groups."""

    id: int
    kind: str
    name: str
    enabled: bool = True


class Granted(NamedTuple):
    """A privilege that a role allows, or denies, on one of the levels."""

    role: int
    privilege: str
    allow: bool
    on: int


class Has(NamedTuple):
    """A role that a member has."""

    member: int
    role: int
    name: str


@dataclass(frozen=True)
class Facts:
    """All facts for decisions about one user and one object."""

    user: str
    """The user's name, as the caller gave it."""
    chain: tuple[Level, ...]
    """The levels from the metalake to the object."""
    members: tuple[Member, ...] = ()
    """The user and its groups, including disabled ones; (): the metalake has no such user."""
    roles: tuple[Has, ...] = ()
    owners: Mapping[int, int] = field(default_factory=dict)
    """By a level's id: the member that owns it, if that is the user or one of its groups."""
    grants: tuple[Granted, ...] = ()

    @property
    def object(self) -> Level:
        """The object itself."""
        return self.chain[-1]

    @cached_property
    def levels(self) -> Mapping[int, int]:
        """The index in the chain of each level, by its id."""
        return {level.id: n for n, level in enumerate(self.chain)}

    @cached_property
    def active(self) -> Mapping[int, Member]:
        """The enabled members, which give rights; empty if the user itself is disabled."""
        if not self.members or not self.members[0].enabled:
            return {}
        return {member.id: member for member in self.members if member.enabled}

    @cached_property
    def role_names(self) -> Mapping[int, str]:
        """The names of the roles that the user has, directly or through an enabled group, by the role's id."""
        return {has.role: has.name for has in self.roles if has.member in self.active}

    @cached_property
    def members_with(self) -> Mapping[int, Sequence[int]]:
        """By role: the members through which the user has it."""
        found: dict[int, list[int]] = {}
        for has in self.roles:
            if has.member in self.active:
                found.setdefault(has.role, []).append(has.member)
        return found

    def role_in_words(self, role: int) -> str:
        """Return the role in words, with the group that gives it unless the user also has it directly."""
        members = self.members_with.get(role, ())
        through = None if self.members[0].id in members or not members else self.active[min(members)]
        name = self.role_names[role]
        return f"the role {name}" if through is None else f"the role {name} of the group {through.name}"

    @cached_property
    def owned_from(self) -> int:
        """The index of the first level that the user owns, with everything below; the length if there is none."""
        owned = (n for n, level in enumerate(self.chain) if self.owners.get(level.id) in self.active)
        return next(owned, len(self.chain))


class Ruling(NamedTuple):
    """The decision, the rule behind it, and the roles that it depends on, besides members and levels."""

    allowed: bool
    because: str
    roles: frozenset[int] = frozenset()
    missing: tuple[str, Level] | None = None
    """The privilege that is missing, and the level where it is."""


@dataclass(frozen=True)
class Decision:
    """Whether a user may do something. ``because`` has the rules that decided, one for each step on the path."""

    allowed: bool
    because: list[str]

    def __bool__(self) -> bool:
        return self.allowed


def decide(facts: Facts, any_of: Sequence[str], at: int | None = None, *, below: bool = False) -> list[Ruling]:
    """Return the rulings along the path and at the object. If the action is not allowed, the last one says why.

    ``any_of``: privileges at the object; one of them is enough. Empty: only an owner may do it. ``at``: the
    object's index in the chain; None: the last. ``below``: the action is done below the object, so the object is a step
    of the path, too.
    """
    at = len(facts.chain) - 1 if at is None else at
    rulings = list[Ruling]()
    for ruling in _steps(facts, any_of, at, at + 1 if below else at):
        rulings.append(ruling)
        if not ruling.allowed:
            break
    return rulings


def sees(facts: Facts, at: int | None = None) -> list[Ruling]:
    """Return the rulings on whether the user sees the object, or the level ``at`` in the chain."""
    at = len(facts.chain) - 1 if at is None else at
    level = facts.chain[at]
    if (at == 0 or level.id in facts.active) and facts.active:
        return [_is_member(facts)]
    if level.id in facts.role_names:
        why = f"{facts.user} has {facts.role_in_words(level.id)}"
        return [_is_member(facts), Ruling(True, why, frozenset({level.id}))]
    return decide(facts, needs_of(level.kind).see, at)


def _steps(facts: Facts, any_of: Sequence[str], at: int, way: int) -> Iterator[Ruling]:
    yield _is_member(facts)
    for n in range(1, way):
        word = WAY.get(facts.chain[n].kind)
        if word is not None:
            yield _at(facts, (word,), n)
    yield _at(facts, any_of, at)


def _is_member(facts: Facts) -> Ruling:
    lake = facts.chain[0]
    if not facts.members:
        a_path = facts.user.startswith(f"{lake.path}.")
        hint = " (a string is a bare name: give a path as a tuple of names)" if a_path else ""
        return Ruling(False, f"{lake.path} has no user {facts.user}{hint}", missing=("membership", lake))
    if not facts.active:
        return Ruling(False, f"the user {facts.user} is disabled in {lake.path}", missing=("membership", lake))
    return Ruling(True, f"{facts.user} is a user of {lake.path}")


def _at(facts: Facts, any_of: Sequence[str], at: int) -> Ruling:
    """Return the ruling on whether the user owns a level, or has one of the privileges there."""
    level = facts.chain[at]
    if facts.owned_from <= at:
        above = facts.chain[facts.owned_from]
        owner = facts.active[facts.owners[above.id]]
        who = facts.user if owner.kind == "user" else f"the group {owner.name} of {facts.user}"
        return Ruling(True, f"{who} owns {above.path}")
    if not any_of:
        why = f"{facts.user} owns neither {level.path} nor anything above it"
        return Ruling(False, why, missing=(OWNERSHIP, level))
    rulings = [_holds(facts, word, at) for word in any_of]
    return next((one for one in rulings if one.allowed), rulings[0])


def _holds(facts: Facts, privilege: str, at: int) -> Ruling:
    """Return the ruling on whether the user has a privilege at a level."""
    levels, roles = facts.levels, facts.role_names
    mine = [g for g in facts.grants if g.privilege == privilege and levels.get(g.on, at + 1) <= at and g.role in roles]
    for grant in mine:
        if not grant.allow:
            where = facts.chain[levels[grant.on]].path
            why = f"{facts.role_in_words(grant.role)} denies {privilege} on {where}"
            return Ruling(False, why, missing=(privilege, facts.chain[at]))
    if not mine:
        why = f"no role of {facts.user} allows {privilege} on {facts.chain[at].path}"
        return Ruling(False, why, missing=(privilege, facts.chain[at]))
    # one grant is enough; always choose the same one, so that commits guard few roles
    best = min(mine, key=lambda grant: grant.role)
    why = f"{facts.role_in_words(best.role)} allows {privilege} on {facts.chain[levels[best.on]].path}"
    return Ruling(True, why, frozenset({best.role}))
