"""Decide what a user may do, from what one read showed. Pure.

A user may do something to an object if three things hold:

* it is a live, enabled user of the object's metalake;
* at each catalog and schema above the object it may use what stands there: it has ``use_catalog`` or ``use_schema``, or
  it owns that, or something above it;
* at the object it has one of the privileges that the operation needs, or it owns the object, or something above it.

A user has a privilege for an object if one of its roles, or a role of one of its enabled groups, allows it there or
anywhere above, and none denies it there. An owner is not bound by what is denied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from metastore.governance.privileges import OWNERSHIP, WAY, needs_of

__all__ = ["Decision", "Facts", "Granted", "Member", "Place", "Verdict", "decide", "sees"]


class Place(NamedTuple):
    """A node on the way from the metalake to an object."""

    id: int
    kind: str
    path: str


class Member(NamedTuple):
    """The user, or a group that it is in."""

    id: int
    kind: str
    name: str
    enabled: bool = True


class Granted(NamedTuple):
    """A privilege that a role allows, or denies, on one of the places."""

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
    """Everything that decisions about one user and one object rest on."""

    user: str
    """The name by which the user was asked for."""
    chain: tuple[Place, ...]
    """The places from the metalake to the object."""
    members: tuple[Member, ...] = ()
    """The user and its groups, disabled ones too; none: the metalake has no such user."""
    roles: tuple[Has, ...] = ()
    owners: Mapping[int, int] = field(default_factory=dict)
    """Which member owns a place; only those of the user."""
    grants: tuple[Granted, ...] = ()

    @property
    def object(self) -> Place:
        """The object itself."""
        return self.chain[-1]

    @cached_property
    def places(self) -> Mapping[int, int]:
        """Where in the chain each place stands, by its id."""
        return {place.id: n for n, place in enumerate(self.chain)}

    @cached_property
    def active(self) -> Mapping[int, Member]:
        """The members that give rights: none, unless the user itself is enabled."""
        if not self.members or not self.members[0].enabled:
            return {}
        return {member.id: member for member in self.members if member.enabled}

    @cached_property
    def role_names(self) -> Mapping[int, str]:
        """The roles that the user has, by itself or by an enabled group."""
        return {has.role: has.name for has in self.roles if has.member in self.active}

    @cached_property
    def owned_from(self) -> int:
        """The place in the chain from which on the user owns everything; behind the end if it owns nothing."""
        owned = (n for n, place in enumerate(self.chain) if self.owners.get(place.id) in self.active)
        return next(owned, len(self.chain))


class Verdict(NamedTuple):
    """What was decided, the rule that decided, and on which roles it rests besides members and places."""

    allowed: bool
    because: str
    roles: frozenset[int] = frozenset()
    missing: tuple[str, Place] | None = None
    """The privilege that is missing, and where."""


@dataclass(frozen=True)
class Decision:
    """Whether a user may do something. ``because`` names the rules that decided, one for each step on the way."""

    allowed: bool
    because: list[str]

    def __bool__(self) -> bool:
        return self.allowed


def decide(facts: Facts, any_of: Sequence[str], at: int | None = None, *, below: bool = False) -> list[Verdict]:
    """Return the verdicts on the way and at the object: all allow it, or the last of them says why it is not allowed.

    ``any_of``: privileges of which one is enough at the object; none: only an owner may do it. ``at``: where in the
    chain the object stands; None: at its end. ``below``: it is done below the object, which is on the way as well.
    """
    at = len(facts.chain) - 1 if at is None else at
    verdicts = list[Verdict]()
    for verdict in _steps(facts, any_of, at, at + 1 if below else at):
        verdicts.append(verdict)
        if not verdict.allowed:
            break
    return verdicts


def sees(facts: Facts, at: int | None = None) -> list[Verdict]:
    """Return the verdicts on whether the user sees the object, or the place ``at`` in the chain."""
    at = len(facts.chain) - 1 if at is None else at
    place = facts.chain[at]
    if (at == 0 or place.id in facts.active) and facts.active:
        return [_is_member(facts)]
    if place.id in facts.role_names:
        return [_is_member(facts), Verdict(True, f"{facts.user} has the role {place.path}", frozenset({place.id}))]
    return decide(facts, needs_of(place.kind).see, at)


def _steps(facts: Facts, any_of: Sequence[str], at: int, way: int) -> Iterator[Verdict]:
    yield _is_member(facts)
    for n in range(1, way):
        word = WAY.get(facts.chain[n].kind)
        if word is not None:
            yield _at(facts, (word,), n)
    yield _at(facts, any_of, at)


def _is_member(facts: Facts) -> Verdict:
    lake = facts.chain[0]
    if not facts.members:
        return Verdict(False, f"{lake.path} has no user {facts.user}", missing=("membership", lake))
    if not facts.active:
        return Verdict(False, f"the user {facts.user} is disabled in {lake.path}", missing=("membership", lake))
    return Verdict(True, f"{facts.user} is a user of {lake.path}")


def _at(facts: Facts, any_of: Sequence[str], at: int) -> Verdict:
    """Return whether the user owns a place, or has one of the privileges there."""
    place = facts.chain[at]
    if facts.owned_from <= at:
        above = facts.chain[facts.owned_from]
        owner = facts.active[facts.owners[above.id]]
        who = facts.user if owner.kind == "user" else f"the group {owner.name} of {facts.user}"
        return Verdict(True, f"{who} owns {above.path}")
    if not any_of:
        why = f"{facts.user} owns neither {place.path} nor anything above it"
        return Verdict(False, why, missing=(OWNERSHIP, place))
    verdicts = [_holds(facts, word, at) for word in any_of]
    return next((one for one in verdicts if one.allowed), verdicts[0])


def _holds(facts: Facts, privilege: str, at: int) -> Verdict:
    """Return whether the user has a privilege at a place."""
    places, roles = facts.places, facts.role_names
    mine = [g for g in facts.grants if g.privilege == privilege and places.get(g.on, at + 1) <= at and g.role in roles]
    for grant in mine:
        if not grant.allow:
            role, where = roles[grant.role], facts.chain[places[grant.on]].path
            why = f"the role {role} denies {privilege} on {where}"
            return Verdict(False, why, missing=(privilege, facts.chain[at]))
    if not mine:
        why = f"no role of {facts.user} allows {privilege} on {facts.chain[at].path}"
        return Verdict(False, why, missing=(privilege, facts.chain[at]))
    best = min(mine, key=lambda grant: grant.role)  # one is enough; always the same, so that few roles are guarded
    why = f"the role {facts.role_names[best.role]} allows {privilege} on {facts.chain[places[best.on]].path}"
    return Verdict(True, why, frozenset({best.role}))
