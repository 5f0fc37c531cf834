"""Find the differences between two positions: the feed's changes between them, combined into one for each entity.

A diff reads all changes between the two, and looks up the place of each changed entity at both, without documents. So
its cost grows with the number of changes, not with the size of the tree. For changes outside of ``under``, it keeps
only ids. An entity whose path changed only because an ancestor was renamed has no difference. A relation belongs to its
object, and exists while both of its ends are live.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, islice
from typing import Any, NamedTuple, TypeVar

from metastore.deadlines import check_time
from metastore.feed.feed import steps_between
from metastore.kinds.change import EntityChange, decode, encode
from metastore.kinds.entity import Entity
from metastore.kinds.partition import PARTITION
from metastore.kinds.partition_statistic import PARTITION_STATISTIC
from metastore.kinds.relation import relation_named
from metastore.kinds.secret import masked
from metastore.managers.any_kind import check_kind, led_to
from metastore.managers.drops.parts import marked_by
from metastore.managers.target import Target, in_hand
from metastore.names import format_path, parse_path
from metastore.past.reads import PastReads
from metastore.past.related import Between, connected, key_of
from metastore.plain import plain
from metastore.port.conditions import LIVE
from metastore.port.past import Way
from metastore.port.records import Known, Step
from metastore.port.relations import RelationKey
from metastore.port.unreadable import naming

__all__ = ["Difference", "Differing", "differences", "differing", "scope_at"]

T = TypeVar("T")
_AT_ONCE = 500
"""How many entities are looked up at once."""
_REMEMBERED = 50_000
"""For how many entities it remembers whether they are at or below ``under``."""


@dataclass(frozen=True)
class Difference:
    """The difference of one entity, owned row or relation between two positions."""

    action: str
    """"created", "altered", "renamed", "moved", "restored" or "dropped". A renamed or moved one may be altered too."""
    kind: str
    entity_id: int
    path_before: str | None
    path_after: str | None
    version_before: int | None
    version_after: int | None
    changes: tuple[EntityChange, ...]
    """All changes between the two positions, in their order."""
    other_path: str | None = None
    """For a relation: the path of its other end. ``path_before`` and ``path_after`` are the object's paths."""
    value: str | None = None
    """The value of a relation."""

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain JSON values."""
        return {name: plain(value) for name, value in vars(self).items() if name != "changes"} | {
            "changes": plain(encode(self.changes))
        }


class Ends(NamedTuple):
    """The relation that differs: its kind and slot, and the ids of its ends ((): the relation does not exist)."""

    kind: str
    slot: int
    now: tuple[int, ...]
    """The ends at the first position. For a revert, that is the present."""
    ids: tuple[int, ...]
    """The ends at the second position."""


class Differing(NamedTuple):
    """A difference, and the owner of the row or the relation that differs."""

    difference: Difference
    owner_id: int | None = None
    """For an owned row or a relation: the entity that owns the row, or that the relation goes from."""
    relation: Ends | None = None


@dataclass
class _Folded:
    """The steps of one entity, owned row or relation between the two positions."""

    first: Step
    """The first and the last step are kept without their texts, which may have a megabyte."""
    last: Step
    key: RelationKey | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)

    def versions(self, *, backwards: bool) -> tuple[int | None, int | None]:
        """Return the versions of a row or relation before and after, as its steps show; None: it did not exist."""
        early = None if self.first.action == "create" else (self.first.version or 0) - 1
        late = None if self.last.action in ("drop", "purge") else self.last.version
        return (late, early) if backwards else (early, late)


def differences(before: PastReads, after: PastReads, under: int | None) -> Iterator[Difference]:
    """Yield the differences between two positions, in path order; with ``under``, at and below an entity.

    If ``before`` is the later position, yield the changes that a revert would make. Raises HistoryGone.
    """
    return (one.difference for one in differing(before, after, under))


def differing(before: PastReads, after: PastReads, under: int | None, *, hidden: bool = False) -> Iterator[Differing]:
    """Yield the differences, each with the entity, row or relation that differs.

    ``hidden``: also yield as dropped two sorts of entities that a revert must drop: those below an entity that is
    dropped at ``before``, if they do not exist at ``after``; and those below an entity that comes back.
    """
    session, a, b = before.session, before.at, after.at
    low, high = sorted((a, b))
    found = list[Differing]()
    below = None if under is None else _Below(under, before, after, hidden)
    entities, relations = _folded(steps_between(session.backend, session.clock, low, high, docs=False), below)
    for reads in (before, after):
        reads.check()  # raises if the last steps came from another server, which lacks some of them
    for some in _batches(entities.values()):
        check_time(session.clock)
        found += _differences(some, before, after, backwards=a > b, hidden=hidden)
    for some in _batches(relations.values()):
        check_time(session.clock)
        found += _relations(some, before, after, below, backwards=a > b, hidden=hidden)
    yield from sorted(found, key=_in_path_order)


@dataclass
class _Below:
    """Find which entities are at or below ``under``, at one of two positions."""

    under: int
    before: PastReads
    after: PastReads
    hidden: bool
    _known: dict[int, bool] = field(default_factory=dict)

    def has(self, ids: Sequence[int]) -> list[bool]:
        """Return for each of these entities whether it is at or below ``under``."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        if new := list(dict.fromkeys(i for i in ids if i not in self._known)):
            before, after = self.before.ways(new), self.after.ways(new)
            back = self._coming_back(before.values())
            for i in new:
                old = before.get(i)
                self._known[i] = self._leads(old, after.get(i)) or (
                    old is not None and not back.isdisjoint(old.ids[:-1])
                )
        return [self._known[i] for i in ids]

    def _coming_back(self, found: Iterable[Way]) -> set[int]:
        """Return the ancestors of these entities that existed at the second position; none unless ``hidden``."""
        if not self.hidden:
            return set()
        above = sorted({i for way in found for i in way.ids[:-1]})
        return {i for i, then in self.after.ways(above).items() if self._leads(None, then)}

    def wants(self, steps: Sequence[Step]) -> list[bool]:
        """Return whether each step may concern an entity there. An exclusive relation always may: objects change."""
        of = [None if step.other_id is None else relation_named(step.kind or "") for step in steps]
        subjects = [
            (step.other_id if kind is not None and kind.to_the_object else step.owner_id or step.entity_id) or 0
            for step, kind in zip(steps, of, strict=True)
        ]
        changes = [kind is not None and kind.exclusive and kind.to_the_object for kind in of]
        return [there or other for there, other in zip(self.has(subjects), changes, strict=True)]

    def _leads(self, old: Way | None, new: Way | None) -> bool:
        """Whether one of an entity's paths, at the two positions, leads through ``under``."""
        was = old is not None and (self.hidden or old.live) and self.under in old.ids
        return was or (new is not None and new.live and self.under in new.ids)


def _batches(folded: Iterable[T]) -> Iterator[list[T]]:
    left = iter(folded)
    while some := list(islice(left, _AT_ONCE)):
        yield some


def _in_path_order(one: Differing) -> tuple[Any, ...]:
    difference = one.difference
    path = parse_path(difference.path_after or difference.path_before or "")
    return path, difference.kind, difference.other_path or "", difference.value or "", difference.entity_id


def scope_at(reads: PastReads, under: Target | None, kind: str | None) -> int | None:
    """Return the id of the entity at a path. Raises EntityNotFound, DropPending; InvalidArgument for several."""
    check_kind(under, kind)
    if under is None:
        return None
    if isinstance(under, Entity):
        entity = under
        return in_hand(reads, entity, lambda: entity.id)
    return led_to(reads, under, kind).chain[-1].id


def _folded(steps: Iterable[Step], below: _Below | None) -> tuple[dict[int, _Folded], dict[RelationKey, _Folded]]:
    """Return the steps of each entity and owned row by its id, and those of each relation by its key.

    ``below``: only the steps of entities there. All others are left out page by page, so they take no memory.
    """
    entities: dict[int, _Folded] = {}
    relations: dict[RelationKey, _Folded] = {}
    every = (step for step in steps if step.entity_id is not None and step.kind != "lease")
    for page in _batches(every):
        wanted = [True] * len(page) if below is None else below.wants(page)
        for step in compress(page, wanted):
            slim = step._replace(doc=None, changes=None)
            if step.other_id is not None:
                key = key_of(step)
                relations.setdefault(key, _Folded(slim, slim, key)).last = slim
                continue
            one = entities.setdefault(step.entity_id or 0, _Folded(slim, slim))
            one.last = slim
            one.changes += naming(partial(_changes, step), step.kind, step.entity_id, step.version)
    return entities, relations


def _changes(step: Step) -> list[Any]:
    changes: list[Any] = json.loads(masked(step.changes or "[]"))
    return changes


def _differences(
    some: Sequence[_Folded], before: PastReads, after: PastReads, *, backwards: bool, hidden: bool
) -> Iterator[Differing]:
    ids = [one.first.owner_id or one.first.entity_id or 0 for one in some]
    dropping = [set() if hidden else _dropping(some, reads) for reads in (before, after)]
    for one, old, new in zip(some, before.by_id(ids, docs=False), after.by_id(ids, docs=False), strict=True):
        if one.first.owner_id is not None:
            owners = [old if hidden else _live(old), _live(new)]
            seen = [None if _row(one) in gone else owner for owner, gone in zip(owners, dropping, strict=True)]
            made = _owned(one, seen, one.versions(backwards=backwards))
        else:
            made = _entity(one, old, new)
            if hidden and made is None and old is not None and old.state == LIVE:
                made = _difference("dropped", one, _place(old), None)
        if made is not None:
            yield Differing(made, one.first.owner_id)


def _relations(
    some: Sequence[_Folded],
    before: PastReads,
    after: PastReads,
    below: _Below | None,
    *,
    backwards: bool,
    hidden: bool,
) -> Iterator[Differing]:
    between = [_between(one) for one in some]
    if below is not None:  # the other end of an exclusive relation is known only now
        between = list(compress(between, below.has([_object_of(one) for one in between])))
    low, high = (after, before) if backwards else (before, after)
    pairs = connected(between, low, high, also=before if hidden else None)
    for one, pair in zip(between, pairs, strict=True):
        old, new = reversed(pair) if backwards else pair
        if (old and old.to_id) == (new and new.to_id):
            continue
        shown = new or old
        assert shown is not None
        action = "created" if old is None else "dropped" if new is None else "altered"
        from_id, kind, slot, _, value = one.key
        yield Differing(
            Difference(
                action,
                kind,
                one.row_id,
                old and old.path,
                new and new.path,
                old and old.version,
                new and new.version,
                (),
                shown.other_path,
                value or None,
            ),
            from_id,
            Ends(kind, slot, *(() if end is None else (from_id, end.to_id) for end in (old, new))),
        )


def _object_of(one: Between) -> int:
    return one.to_after if relation_named(one.key.kind).to_the_object else one.key.from_id


def _between(one: _Folded) -> Between:
    before, after = one.versions(backwards=False)
    assert one.key is not None
    return Between(one.key, before, after, one.last.other_id or 0, one.last.entity_id or 0)


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


def _row(one: _Folded) -> tuple[int, str]:
    return one.last.owner_id or 0, one.last.name or ""


def _dropping(some: Sequence[_Folded], reads: PastReads) -> set[tuple[int, str]]:
    """Return owner and name of the partitions that are being dropped in steps: they and their rows are hidden."""
    rows = sorted({_row(one) for one in some if one.first.kind in (PARTITION.name, PARTITION_STATISTIC.name)})
    if not rows:
        return set()
    found = reads.owned_by_name([owner for owner, _ in rows], PARTITION.name, [name for _, name in rows])
    return {row for row, one in zip(rows, found, strict=True) if one is not None and marked_by(one) is not None}


def _owned(one: _Folded, owners: Sequence[Known | None], versions: tuple[int | None, int | None]) -> Difference | None:
    """Return the difference of an owned row; None if its owner does not exist, which hides the row."""
    places = [_row_place(known, version, one.last) for known, version in zip(owners, versions, strict=True)]
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
