"""Who may do what with an entity, and why: one user and one privilege, or everybody who may read or change it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument, MetastoreError
from metastore.governance.decision import Decision
from metastore.governance.privileges import privileges
from metastore.kinds.attached import Attached
from metastore.kinds.entity import Entity
from metastore.serve.console.asked import Asked, Shown, bounded, url
from metastore.serve.console.frame import frame
from metastore.serve.console.words import command

__all__ = ["rights"]

_USERS: Final = 100
_SECONDS: Final = 2.0
"""How long a page looks for users."""
_READ: Final = {
    "table": ("select_table", "modify_table"),
    "view": ("select_view", "modify_view"),
    "fileset": ("read_fileset", "write_fileset"),
    "topic": ("consume_topic", "produce_topic"),
    "model": ("use_model", "modify_model"),
    "catalog": ("use_catalog", "create_schema"),
    "schema": ("use_schema", "create_table"),
}


@dataclass(frozen=True)
class May:
    """The rights of one user."""

    user: str
    decisions: Sequence[Decision]


def rights(asked: Asked) -> Shown:
    """Return who may do what with an entity."""
    entity = asked.entity()
    words = [word for word, kinds in privileges().items() if entity.kind in kinds]
    user, privilege = asked.text("user"), asked.text("privilege")
    if asked.is_restricted:
        user = asked.principal.name
    decision = None
    if user and privilege:
        if privilege not in words:
            raise InvalidArgument(f"a {entity.kind} has no privilege {privilege[:60]!r}")
        decision = asked.store.allowed((user,), privilege, entity)
    asks = [word for word in _READ.get(entity.kind, ()) if word in words]
    grants, more_grants = _grants(asked, entity)
    roles = sorted({one.target_path for _, _, one in grants})
    everybody, more = ([], False) if asked.is_restricted or not asks else _everybody(asked, entity, asks, roles)
    values = {
        **frame(asked, entity, "rights"),
        "words": words,
        "user": user or "",
        "privilege": privilege or "",
        "decision": decision,
        "asks": asks,
        "everybody": everybody,
        "more": more or more_grants,
        "grants": grants,
        "more_grants": more_grants,
        "is_restricted": asked.is_restricted,
        "link": lambda one: url("place", path=one.target_path, kind="role"),
    }
    return Shown(
        "rights.html", f"Who may use {entity.path}", values, command("who", entity.path, "--kind", entity.kind)
    )


def _levels(entity: Entity) -> Iterator[tuple[tuple[str, ...], str]]:
    for depth in range(len(entity.names), 0, -1):
        yield entity.names[:depth], entity.record.chain[depth - 1].kind


def _grants(asked: Asked, entity: Entity) -> tuple[list[tuple[str, str, Attached]], bool]:
    """Return the grants on the entity and above it whose roles the user may see, and whether there are more."""
    found, more = [], False
    for names, kind in _levels(entity):
        try:
            there = asked.store.manager(kind).load(names)
            rows, cut = bounded(asked.store.relations("grant").targets(there), _USERS, _SECONDS)
        except MetastoreError:
            continue
        for one in rows:
            effect, _, privilege = (one.value or "").partition(":")
            found.append((effect, privilege, one))
        more = more or cut
    return found, more


def _everybody(asked: Asked, entity: Entity, asks: Sequence[str], roles: Iterable[str]) -> tuple[list[May], bool]:
    """Return each user who has one of the privileges, and whether there may be more."""
    ends = SYSTEM.monotonic() + _SECONDS
    store, found, seen = asked.store, list[May](), set[str]()
    for name in _candidates(asked, entity, roles):
        if SYSTEM.monotonic() > ends or (len(found) == _USERS and name not in seen):
            return found, True
        if name not in seen:
            seen.add(name)
            decisions = [store.allowed((entity.names[0], name), word, entity) for word in asks]
            found += [May(name, decisions)] if any(decisions) else []
    return found, False


def _candidates(asked: Asked, entity: Entity, roles: Iterable[str]) -> Iterator[str]:
    """Yield the users who may have a right, some repeatedly: owners, and those with a role that grants something."""
    store = asked.store
    owners = (store.owners.of(names, kind=kind) for names, kind in _levels(entity))
    holders: Iterator[Any] = chain(filter(None, owners), chain.from_iterable(map(store.roles.members, roles)))
    for holder in holders:
        members = store.groups.members(holder) if holder.kind == "group" else [holder]
        yield from (one.name for one in members)
