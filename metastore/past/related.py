"""Find the relations that differ between two positions, after a detach, an attach or a change of owner.

A relation is identified by its ends, not by its row: one that was removed and created again counts as unchanged. A
relation exists while both of its ends are live in one metalake, and while its column exists.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from metastore.kinds.relation import relation_named
from metastore.managers.relations.writes import column_paths
from metastore.names import format_path
from metastore.past.reads import PastReads
from metastore.port.records import Known, Step
from metastore.port.relations import NO_COLUMN, ONLY, RelationKey, end_of_known, in_one_metalake
from metastore.port.unreadable import naming

__all__ = ["Between", "Connected", "connected", "key_of"]

_Found = dict[int, Known | None]


class Between(NamedTuple):
    """A relation that has steps between two positions."""

    key: RelationKey
    before: int | None
    """Its version before these steps; None: it did not exist."""
    after: int | None
    to_after: int
    """The entity to which it led after these steps, or when it was removed."""
    row_id: int


class Connected(NamedTuple):
    """A relation as it was at one position."""

    path: str
    """The path of the object."""
    other_path: str
    version: int
    to_id: int


def key_of(step: Step) -> RelationKey:
    """Return the key of the relation that a step is about: its ends, kind, slot, column and value."""
    doc = naming(partial(json.loads, step.doc or "{}"), step.kind, step.entity_id, step.version)
    to_id, kind = step.other_id or 0, step.kind or ""
    slot = ONLY if relation_named(kind).exclusive else to_id
    return RelationKey(step.owner_id or 0, kind, slot, doc.get("column_id", 0), doc.get("value", ""))


def connected(
    some: Sequence[Between], low: PastReads, high: PastReads, *, also: PastReads | None
) -> list[tuple[Connected | None, Connected | None]]:
    """Return each relation at both positions; None: it did not exist.

    ``also``: at this position a relation exists even if an end is not live, if it does not exist at the other position.
    """
    earlier = _earlier(some, low)
    froms = [one.key.from_id for one in some]
    led = [
        (
            None if one.before is None else earlier.get(one.key, one.key.slot),
            None if one.after is None else one.to_after,
        )
        for one in some
    ]
    before, after = (
        _known(reads, {*froms, *(to for pair in led if (to := pair[side]) is not None)})
        for side, reads in ((0, low), (1, high))
    )
    found = []
    for one, (to_before, to_after) in zip(some, led, strict=True):
        old = _at(one, one.before, to_before, before, dead=False)
        new = _at(one, one.after, to_after, after, dead=False)
        if also is low and new is None:
            old = _at(one, one.before, to_before, before, dead=True)
        elif also is high and old is None:
            new = _at(one, one.after, to_after, after, dead=True)
        found.append((old, new))
    return found


def _earlier(some: Sequence[Between], low: PastReads) -> dict[RelationKey, int]:
    """Return the other ends, at the earlier position, of exclusive relations."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    for one in some:
        if one.key.slot == ONLY and one.before is not None:
            wanted.setdefault(one.key.kind, []).append((one.key.from_id, ONLY))
    return {row.key: row.to_id for kind, slots in wanted.items() for row in low.relations(kind, slots)}


def _known(reads: PastReads, ids: set[int]) -> _Found:
    wanted = sorted(ids)
    return dict(zip(wanted, reads.by_id(wanted), strict=True))


def _at(one: Between, version: int | None, to_id: int | None, found: _Found, *, dead: bool) -> Connected | None:
    if version is None or to_id is None:
        return None
    here, there = found.get(one.key.from_id), found.get(to_id)
    if here is None or there is None:
        return None
    if not dead and not (in_one_metalake(end_of_known(here), end_of_known(there)) and _has(here, one.key.column_id)):
        return None
    if relation_named(one.key.kind).to_the_object:
        here, there = there, here
    paths = [format_path([node.name for node in known.record.chain]) for known in (here, there)]
    return Connected(paths[0], paths[1], version, to_id)


def _has(known: Known, column_id: int) -> bool:
    return column_id == NO_COLUMN or column_id in column_paths(known.record.doc, known.record.chain[-1])
