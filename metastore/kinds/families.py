"""The families of names along a path: which kinds a path of a given depth can pass through."""

from __future__ import annotations

from functools import lru_cache

from metastore.kinds.kind import Kind
from metastore.kinds.registry import kind_named

__all__ = ["families_of", "parent_kind"]


def families_of(kind: Kind, depth: int) -> tuple[str, ...] | None:
    """Return the families along a path of ``depth`` names to an entity of ``kind``; None: no such path can exist."""
    return _families(kind.family, kind.parents, depth)


@lru_cache(maxsize=1024)
def _families(family: str, parents: tuple[str, ...], depth: int) -> tuple[str, ...] | None:
    upwards = [family]
    while parents:
        above = depth - len(upwards)
        if above < 1:
            return None
        # if there are several parents, one of them is the catalog, which is always the second name
        parent = kind_named(parents[0] if above == 2 else parents[-1])
        upwards.append(parent.family)
        parents = parent.parents
    return tuple(reversed(upwards)) if len(upwards) == depth else None


def shape_of(kind: Kind) -> tuple[str, ...]:
    """Return the kinds along the shortest path to an entity of ``kind``."""
    return (*(shape_of(kind_named(kind.parents[0])) if kind.parents else ()), kind.name)


def parent_kind(kind: Kind, depth: int) -> Kind | None:
    """Return the parent's kind for an entity of ``kind`` whose parent has a path of ``depth`` names."""
    return next((up for name in kind.parents if families_of(up := kind_named(name), depth)), None)
