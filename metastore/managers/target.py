"""Resolve a path or a loaded entity to its present record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeVar

from metastore.errors import CREATE_IT, EntityNotFound, InvalidArgument, MetastoreError, VersionConflict
from metastore.governance.access import guesses
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.names import Path, format_path, parse_path
from metastore.operation.dropping import LookAgain, pending_above, pending_at
from metastore.operation.guards import lookup
from metastore.operation.request import View, committed, is_same
from metastore.port.backend import Reads
from metastore.port.records import ROOT, Known, Lookup, Node, Record, path_of
from metastore.retry.runner import Conflict

T = TypeVar("T")
Target = Path | Entity

_MOST: Final = 50
"""How often a call may look again."""
_looks: ContextVar[int] = ContextVar("looks", default=0)


def names_of(kind: Kind, target: Target) -> tuple[str, ...]:
    """Return the names of ``target``, checked."""
    if isinstance(target, Entity):
        if target.kind != kind.name:
            raise _wrong_kind(kind, target)
        return target.names
    return parse_path(target)


def _wrong_kind(kind: Kind, target: Entity) -> InvalidArgument:
    return InvalidArgument(f"{target.path} is a {target.kind}, not a {kind.name}; use the manager of its kind")


def place_of(kind: Kind, target: Target) -> Lookup | Entity:
    """Return the place that ``target`` names, without a read. Raises InvalidArgument."""
    names = names_of(kind, target)
    return target if isinstance(target, Entity) else lookup(kind, names)


def find(view: View, kind: Kind, target: Target) -> Record:
    """Return the live entity of ``target``. Raises EntityNotFound, DropPending."""
    if isinstance(target, Entity):
        if target.kind != kind.name:
            raise _wrong_kind(kind, target)
        if view.trusts(target):
            return target.record
        known = by_id(view.backend, target)
        if known is None or not known.live:
            error = partial(not_live, view.backend, known, target.path, no_more(target, known))
            return unless_back(error, lambda: find(view, kind, target))
        view.saw(known.record.chain)
        return known.record
    where = lookup(kind, parse_path(target))
    resolved = view.resolve(where)
    record = resolved.record
    if record is None or record.chain[-1].kind != kind.name:
        error = partial(absent, view.backend, where, resolved.nodes)
        return unless_back(error, lambda: find(view, kind, target))
    view.saw(record.chain)
    return record


def by_id(backend: Reads, entity: Entity) -> Known | None:
    """Return a loaded entity as it is now; None: it was purged, or another entity has its id."""
    (known,) = backend.by_id([entity.id])
    return known if known is not None and is_same(entity, known.record) else None


def in_hand(reads: Reads, target: Target | None, read: Callable[[], T]) -> T:
    """Return the result of ``read``, which reads by the id of ``target`` if that is a loaded entity.

    Raises EntityNotFound if another entity has the id by now, because the loaded entity's commit was lost. Raises
    InvalidArgument for an entity of another database.
    """
    if not isinstance(target, Entity):
        return read()
    while True:
        here = reads.origin
        committed(reads, target)
        # all views of the past share no run: only a read tells whether one was made before commits were lost
        if target.origin is None or target.origin.run is None or target.origin.run != here.run:
            (known,) = reads.by_id([target.id])
            if known is not None and not is_same(target, known.record):
                raise EntityNotFound(target.path, no_more(target, known))
        answer = read()
        if reads.origin is here:
            return answer  # no server change meanwhile: another server might lack the entity


def unless_back(error: Callable[[], MetastoreError], again: Callable[[], T]) -> T:
    """Raise the error for a missing entity; if the error finds that the entity is back, look again."""
    try:
        raise error()
    except LookAgain as changed:
        return look_again(changed, again)


def look_again(changed: LookAgain, again: Callable[[], T]) -> T:
    """Return the result of ``again``. Raises VersionConflict after too many looks, ``changed`` in a guessing block."""
    # remembered rights would show the ancestors but hide the entity at each look: let the attempt run without them
    if guesses() is not None:
        raise changed
    if (looks := _looks.get()) == _MOST:
        message = f"{changed.detail}, {_MOST} times while this call looked; call again"
        raise VersionConflict(changed.path, None, None, message) from None
    token = _looks.set(looks + 1)
    try:
        return again()
    finally:
        _looks.reset(token)


def target_value(target: Target) -> object:
    """Return ``target`` as a JSON value; an entity becomes its id."""
    return target.id if isinstance(target, Entity) else list(parse_path(target))


def missing(names: tuple[str, ...], nodes: tuple[Node, ...]) -> EntityNotFound:
    """Return the error for a path that ends after ``nodes``."""
    path = format_path(names)
    if len(nodes) < len(names) - 1:
        ancestor = format_path(names[: len(nodes) + 1])
        message = f"{path} does not exist: there is no {ancestor}; {CREATE_IT}"
        return EntityNotFound(path, message, missing=ancestor)
    return EntityNotFound(path)


def missing_parent(names: tuple[str, ...], nodes: tuple[Node, ...]) -> EntityNotFound:
    """Return the error for a new path whose parents end after ``nodes``; it names the ancestor to create."""
    ancestor = format_path(names[: len(nodes) + 1])
    return EntityNotFound(ancestor, f"{ancestor} does not exist; create it before {format_path(names)}")


def absent(backend: Reads, where: Lookup, nodes: tuple[Node, ...]) -> MetastoreError:
    """Return the error for a path that ends after ``nodes``: the next entity is being dropped, or does not exist.

    This function and the next ones raise LookAgain if the entity exists now.
    """
    return pending_at(backend, where, nodes) or missing(where.names, nodes)


def absent_from(backend: Reads, ends: Sequence[tuple[Lookup, tuple[Node, ...]]]) -> MetastoreError:
    """Return the error for a path of several possible kinds; for each kind, the path ends after the given nodes."""
    pending = (pending_at(backend, where, nodes) for where, nodes in ends)
    where, nodes = max(ends, key=lambda end: len(end[1]))
    return next((error for error in pending if error is not None), None) or missing(where.names, nodes)


def absent_parent(backend: Reads, where: Lookup, nodes: tuple[Node, ...]) -> MetastoreError:
    """Return the error for a new path whose parents end after ``nodes``: see :func:`absent`."""
    return pending_at(backend, where, nodes) or missing_parent(where.names, nodes)


def not_live(backend: Reads, known: Known | None, path: str, message: str) -> MetastoreError:
    """Return the error for an entity read by its id that is not live: it is being dropped, or was dropped."""
    if known is not None and known.live:  # another process has restored the entity since the first read
        raise LookAgain(path)
    pending = pending_above(backend, known.record.chain) if known is not None and known.dropping else None
    return pending or EntityNotFound(path, message)


def no_more(target: Entity, known: Known | None) -> str:
    """Return the message for a loaded entity that is not live; ``known`` is its present record."""
    # a view of the past, or of a replica, does not show later entities
    later = "" if known is not None else ", or was made later than this view"
    return f"{target.path} (id {target.id}) is not there any more{later}; load the path to see what is there"


def find_parent(view: View, kind: Kind, parent: Entity) -> tuple[Node, ...]:
    """Return the nodes of ``parent``, which must be able to hold a ``kind``."""
    if not isinstance(parent, Entity) or parent.kind not in kind.parents:
        what = getattr(parent, "kind", type(parent).__name__)
        raise InvalidArgument(f"a {kind.name} is below a {' or a '.join(kind.parents) or 'root'}, not a {what}")
    if view.trusts(parent):
        return view.newest(parent.record.chain)
    known = by_id(view.backend, parent)
    if known is None or not known.live:
        raise not_live(view.backend, known, parent.path, f"{parent.path} (id {parent.id}) is not there any more")
    view.saw(known.record.chain)
    return known.record.chain


@contextmanager
def standing(view: View, chain: Sequence[Node]) -> Iterator[None]:
    """Raise the block's error only if the entities of ``chain`` have not moved since they were read.

    Otherwise the error mixes two instants, and describes a state that never existed. Then raise Conflict, so that the
    call is tried again.
    """
    try:
        yield
    except MetastoreError:
        check_standing(view, chain)
        raise


def check_standing(view: View, chain: Sequence[Node]) -> None:
    """Raise Conflict if the path of ``chain`` has changed since it was read."""
    if not view.guessed and not view.backend.hold([(n.id, n.scope_version) for n in chain]):
        path = path_of(chain)
        raise Conflict("ancestor", f"{path} was renamed, moved, dropped or restored meanwhile") from None


def root_or_last(nodes: tuple[Node, ...]) -> Node:
    """Return the parent of new children: the last of the nodes, or the root."""
    return nodes[-1] if nodes else ROOT
