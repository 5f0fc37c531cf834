"""Find the families on a path, and the guards of its entity. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from metastore.errors import InvalidArgument, NotInUse
from metastore.kinds.families import families_of, shape_of
from metastore.kinds.kind import Kind
from metastore.names import fold, format_path
from metastore.port.conditions import Guard
from metastore.port.records import ROOT, Lookup, Node, path_of
from metastore.port.scopes import Scopes


def lookup(kind: Kind, names: tuple[str, ...]) -> Lookup:
    """Return the lookup of an entity of ``kind`` at ``names``, or raise InvalidArgument for a wrong depth."""
    families = families_of(kind, len(names))
    if families is None:
        shape = ".".join(shape_of(kind))
        count = "1 name" if len(names) == 1 else f"{len(names)} names"
        raise InvalidArgument(
            f"{format_path(names)} has {count}; the path of a {kind.name} is {shape}"
            + (", with any depth of nested schemas" if "schema" in shape else "; a name with a dot is in back-quotes")
        )
    return Lookup(families, names)


def parents_of(where: Lookup) -> Lookup:
    """Return the lookup of the parents of the entity at ``where``."""
    return Lookup(where.families[:-1], where.names[:-1], where.start)


def guards_of(nodes: Sequence[Node]) -> tuple[Guard, ...]:
    """Return the guards of an entity below ``nodes``; without nodes, the guard of the root."""
    return _guards_of(*nodes)


@lru_cache(4096)
def _guards_of(*nodes: Node) -> tuple[Guard, ...]:
    """Return the guards of an entity below ``nodes``. They are cached, because siblings have the same guards."""
    return tuple([Guard(n.id, n.scope_version) for n in nodes]) or (Guard(ROOT.id, ROOT.scope_version),)


def both(*chains: Sequence[Node]) -> tuple[Guard, ...]:
    """Return the guards of all these chains, which may come from reads at different times.

    Of two scope versions of one entity, take the older: if it changed between the two reads, the commit must fail,
    because the first chain, and the path in the event, would be wrong.
    """
    if len(chains) == 1:
        return guards_of(*chains)
    return tuple(
        [Guard(*pair) for pair in Scopes([(g.id, g.scope_version) for c in chains for g in guards_of(c)]).pairs]
    )


def requiring(guards: Sequence[Guard], scopes: Scopes) -> tuple[Guard, ...]:
    """Return ``guards`` and those of ``scopes``. Of two scope versions of one entity, take the older: see ``both``."""
    own = Scopes([(guard.id, guard.scope_version) for guard in guards])
    if not own.agrees(scopes):
        guards = [replace(g, scope_version=min(g.scope_version, scopes.get(g.id, g.scope_version))) for g in guards]
    return (*guards, *[Guard(i, scope) for i, scope in scopes.pairs if i not in own])


def check_in_use(nodes: Sequence[Node]) -> None:
    """Raise NotInUse if one of the ancestors ``nodes`` is disabled."""
    for n, node in enumerate(nodes):
        if not node.in_use:
            path = path_of(nodes[: n + 1])
            message = f"the {node.kind} {path} is disabled and admits no writes below it; enable it first"
            raise NotInUse(message, kind=node.kind)


def key_under(parent: Node, name: str) -> str:
    """Return the key of ``name`` below ``parent``: the form in which the database compares names there."""
    return fold(name) if parent.fold else name
