"""Attempts of exclusive operations: rename, move, drop, restore, purge, enable, disable.

Each bumps the entity's scope version, and writes only the entity's own rows, however much is below it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from metastore.arguments import positive_integer
from metastore.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument, NotEmpty, VersionConflict
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.kinds.registry import kind_named
from metastore.managers.drops.row import pending_in
from metastore.managers.target import (
    Target,
    absent,
    absent_parent,
    by_id,
    find,
    names_of,
    not_live,
    root_or_last,
    standing,
)
from metastore.names import Path, format_path, parse_path
from metastore.operation.dropping import LookAgain, pending_above, pending_named
from metastore.operation.guards import both, check_in_use, guards_of, key_under, lookup
from metastore.operation.request import Proposal, Results, View, is_lost, the_result
from metastore.port.conditions import DROPPED, DROPPING, LIVE, PURGING, Guard, Newest
from metastore.port.records import Lookup, Node, Record, path_of
from metastore.port.writes import Event, Named, Place, Result, Update


def check_version(view: View, record: Record, expected: int | None, target: Target) -> None:
    """Raise VersionConflict if the version is not the expected one, or if a fail-over lost it: see ``is_lost``."""
    if expected is None or view.asking:
        return
    expected = positive_integer(expected, "a version")
    if record.version != expected:
        raise VersionConflict(record.path, expected, record.version)
    if isinstance(target, Entity) and is_lost(target, record):
        raise VersionConflict(
            record.path,
            expected,
            record.version,
            f"version {expected} of {record.path} is not the one that you loaded: an older backup was restored; "
            "load it again",
        )


@dataclass(frozen=True)
class _Exclusive:
    """An exclusive update of one entity that has been read."""

    kind: Kind
    record: Record
    actor: str | None

    def propose(
        self, action: str, after: tuple[Node, ...] | None, guards: tuple[Guard, ...], **changes: Any
    ) -> Proposal[Entity]:
        """Propose ``action``; ``after`` is the entity's chain afterwards, None if no path leads to it then."""
        node = self.record.chain[-1]
        before = None if action == "restore" else self.record.path
        path_after = None if after is None else path_of(after)
        event = Event(self.kind.name, action, before, path_after)
        write = Update(node.id, self.record.version, event, scope_version=node.scope_version, **changes)

        return Proposal(guards, (write,), lambda results: self.ended(after, the_result(results)))

    def place(self, action: str, above: tuple[Node, ...], name: str, **changes: Any) -> Proposal[Entity]:
        """Propose ``action``, which gives the entity this name below ``above``.

        It guards the old place too: gc may have begun to delete everything below that.
        """
        old, node, parent = self.record.chain[:-1], self.record.chain[-1], root_or_last(above)
        if parent.id != root_or_last(old).id and self.kind.stays:
            message = f"a {self.kind.name} stays in its metalake; create another one there instead"
            raise InvalidArgument(f"{self.record.path}: {message}")
        fold = node.fold if self.kind.container else parent.fold
        place, after = Place(parent.id, name, key_under(parent, name), fold), node._replace(name=name, fold=fold)
        return self.propose(action, (*above, after), both(old, above), place=place, **changes)

    def ended(self, after: tuple[Node, ...] | None, result: Result) -> Entity:
        """Return the entity as the update left it."""
        chain = after or self.record.chain
        last = chain[-1]._replace(scope_version=self.record.chain[-1].scope_version + 1)
        record = self.record._replace(
            chain=(*chain[:-1], last), version=result.version, modified_by=self.actor, modified_at=result.time
        )
        return self.kind.entity(record)


@dataclass(frozen=True)
class _ByName:
    """An exclusive update of a child that the commit finds by its name below remembered parents, which it checks too.

    This saves the read. ``expected``: the child's version; None: any.
    """

    kind: Kind
    parents: tuple[Node, ...]
    name: str
    expected: int | None
    actor: str | None

    def propose(self, action: str, to: str | None, **changes: Any) -> Proposal[Entity]:
        """Propose ``action``; ``to`` is the child's name afterwards, None if it has none."""
        above = [n.name for n in self.parents]
        after = None if to is None else format_path((*above, to))
        event = Event(self.kind.name, action, format_path((*above, self.name)), after)
        named = Named(self.parents[-1].id, self.kind.family, self.name)
        version = 0 if self.expected is None else positive_integer(self.expected, "a version")
        write = Update(0, version, event, scope_version=0, named=named, **changes)

        def finish(results: Results) -> Entity:
            result = the_result(results)
            assert result.found is not None
            node = result.found.chain[-1]
            found = result.found._replace(chain=(*self.parents, node))
            return _Exclusive(self.kind, found, self.actor).ended(
                (*self.parents, node._replace(name=self.name if to is None else to)), result
            )

        return Proposal(guards_of(self.parents), (write,), finish)


def _by_name(view: View, kind: Kind, target: Target, expected: int | None, actor: str | None) -> _ByName | None:
    """Return an update by name; None: the entity must be read first."""
    if isinstance(target, Entity):
        return None
    where = lookup(kind, parse_path(target))
    parents = view.above(where)
    if parents is None:
        return None
    check_in_use(parents)
    return _ByName(kind, parents, where.names[-1], expected, actor)


def rename(
    view: View, kind: Kind, target: Target, to: Path, expected_version: int | None, actor: str | None
) -> Proposal[Entity] | Entity:
    """Propose a new name, or a new parent and name, for ``target``."""
    wanted = parse_path(to)
    named = None if _may_move(target, wanted) else _by_name(view, kind, target, expected_version, actor)
    if named is not None:
        above = named.parents[-1]
        return named.propose("rename", wanted[-1], place=Place(above.id, wanted[-1], wanted[-1], above.fold))
    record = find(view, kind, target)
    check_version(view, record, expected_version, target)
    parents, node = record.chain[:-1], record.chain[-1]
    moves = len(wanted) > 1 and wanted[:-1] != tuple(n.name for n in parents)
    if view.guessed and moves:
        record = find(View(view.backend, False), kind, target)  # a move reads both parents anyway
        parents, node = record.chain[:-1], record.chain[-1]
    # the unique index checks whether the name is free, so read only after a commit was refused
    check_in_use(parents)
    with standing(view, record.chain):
        new_parents = parents if view.trusting and not moves else _new_parents(view, kind, record, wanted)
        check_in_use(new_parents)
    same_parent = root_or_last(new_parents).id == root_or_last(parents).id
    if same_parent and wanted[-1] == node.name:
        # an ancestor was renamed between the two reads: the entity was never at this path
        if guards_of(parents) != guards_of(new_parents):
            raise LookAgain(format_path(wanted))
        return kind.entity(record)
    parent = root_or_last(new_parents)
    if not same_parent and kind.container and len(new_parents) > 1 and parent.fold != node.fold:
        raise InvalidArgument(
            f"{record.path} cannot move to a catalog that compares names differently (fold_case); copy it instead"
        )
    return _Exclusive(kind, record, actor).place("rename" if same_parent else "move", new_parents, wanted[-1])


def _may_move(target: Target, wanted: tuple[str, ...]) -> bool:
    """Whether a rename of a path may be a move to another parent, or keeps the present name."""
    if isinstance(target, Entity):
        return False
    *above, name = parse_path(target)
    return wanted[-1] == name or (len(wanted) > 1 and wanted[:-1] != tuple(above))


def _new_parents(view: View, kind: Kind, record: Record, wanted: tuple[str, ...]) -> tuple[Node, ...]:
    """Return the nodes above the wanted path, which must be free and not below the entity itself."""
    if len(wanted) == 1:
        wanted = (*[n.name for n in record.chain[:-1]], wanted[0])
    where = lookup(kind, wanted)
    (resolved,) = view.backend.resolve([where])
    nodes, own = resolved.nodes, record.chain[-1].id
    if any(n.id == own for n in nodes[: len(wanted) - 1]):
        raise InvalidArgument(f"{record.path} cannot move below itself, to {format_path(wanted)}")
    if len(nodes) == len(wanted) and nodes[-1].id != own:
        raise EntityAlreadyExists(format_path(wanted))
    if len(nodes) < len(wanted) - 1:
        raise absent_parent(view.backend, where, nodes)
    return nodes[: len(wanted) - 1]


def drop(
    view: View, kind: Kind, target: Target, cascade: bool, expected_version: int | None, actor: str | None
) -> Proposal[bool] | bool:
    """Propose the drop; False if there is nothing to drop."""
    named = _by_name(view, kind, target, expected_version, actor)
    if named is not None:
        proposal = named.propose("drop", None, state=DROPPED, empty=kind.container and not cascade)
        return Proposal(proposal.guards, proposal.writes, lambda _: True)
    try:
        record = find(view, kind, target)
    except EntityNotFound:
        return False
    check_version(view, record, expected_version, target)
    check_in_use(record.chain[:-1])
    empty = kind.container and not cascade
    # the commit checks this too, so look for children only after a commit was refused
    if empty and not view.trusting and not view.asking:
        with standing(view, record.chain):
            check_empty(view, record, ", or drop it with cascade=True")
    proposal = _Exclusive(kind, record, actor).propose(
        "drop", None, guards_of(record.chain[:-1]), state=DROPPED, empty=empty
    )
    return Proposal(proposal.guards, proposal.writes, lambda _: True)


def check_empty(view: View, record: Record, instead: str = "") -> None:
    """Raise NotEmpty if the entity has children of any kind that are live, or are being dropped in steps."""
    if view.backend.has_children(record.chain[-1].id):
        path, unlisted = record.path, pending_in(view.backend, record.chain[-1].id)
        also = f"; listings leave out {unlisted}, which is being dropped: see store.drops.pending()" if unlisted else ""
        raise NotEmpty(f"{path} is not empty; drop what is in it first{instead}{also}")


def restore(
    view: View, kind: Kind, path: Path, entity_id: int | None, to: Path | None, actor: str | None
) -> Proposal[Entity]:
    """Propose to restore the entity that was dropped last at ``path``, or the one with ``entity_id``."""
    names = parse_path(path)
    record = _dropped(view, kind, names, entity_id)
    # in a folding catalog, the given name may be another spelling
    own_name = record.chain[-1].name if entity_id is None else names[-1]
    wanted = (*names[:-1], own_name) if to is None else parse_path(to)
    if to is not None and len(wanted) == 1 and len(names) > 1:
        wanted = (*names[:-1], wanted[0])
    node = record.chain[-1]
    with standing(view, record.chain):
        where = lookup(kind, wanted)
        (resolved,) = view.backend.resolve([where])
        if len(resolved.nodes) == len(wanted):
            taken = format_path(wanted)
            message = f"{taken} already exists; restore the dropped one under another name: give it with to="
            raise EntityAlreadyExists(taken, message)
        if len(resolved.nodes) < len(wanted) - 1:
            raise absent_parent(view.backend, where, resolved.nodes)
        parents = resolved.nodes
        if any(n.id == node.id for n in parents):
            raise InvalidArgument(f"{format_path(names)} cannot be restored below itself")
        check_in_use(parents)
    parent = root_or_last(parents)
    if kind.container and len(parents) > 1 and parent.fold != node.fold:
        raise InvalidArgument(f"{format_path(names)} cannot be restored to a catalog that compares names differently")
    proposal = _Exclusive(kind, record, actor).place("restore", parents, wanted[-1], state=LIVE)
    return proposal if entity_id is not None else _of_newest(proposal, kind, names, record)


def _of_newest(proposal: Proposal[Entity], kind: Kind, names: tuple[str, ...], record: Record) -> Proposal[Entity]:
    """Let the commit check that no entity of this name was dropped later; the parent's guard excludes new drops."""
    parent = root_or_last(record.chain[:-1])
    guards = tuple([replace(g, exclusive=True) if g.id == parent.id else g for g in proposal.guards])
    newest = Newest(parent.id, kind.name, kind.family, key_under(parent, names[-1]), record.chain[-1].id)
    return replace(proposal, guards=guards, reads=(newest,))


def _dropped(view: View, kind: Kind, names: tuple[str, ...], entity_id: int | None) -> Record:
    """Return the dropped entity of the call, or raise EntityNotFound."""
    path = format_path(names)
    where = lookup(kind, names)
    if entity_id is not None:
        known = view.backend.by_id([entity_id])[0]
        fits = known is not None and known.record.chain[-1].kind == kind.name and known.state == DROPPED
        if known is None or not fits or known.doomed:
            message = f"no dropped {kind.name} with id {entity_id}; see the manager's dropped()"
            live = known is not None and known.live  # if it is live, the error needs no further look
            raise EntityNotFound(path, message) if live else not_live(view.backend, known, path, message)
        return known.record
    parents: tuple[Node, ...] = ()
    if len(names) > 1:
        (resolved,) = view.backend.resolve([Lookup(where.families[:-1], names[:-1])])
        if resolved.record is None:  # a hidden parent has all its nodes
            raise absent(view.backend, where, resolved.nodes[: len(names) - 2])
        parents = resolved.nodes
    parent = root_or_last(parents)
    with standing(view, parents):
        key = key_under(parent, names[-1])
        child = view.backend.gone(parent.id, kind.name, kind.family, key)
        if child is None:
            pending = pending_named(view.backend, parent.id, kind.family, key, path)
            raise pending or EntityNotFound(path, f"no {kind.name} was dropped at {path}, or gc has collected it")
    return child.record(parents)


def purge(
    view: View, kind: Kind, target: Target, expected_version: int | None, actor: str | None
) -> Proposal[int] | int:
    """Propose to make an entity unrestorable; return its id. The caller, or gc, deletes the rows.

    Return 0 if the entity does not exist, or if the purge of a dropped ancestor will remove it.
    """
    if isinstance(target, Entity):
        names_of(kind, target)
        known = by_id(view.backend, target)
        if known is None:
            return 0
        record, own_state = known.record, known.state
        if own_state == PURGING:
            return target.id
        if own_state == DROPPING and (pending := pending_above(view.backend, record.chain)):
            raise pending
        if own_state == LIVE and not known.live:
            return 0  # an ancestor was dropped, and its purge will remove this entity too
    else:
        try:
            record, own_state = find(view, kind, target), LIVE
        except EntityNotFound:
            return 0
    node = record.chain[-1]
    check_version(view, record, expected_version, target)
    if own_state == LIVE:
        check_in_use(record.chain[:-1])
        if kind.container:
            with standing(view, record.chain):
                check_empty(view, record)
    proposal = _Exclusive(kind, record, actor).propose(
        "purge", None, guards_of(record.chain[:-1]), state=PURGING, empty=kind.container and own_state == LIVE
    )
    return Proposal(proposal.guards, proposal.writes, lambda _: node.id)


def collect(view: View, entity_id: int, before: int, actor: str | None) -> Proposal[int] | int:
    """Propose to make an entity unrestorable if it was dropped before ``before`` and not restored since."""
    known = view.backend.by_id([entity_id])[0]
    if known is None or known.state != DROPPED or known.record.modified_at >= before:
        return 0
    kind, record = kind_named(known.record.chain[-1].kind), known.record
    proposal = _Exclusive(kind, record, actor).propose("purge", None, guards_of(record.chain[:-1]), state=PURGING)
    return Proposal(proposal.guards, proposal.writes, lambda _: entity_id)


def set_in_use(view: View, kind: Kind, target: Target, in_use: bool, actor: str | None) -> Proposal[Entity] | Entity:
    """Propose to enable or disable ``target``."""
    if not kind.can_be_disabled:
        raise InvalidArgument(f"a {kind.name} cannot be enabled or disabled")
    record = find(view, kind, target)
    check_in_use(record.chain[:-1])
    node = record.chain[-1]
    if node.in_use == in_use:
        return kind.entity(record)
    after = (*record.chain[:-1], node._replace(in_use=in_use))
    action = "enable" if in_use else "disable"
    return _Exclusive(kind, record, actor).propose(action, after, guards_of(record.chain[:-1]), in_use=in_use)
