"""What a user may do, said once more in the plainest way: sets, and no early end. The decision is compared with it."""

from __future__ import annotations

from metastore.governance.decision import Facts
from metastore.governance.privileges import needs_of

__all__ = ["may", "may_see"]


def may(facts: Facts, any_of: tuple[str, ...], at: int, *, inside: bool = False) -> bool:
    """Whether one of the privileges, or ownership, lets the user act at a level, or ``inside`` of it."""
    way = all(_right(facts, (f"use_{level.kind}",), n) for n, level in enumerate(facts.chain[: at + inside]) if n > 0)
    return _is_user(facts) and way and _right(facts, any_of, at)


def may_see(facts: Facts, at: int) -> bool:
    """Whether the user may load a level."""
    level = facts.chain[at]
    itself = level.id in {m.id for m in facts.members if m.enabled}
    has_it = level.id in _roles(facts)
    if _is_user(facts) and (at == 0 or itself or has_it):
        return True
    return may(facts, needs_of(level.kind).see, at)


def _is_user(facts: Facts) -> bool:
    return bool(facts.members) and facts.members[0].enabled


def _enabled(facts: Facts) -> set[int]:
    return {m.id for m in facts.members if m.enabled} if _is_user(facts) else set()


def _roles(facts: Facts) -> set[int]:
    return {has.role for has in facts.roles if has.member in _enabled(facts)}


def _right(facts: Facts, any_of: tuple[str, ...], at: int) -> bool:
    ids = {level.id for level in facts.chain[: at + 1]}
    if any(facts.owners.get(i) in _enabled(facts) for i in ids):
        return True
    roles = _roles(facts)
    allowed = {g.privilege for g in facts.grants if g.allow and g.on in ids and g.role in roles}
    denied = {g.privilege for g in facts.grants if not g.allow and g.on in ids and g.role in roles}
    return bool(set(any_of) & (allowed - denied))
