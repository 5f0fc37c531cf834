"""Raise the scope versions behind a right that changes, so that no commit that rests on the old right lands later.

A commit that a user's rights allow guards the scope versions of the user, its groups, the roles that decide, and
everything on the way to the object (:mod:`metastore.governance.access`). A change that takes a right away raises one of
these: of a role that allows less, of an object that is denied or changes its owner, of a user or group whose roles or
groups change. What only gives a right raises nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from metastore.governance.privileges import OWNER, effect_of
from metastore.operation.request import Proposal
from metastore.port.conditions import Guard
from metastore.port.writes import Relate, Write

__all__ = ["bumping", "counting_up", "reviving"]

T = TypeVar("T")


def bumping(proposal: Proposal[T]) -> Proposal[T]:
    """Return the proposal, whose guards count up what its relations take rights from."""
    return _with(proposal, {i for write in proposal.writes if (i := _bumped(write)) is not None})


def counting_up(proposal: Proposal[T], entity_id: int) -> Proposal[T]:
    """Return the proposal, whose guard of an entity counts up: writes below it that rest on what it was must fail."""
    return _with(proposal, {entity_id})


def reviving(proposal: Proposal[T], lake_id: int) -> Proposal[T]:
    """Return the restore of a role or a group: what it denies is valid again in the whole metalake."""
    return _with(proposal, {lake_id})


def _with(proposal: Proposal[T], ids: set[int]) -> Proposal[T]:
    if not ids:
        return proposal
    guards = [Guard(g.id, g.scope_version, True, True) if g.id in ids else g for g in proposal.guards]
    return replace(proposal, guards=tuple(guards), exclusive=True)


def _bumped(write: Write) -> int | None:
    """Return the entity whose scope version a write counts up."""
    if not isinstance(write, Relate):
        return None
    if write.kind in (OWNER, "membership"):
        return write.from_id  # the object; the user or group
    if write.kind == "grant":
        _, allows = effect_of(write.value)
        if write.removes:
            return write.from_id if allows else None  # the role allows less
        return None if allows else write.to_id  # the object is denied
    return None
