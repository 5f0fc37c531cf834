"""Find which families a path runs through, and which guards its entity has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from metastore.errors import InvalidArgument, NotInUse
from metastore.kinds.families import _shape, families_of
from metastore.kinds.kind import Kind
from metastore.names import fold, format_path
from metastore.port.conditions import Guard
from metastore.port.records import ROOT, Lookup, Node

__all__ = ["both", "check_in_use", "guards_of", "key_under", "lookup"]


def lookup(kind: Kind, names: tuple[str, ...]) -> Lookup:
    """Return the lookup of an entity of ``kind`` at ``names``, or raise InvalidArgument for a wrong depth."""
    families = families_of(kind, len(names))
    if families is None:
        shape = ".".join(_shape(kind))
        count = "1 name" if len(names) == 1 else f"{len(names)} names"
        raise InvalidArgument(
            f"{format_path(names)} has {count}; the path of a {kind.name} is {shape}"
            + (
                ", with any depth of nested schemas"
                if "schema" in shape
                else "; a name with a dot stands in back-quotes"
            )
        )
    return Lookup(families, names)


def guards_of(nodes: Sequence[Node]) -> tuple[Guard, ...]:
    """Return the guards of an entity below ``nodes``; below the root, the root's."""
    return _guards_of(*nodes)


@lru_cache(4096)
def _guards_of(*nodes: Node) -> tuple[Guard, ...]:
    """Remember the guards: siblings have the same ones, write after write."""
    return tuple([Guard(n.id, n.scope_version) for n in nodes]) or (Guard(ROOT.id, ROOT.scope_version),)


def both(first: Sequence[Node], second: Sequence[Node]) -> tuple[Guard, ...]:
    """Return the guards of two chains; the first was read before the second.

    An entity in both is guarded as the first read saw it. If it changed between the two reads, the commit must fail:
    the first chain, and the path in the event, would be wrong.
    """
    return tuple({g.id: g for g in guards_of(second) + guards_of(first)}.values())


def check_in_use(nodes: Sequence[Node]) -> None:
    """Raise NotInUse if one of the ancestors ``nodes`` is disabled."""
    for n, node in enumerate(nodes):
        if not node.in_use:
            path = format_path([a.name for a in nodes[: n + 1]])
            message = f"the {node.kind} {path} is disabled and admits no writes below it; enable it first"
            raise NotInUse(message, kind=node.kind)


def key_under(parent: Node, name: str) -> str:
    """Return the form under which ``name`` is compared below ``parent``."""
    return fold(name) if parent.fold else name
