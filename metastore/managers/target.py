"""Resolve what a caller names, a path or an entity in hand, to the record that is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.names import Path, format_path, parse_path
from metastore.operation.guards import lookup
from metastore.operation.request import View
from metastore.port.records import ROOT, Lookup, Node, Record, Resolved
from metastore.retry.runner import Conflict

__all__ = [
    "Target",
    "check_standing",
    "find",
    "find_parent",
    "missing",
    "missing_parent",
    "names_of",
    "of_kind",
    "place_of",
    "root_or_last",
    "shown",
    "standing",
]

Target = Path | Entity


def names_of(kind: Kind, target: Target) -> tuple[str, ...]:
    """Return the names of ``target``, checked."""
    if isinstance(target, Entity):
        _check_kind(kind, target)
        return target.names
    return parse_path(target)


def _check_kind(kind: Kind, target: Entity) -> None:
    if target.kind != kind.name:
        raise InvalidArgument(f"{target.path} is a {target.kind}, not a {kind.name}; use the manager of its kind")


def place_of(kind: Kind, target: Target) -> Lookup | Entity:
    """Return what ``target`` names, before it is looked for. Raises InvalidArgument."""
    names = names_of(kind, target)
    return target if isinstance(target, Entity) else lookup(kind, names)


def find(view: View, kind: Kind, target: Target) -> Record:
    """Return the live entity that ``target`` means, or raise EntityNotFound."""
    if isinstance(target, Entity):
        _check_kind(kind, target)
        if view.trusts(target):
            return target.record
        known = view.backend.by_id([target.id])[0]
        if known is None or not known.live:
            raise EntityNotFound(
                target.path, f"{target.path} (id {target.id}) was dropped; load the path to see what is there now"
            )
        view.saw(known.record.chain)
        return known.record
    names = parse_path(target)
    resolved = view.resolve(lookup(kind, names))
    record = of_kind(kind, names, resolved)
    view.saw(record.chain)
    return record


def of_kind(kind: Kind, names: tuple[str, ...], resolved: Resolved) -> Record:
    """Return the entity that a path led to. Raises EntityNotFound for none, or one of another kind."""
    record = resolved.record
    if record is None or record.chain[-1].kind != kind.name:
        raise missing(names, resolved.nodes)
    return record


def shown(target: Target) -> object:
    """Return ``target`` as a JSON value: an entity is its id."""
    return target.id if isinstance(target, Entity) else list(parse_path(target))


def missing(names: tuple[str, ...], nodes: tuple[Node, ...]) -> EntityNotFound:
    """The error for a path that ends after ``nodes``."""
    path = format_path(names)
    if len(nodes) < len(names) - 1:
        ancestor = format_path(names[: len(nodes) + 1])
        return EntityNotFound(path, f"{path} does not exist: there is no {ancestor}", missing=ancestor)
    return EntityNotFound(path)


def missing_parent(names: tuple[str, ...], nodes: tuple[Node, ...]) -> EntityNotFound:
    """The error for a new path whose parents end after ``nodes``; its path is the ancestor to create."""
    ancestor = format_path(names[: len(nodes) + 1])
    return EntityNotFound(ancestor, f"{ancestor} does not exist; create it before {format_path(names)}")


def find_parent(view: View, kind: Kind, parent: Entity) -> tuple[Node, ...]:
    """Return the nodes of ``parent``, which must be able to hold a ``kind``."""
    if not isinstance(parent, Entity) or parent.kind not in kind.parents:
        what = getattr(parent, "kind", type(parent).__name__)
        raise InvalidArgument(f"a {kind.name} stands below a {' or a '.join(kind.parents) or 'root'}, not a {what}")
    if view.trusts(parent):
        return view.newest(parent.record.chain)
    known = view.backend.by_id([parent.id])[0]
    if known is None or not known.live:
        raise EntityNotFound(parent.path, f"{parent.path} (id {parent.id}) was dropped")
    view.saw(known.record.chain)
    return known.record.chain


@contextmanager
def standing(view: View, chain: Sequence[Node]) -> Iterator[None]:
    """Raise the error of a second read only if the entities of the first read are still where they were.

    Otherwise the two reads are of different instants, and their error describes a state that never was. Then Conflict
    is raised, and the call is tried again.
    """
    try:
        yield
    except MetastoreError:
        check_standing(view, chain)
        raise


def check_standing(view: View, chain: Sequence[Node]) -> None:
    """Raise Conflict if the path of ``chain`` has changed since it was read."""
    if not view.guessed and not view.backend.hold([(n.id, n.scope_version) for n in chain]):
        path = format_path([n.name for n in chain])
        raise Conflict("ancestor", f"{path} was renamed, moved, dropped or restored meanwhile") from None


def root_or_last(nodes: tuple[Node, ...]) -> Node:
    """Return the node that new children hang below."""
    return nodes[-1] if nodes else ROOT
