"""Find the two ends of a relation: each is a loaded entity, or a path whose kind may be one of several.

One round trip follows all paths, and another one reads all loaded entities, unless the view trusts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of, shape_of
from metastore.kinds.kind import Kind
from metastore.kinds.registry import KINDS, kind_given, kind_named
from metastore.managers.target import Target, absent_from, look_again, no_more, not_live, target_value
from metastore.names import format_path, parse_path
from metastore.operation.dropping import LookAgain
from metastore.operation.request import View, is_same
from metastore.port.backend import Reads
from metastore.port.records import Lookup, Record, Resolved


@dataclass(frozen=True)
class EndOf:
    """The end that a caller names: an entity, or a path and the kinds that are allowed there; ``()``: all kinds.

    ``families`` are those of the names on the path, if they are known: a program may not know the only kind.
    """

    target: Target
    kinds: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


@dataclass(frozen=True)
class WantedRelation:
    """A relation to write or to remove, as the caller names it."""

    target: EndOf
    other: EndOf
    value: str | None = None
    column: tuple[str, ...] | None = None

    def arguments(self) -> list[Any]:
        """Return the relation as JSON values."""
        return [_shown(self.target), _shown(self.other), self.value, self.column]


def _shown(end: EndOf) -> Any:
    return [target_value(end.target), list(end.kinds)]


def end_of(target: Target, kinds: tuple[str, ...], kind: str | None = None) -> EndOf:
    """Return a checked end; ``kind``: the kind that the caller named. Raises InvalidArgument."""
    if kind is not None:
        kind_given(kind)
        if kinds and kind not in kinds:
            raise InvalidArgument(f"a {' or a '.join(kinds)} is expected here, not a {kind}")
        kinds = (kind,)
    if isinstance(target, Entity):
        if kinds and target.kind not in kinds:
            raise InvalidArgument(f"{target.path} is a {target.kind}; expected is a {' or a '.join(kinds)}")
        return EndOf(target, kinds)
    return EndOf(parse_path(target), kinds)


def lookups_of(end: EndOf) -> dict[Lookup, tuple[Kind, ...]]:
    """Return the lookups of a path, each with the kinds that it may find. Raises InvalidArgument for a wrong depth."""
    assert isinstance(end.target, tuple)
    if end.families:
        return {Lookup(end.families, end.target): tuple([kind_named(name) for name in end.kinds])}
    kinds_of: dict[Lookup, tuple[Kind, ...]] = {}
    for kind in [kind_named(name) for name in end.kinds or KINDS]:
        families = families_of(kind, len(end.target))
        if families is not None:
            lookup = Lookup(families, end.target)
            kinds_of[lookup] = (*kinds_of.get(lookup, ()), kind)
    if not kinds_of:
        shapes = " or ".join(".".join(shape_of(kind_named(name))) for name in end.kinds)
        count = "1 name" if len(end.target) == 1 else f"{len(end.target)} names"
        raise InvalidArgument(
            f"{format_path(end.target)} has {count}; "
            + (f"expected is {shapes}" if shapes else "no object has so many")
            + "; a name with a dot is in back-quotes"
        )
    return kinds_of


def find_ends(view: View, *ends: EndOf) -> list[Record]:
    """Return the live entity at each end. Raises EntityNotFound, DropPending, InvalidArgument."""
    try:
        return _found(view, ends)
    except LookAgain as changed:
        return look_again(changed, lambda: find_ends(view, *ends))


def _found(view: View, ends: Sequence[EndOf]) -> list[Record]:
    paths = [lookups_of(end) if isinstance(end.target, tuple) else {} for end in ends]
    wanted = list(dict.fromkeys(lookup for lookups in paths for lookup in lookups))
    by_lookup = dict(zip(wanted, view.backend.resolve(wanted) if wanted else [], strict=True))
    in_hand = _in_hand(view, [end.target for end in ends if isinstance(end.target, Entity)])
    return [
        in_hand[end.target.id] if isinstance(end.target, Entity) else one_of(view.backend, end, lookups, by_lookup)
        for end, lookups in zip(ends, paths, strict=True)
    ]


def one_of(
    backend: Reads, end: EndOf, lookups: dict[Lookup, tuple[Kind, ...]], by_lookup: dict[Lookup, Resolved]
) -> Record:
    """Return the one entity that the lookups of a path have found."""
    assert isinstance(end.target, tuple)
    records = [
        by_lookup[lookup].record
        for lookup, kinds in lookups.items()
        if _fits(by_lookup[lookup], [k.name for k in kinds])
    ]
    if len(records) > 1:
        kinds_there = [r.chain[-1].kind for r in records if r is not None]
        raise InvalidArgument(
            f"{format_path(end.target)} is the name of a {' and of a '.join(kinds_there)}; say which with kind="
        )
    if not records or records[0] is None:
        raise absent_from(backend, [(lookup, by_lookup[lookup].nodes) for lookup in lookups])
    return records[0]


def _fits(resolved: Resolved, kinds: Iterable[str]) -> bool:
    return resolved.record is not None and resolved.record.chain[-1].kind in kinds


def _in_hand(view: View, entities: Sequence[Entity]) -> dict[int, Record]:
    trusted = {entity.id: entity.record for entity in entities if view.trusts(entity)}
    others = [entity for entity in entities if entity.id not in trusted]
    found = view.backend.by_id([entity.id for entity in others]) if others else []
    for entity, one in zip(others, found, strict=True):
        known = one if one is not None and is_same(entity, one.record) else None
        if known is None or not known.live:
            raise not_live(view.backend, known, entity.path, no_more(entity, known))
        trusted[entity.id] = known.record
    return trusted
