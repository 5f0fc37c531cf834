"""The range of positions in which something that a call saw was true. One replay dates many things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from metastore.checker.records import Seen
from metastore.checker.tree import CHILDREN, DROPPED, Placed
from metastore.kinds.families import families_of
from metastore.kinds.registry import kind_named
from metastore.names import parse_path
from metastore.port.conditions import ROOT_ID
from tests.joints.judge.call import Call

__all__ = ["Dated", "date"]


@dataclass
class Dated:
    """One thing that a call saw, and when it was so."""

    call: Call
    seen: Seen
    times: list[tuple[int, int | None]] = field(default_factory=list)
    """The positions from which on, and until before which, it was true; None: it is true at the end."""


def date(wanted: Sequence[Dated], placed: Sequence[Placed]) -> None:
    """Fill in the times."""
    world = _World()
    for event in placed:
        world.apply(event)
        for one in wanted:
            since = one.times[-1][0] if one.times and one.times[-1][1] is None else None
            if world.shows(one.seen) and since is None:
                one.times.append((event.seq, None))
            elif since is not None and not world.shows(one.seen):
                one.times[-1] = since, event.seq


class _World:
    """What the names and the versions are at one position."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, str, str], int | None] = {}
        self._versions: dict[int, int | None] = {}

    def apply(self, event: Placed) -> None:
        self._versions[event.entity_id] = None if event.gone else event.version
        for name in event.names:
            self._names[name.parent_id, name.family, name.name] = name.entity_id

    def shows(self, seen: Seen) -> bool:
        here: int | None = ROOT_ID
        for family, name in _steps(seen):
            here = None if here is None else self._names.get((here, family, name))
        if here is None or not seen.there:
            return here is None and not seen.there
        return seen.entity_id in (None, here) and seen.version in (None, self._versions.get(here))


@lru_cache(maxsize=10_000)
def _steps(seen: Seen) -> list[tuple[str, str]]:
    """Return the family and the name of each step from the root to what was seen."""
    names = parse_path(seen.path or "")
    families = families_of(kind_named(seen.kind or "table"), len(names)) or ("",) * len(names)
    steps = list(zip(families, names, strict=True))
    if seen.of == "dropped":
        steps[-1] = (f"{DROPPED}{seen.kind}", names[-1])
    elif seen.of == "children":
        steps.append((CHILDREN, ""))
    return steps
