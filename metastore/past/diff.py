"""The difference between two positions: the changes of the feed between them, folded for each entity.

It reads all changes between the two, and then looks where each entity that has any stood at both. So its cost grows
with what changed, not with the tree. An entity whose path changed only because one above it was renamed has no
difference of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from metastore.errors import EntityNotFound
from metastore.feed.feed import steps_between
from metastore.kinds.change import EntityChange, decode, encode
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS
from metastore.kinds.secret import masked
from metastore.managers.target import Target
from metastore.names import format_path, parse_path
from metastore.operation.dropping import pending_at
from metastore.operation.request import committed
from metastore.operation.session import Session
from metastore.past.reads import PastReads, reads_at
from metastore.plain import plain
from metastore.port.commit import LIVE
from metastore.port.records import Known, Lookup, Step

__all__ = ["Difference", "differences", "scope_at"]

_AT_ONCE = 500
"""How many entities are looked up at once."""


@dataclass(frozen=True)
class Difference:
    """What became of one entity, or owned row, between two positions."""

    action: str
    """created, altered, renamed, moved, restored, or dropped. Renamed and moved ones may be altered too."""
    kind: str
    entity_id: int
    path_before: str | None
    path_after: str | None
    version_before: int | None
    version_after: int | None
    changes: tuple[EntityChange, ...]
    """All changes between the two, in their order."""

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain JSON values."""
        return {name: plain(value) for name, value in vars(self).items() if name != "changes"} | {
            "changes": plain(encode(self.changes))
        }


@dataclass
class _Folded:
    """The steps of one entity between the two positions."""

    first: Step
    last: Step
    changes: list[dict[str, Any]] = field(default_factory=list)


def differences(session: Session, a: int, b: int, under: int | None, *, hidden: bool = False) -> Iterator[Difference]:
    """Yield what differs between the positions ``a`` and ``b``, in path order; with ``under``, at and below an entity.

    From a later position to an earlier one, it yields what going back would do. ``hidden``: it also yields, as dropped,
    what stands below something dropped at ``a``, and was not there at ``b``. Raises HistoryGone.
    """
    before, after = reads_at(session, a), reads_at(session, b)
    low, high = sorted((a, b))
    found = list[Difference]()
    folded = iter(_folded(steps_between(session.backend, session.clock, low, high)).values())
    while some := list(islice(folded, _AT_ONCE)):
        found += _differences(some, before, after, under, backwards=a > b, hidden=hidden)
    yield from sorted(found, key=lambda one: (parse_path(one.path_after or one.path_before), one.kind, one.entity_id))


def scope_at(reads: PastReads, under: Target | None) -> int | None:
    """Return the id of what is at a path, of whatever kind. Raises EntityNotFound, InvalidArgument."""
    if under is None:
        return None
    if isinstance(under, Entity):
        committed(reads, under)
        return under.id
    names = parse_path(under)
    families = dict.fromkeys(f for kind in KINDS.values() if (f := families_of(kind, len(names))) is not None)
    lookups = [Lookup(family, names) for family in families]
    found = reads.resolve(lookups)
    for one in found:
        if one.record is not None:
            return one.record.chain[-1].id
    for where, one in zip(lookups, found, strict=True):
        if (pending := pending_at(reads, where, one.nodes)) is not None:
            raise pending
    raise EntityNotFound(format_path(names))


def _folded(steps: Iterable[Step]) -> dict[int, _Folded]:
    found: dict[int, _Folded] = {}
    for step in steps:
        if step.entity_id is not None and step.kind != "lease" and step.other_id is None:
            one = found.setdefault(step.entity_id, _Folded(step, step))
            one.last = step
            one.changes += json.loads(masked(step.changes or "[]"))
    return found


def _differences(
    some: Sequence[_Folded], before: PastReads, after: PastReads, under: int | None, *, backwards: bool, hidden: bool
) -> Iterator[Difference]:
    ids = [one.first.owner_id or one.first.entity_id or 0 for one in some]
    for one, old, new in zip(some, before.by_id(ids), after.by_id(ids), strict=True):
        chains = [known.record.chain for known in (old, new) if known is not None and (hidden or known.live)]
        if under is not None and not any(node.id == under for chain in chains for node in chain):
            continue
        if one.first.owner_id is not None:
            made = _owned(one, old, new, backwards=backwards, hidden=hidden)
        else:
            made = _entity(one, old, new)
            if hidden and made is None and old is not None and old.state == LIVE:
                made = _difference("dropped", one, _place(old), None)
        if made is not None:
            yield made


def _entity(one: _Folded, old: Known | None, new: Known | None) -> Difference | None:
    there, here = _live(old), _live(new)
    if there is None and here is None:
        return None
    if here is None or there is None:
        action = "dropped" if here is None else "created" if old is None else "restored"
    else:
        above = [known.record.chain[-2].id if len(known.record.chain) > 1 else 0 for known in (there, here)]
        same = there.record.chain[-1].name == here.record.chain[-1].name
        action = "moved" if above[0] != above[1] else "altered" if same else "renamed"
    return _difference(action, one, _place(there), _place(here))


def _owned(one: _Folded, old: Known | None, new: Known | None, *, backwards: bool, hidden: bool) -> Difference | None:
    """Return the difference of an owned row, whose steps say whether it was there before and after."""
    first, last = one.first, one.last
    early = None if first.action == "create" else (first.version or 0) - 1
    late = None if last.action in ("drop", "purge") else last.version
    versions = (late, early) if backwards else (early, late)
    owners = [known if known is not None and (hidden or known.live) else None for known in (old, new)]
    places = [_row_place(known, version, last) for known, version in zip(owners, versions, strict=True)]
    if places[0] is None and places[1] is None:
        return None
    action = "created" if places[0] is None else "dropped" if places[1] is None else "altered"
    return _difference(action, one, *places)


def _row_place(owner: Known | None, version: int | None, step: Step) -> tuple[str, int] | None:
    if owner is None or version is None:
        return None
    return format_path((*[n.name for n in owner.record.chain], step.name or "")), version


def _live(known: Known | None) -> Known | None:
    return known if known is not None and known.live else None


def _place(known: Known | None) -> tuple[str, int] | None:
    if known is None:
        return None
    return format_path([node.name for node in known.record.chain]), known.record.version


def _difference(action: str, one: _Folded, before: tuple[str, int] | None, after: tuple[str, int] | None) -> Difference:
    old, new = before or (None, None), after or (None, None)
    kind, entity_id = one.first.kind or "", one.first.entity_id or 0
    return Difference(action, kind, entity_id, old[0], new[0], old[1], new[1], decode(one.changes))
