"""Check a user's request: the right that each of its writes needs, and guards that keep the evidence for it true.

The request's attempt stays the same, but it reads only entities that the user sees (:mod:`metastore.governance.seen`).
This module checks its proposal write by write, and adds the scope versions of the evidence as guards. If another call
takes a right away meanwhile, a guard fails at the commit, and the next attempt decides again from a new read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from metastore.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    MetastoreError,
    NotEmpty,
    PermissionDenied,
    VersionConflict,
)
from metastore.governance.access import Access, Want, guessing
from metastore.governance.evidence import KnownFacts, Nodes
from metastore.governance.privileges import OWNER
from metastore.kinds.attached import Attached
from metastore.kinds.drop import DROP, part_of, target_id
from metastore.kinds.entity import Entity, Owned
from metastore.kinds.job.filled import is_filled
from metastore.kinds.job.run import JOB
from metastore.kinds.job.template import JOB_TEMPLATE, JobTemplate
from metastore.kinds.principal import USER
from metastore.kinds.relation import relation_doc
from metastore.names import format_path, parse_path
from metastore.operation.dropping import keys_dropping
from metastore.operation.guards import lookup, requiring
from metastore.operation.request import Call, Merge, Proposal, Request, Results, View
from metastore.operation.standing import check_pointer, check_references, keeps
from metastore.port.backend import Reads
from metastore.port.commit import Commit
from metastore.port.conditions import ROOT_ID, Expect
from metastore.port.records import ROOT, Lookup, Resolved, Step
from metastore.port.relations import NO_COLUMN, NO_VALUE, ONLY
from metastore.port.scopes import Pairs, Scopes
from metastore.port.writes import Delete, Event, Insert, Place, Put, Relate, Update, Write

T = TypeVar("T")


def authorized(access: Access, request: Request[T], call: Call) -> Request[T]:
    """Return ``request`` with checks: its attempts raise PermissionDenied, and guard their evidence.

    Raises InvalidArgument for a call with another principal.
    """
    check_principal(access, call)

    def attempt(view: View) -> Proposal[T] | T:
        with guessing(view.trusting) as guessed:
            try:
                decided = request.attempt(view)
            except (EntityAlreadyExists, VersionConflict, NotEmpty, InvalidArgument) as error:
                _ask_first(access, request, view, error)
                raise
            finally:
                if guessed:
                    view.guess()
        return _guarded(access, view, decided, request.merge) if isinstance(decided, Proposal) else decided

    def replay(steps: Sequence[Step]) -> T:
        return request.replay([step for step in steps if request.verb != "create" or step.kind != OWNER])

    # announce only changes that an attempt was allowed to make, together with the evidence: see _guarded
    arguments = request.arguments
    return replace(
        request,
        attempt=attempt,
        replay=replay,
        judge=lambda steps, result: _check_seen(access, request, _shown(steps[0], result)),
        arguments=lambda: [arguments(), "as", access.who.name],
        merge=None,
    )


def check_principal(access: Access, call: Call) -> None:
    """Raise InvalidArgument for a call that names another principal than the user."""
    if call.principal not in (None, access.who.name):
        raise InvalidArgument(f"the principal of these calls is the user {access.who.name}; leave principal out")


def _ask_first(access: Access, request: Request[T], view: View, error: MetastoreError) -> None:
    """Raise PermissionDenied instead of an attempt's error if the user lacks the right: that error reveals more.

    A user who may not create below a container must not learn which names it has: they may be hidden. So if an attempt
    finds a name taken, decide once more as if the name were free, and check the rights for that. If an attempt fails an
    expectation of the caller, decide once more without it.
    """
    taken = isinstance(error, EntityAlreadyExists)
    free = _Untaken(view.backend, error.path) if isinstance(error, EntityAlreadyExists) else view.backend
    asked = View(cast(Reads, free), trusting=False, asking=True)
    with suppress(EntityNotFound, VersionConflict):  # the call fails for another reason than a missing right
        try:
            decided = request.attempt(asked)
        except EntityAlreadyExists as also:
            if not taken:
                _ask_first(access, request, view, also)
            return
        if isinstance(decided, Proposal):
            _guarded(access, asked, decided, request.merge)


class _Untaken:
    """Reads that hide the entity at one path."""

    def __init__(self, base: Reads, path: str) -> None:
        self._base = base
        self._path = path

    def resolve(self, lookups: Sequence[Lookup]) -> list[Resolved]:
        """Follow paths; the hidden path leads only to its parent."""
        return [self._cut(*pair) for pair in zip(lookups, self._base.resolve(lookups), strict=True)]

    def _cut(self, lookup: Lookup, found: Resolved) -> Resolved:
        if len(found.nodes) < len(lookup.names):
            return found
        above = self._names_of(lookup.start.id) if lookup.start.id != ROOT_ID else ()
        as_they_are = (*[node.name for node in found.nodes[:-1]], lookup.names[-1])
        paths = {format_path((*above, *names)) for names in (lookup.names, as_they_are)}
        return Resolved(found.nodes[:-1], None) if self._path in paths else found

    def _names_of(self, entity_id: int) -> tuple[str, ...]:
        (known,) = self._base.by_id([entity_id])
        return () if known is None else tuple([node.name for node in known.record.chain])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)


def _shown(first: Step, result: object) -> list[int]:
    """Return the ids of the entities that the result of an earlier message shows."""
    if isinstance(result, Entity):
        return [result.id]
    if isinstance(result, Owned):
        return [result.record.owner_id]
    ends = [i for i in (first.owner_id, first.other_id) if i is not None]
    return [*ends, result.target_id] if isinstance(result, Attached) else ends


def _check_seen(access: Access, request: Request[T], ids: Sequence[int]) -> None:
    """Raise EntityNotFound if the user no longer sees the entities in the result of an earlier message."""
    nodes = access.nodes_of(list(dict.fromkeys(ids)))
    if len(nodes) < len(set(ids)) or None in access.visible(list(nodes.values())):
        what = request.what()
        raise EntityNotFound(what, f"{what} was done before, and its result is no longer visible")


def _guarded(access: Access, view: View, proposal: Proposal[T], merge: Merge | None) -> Proposal[T] | T:
    """Return the proposal with guards that keep its evidence true; ``merge``: the changes to announce.

    Return the value instead if nothing is left to write: see ``_without_taken``.
    """
    wants = list(dict.fromkeys(want for write in proposal.writes for want in _wants(access, view, write, proposal)))
    templates = [template for write in proposal.writes for template in _template(access, view, write)]
    wants += [Want(template.id, "see") for template in templates]
    exclusive = [(w.id, w.scope_version) for w in proposal.writes if isinstance(w, Update) and w.scope_version]
    held = Scopes([(guard.id, guard.scope_version) for guard in proposal.guards] + exclusive)
    nodes = None if access.mine is None else _nodes_of(view, [want.on for want in wants])
    rests = access.guards(wants, held, trusting=view.trusting, nodes=nodes)
    if rests.guessed:
        view.guess()
    if proposal.skip_existing and any(isinstance(write, Insert) for write in proposal.writes):
        proposal = _without_taken(access, view, proposal, rests.known)
        if not proposal.writes:
            return proposal.finish(())
    writes, finish = _owned(access, proposal, rests.known)
    guards = requiring(proposal.guards, rests.scopes.without([i for i, _ in exclusive]))
    evidence, merge = rests.scopes.pairs, proposal.merge or merge
    if any(keeps(access, write) for write in proposal.writes):  # do not announce it: a helper may find other values
        merge = None
    carried = None if merge is None else replace(merge, evidence=_both(merge.evidence, rests.scopes))
    reads = (*proposal.reads, *dict.fromkeys(Expect(template.id, template.version) for template in templates))
    return replace(proposal, guards=guards, writes=writes, finish=finish, merge=carried, evidence=evidence, reads=reads)


def _both(one: Pairs, other: Scopes) -> Pairs:
    return Scopes.older([Scopes(one), other]).pairs if one else other.pairs


def _nodes_of(view: View, ids: Sequence[int]) -> dict[int, Nodes]:
    """Return the nodes of objects, as the transaction has changed them."""
    ids = list(dict.fromkeys(ids))
    rows = view.backend.by_id(ids)
    return {i: row.record.chain for i, row in zip(ids, rows, strict=True) if row is not None}


def with_evidence(commit: Commit, access: Access) -> Commit:
    """Return a transaction's commit that also guards the evidence of its reads.

    If the block saw two scope versions of one guard, require the older one, so that the commit fails, as it should.
    """
    own = [w.id for w in commit.writes if isinstance(w, Update) and w.scope_version is not None]
    guards = requiring(commit.guards, access.noted.without([*own, *(access.mine or ())]))
    return replace(commit, guards=guards, evidence=tuple([(g.id, g.scope_version) for g in guards]))


# --- the rights that a write needs


def _wants(access: Access, view: View, write: Write, proposal: Proposal[T]) -> Iterator[Want]:
    if isinstance(write, Insert):
        check_references(access, view, write)
        check_pointer(access, view, write)
        if write.parent_id == ROOT_ID:
            raise PermissionDenied(access.who.name, "admin", write.name, _NO_ADMIN.format(access.who.name))
        yield Want(write.parent_id, "create", write.kind)
    elif isinstance(write, Update):
        check_references(access, view, write)
        check_pointer(access, view, write)
        yield from _wants_of_update(view, write, proposal.writes)
    elif isinstance(write, Put | Delete):
        check_references(access, view, write)
        if write.kind == DROP.name:
            yield _want_of_drop(write.name)
            return
        links = write.event.kind != "model_version" or write.event.action == "create"
        yield Want(write.owner_id, "row", write.event.kind) if links else Want(write.owner_id, "own")
    else:
        yield from _wants_of_relation(write)


def _want_of_drop(name: str) -> Want:
    """Return the right that a step of a drop needs: the same as a plain drop of the entity, column or partition."""
    part = part_of(name)
    operation = {None: "drop", "column": "alter", "partition": "row"}[part]
    return Want(target_id(name), operation, part if operation == "row" and part else "")


_NO_ADMIN: Final = "{} may not create metalakes; only the library itself does, and the names in ms.open(admins=(…))"


def _wants_of_update(view: View, write: Update, writes: Sequence[Write]) -> Iterator[Want]:
    action = write.event.action
    linked = [w for w in writes if isinstance(w, Put) and w.owner_id == write.id and w.event.action == "create"]
    if action == "alter" and linked:
        yield Want(write.id, "row", linked[0].event.kind)  # a new version also writes the model's document
        return
    ends = [w.name for w in writes if isinstance(w, Delete) and w.kind == DROP.name]
    if action == "restore" and any(target_id(name) == write.id for name in ends):
        return  # its drop in steps is rolled back, for which the row of the drop needs a right
    yield Want(write.id, "own" if action == "move" else action)
    if _makes_somebody_else(view, write):
        yield Want(write.id, "rename")
    if write.place is None or action not in ("move", "restore"):
        return
    named, elsewhere = (False, True) if action == "move" else _changes(view, write.id, write.place)
    if named:
        yield Want(write.id, "rename")
    if elsewhere and write.place.parent_id != ROOT_ID:
        yield Want(write.place.parent_id, "create", write.event.kind)


def _makes_somebody_else(view: View, write: Update) -> bool:
    """Whether an update changes the external id of a user.

    Such an update needs the right to rename: a person with that external id signs in as this user.
    """
    if write.event.kind != USER.name or write.doc is None:
        return False
    (row,) = view.backend.by_id([write.id])  # the commit fails if the row has another version by then
    return row is None or _external_id(row.record.doc) != _external_id(write.doc)


def _external_id(doc: str) -> object:
    return json.loads(doc).get("external_id")


def _changes(view: View, entity_id: int, place: Place) -> tuple[bool, bool]:
    """Return whether a restore gives the entity another name, and another parent.

    A restore to the old place needs only the right that the drop needed.
    """
    (row,) = view.backend.by_id([entity_id])  # the write's scope version excludes a move in between
    if row is None:
        return True, True
    *_, parent, node = (ROOT, *row.record.chain)
    return node.name != place.name, parent.id != place.parent_id


def _wants_of_relation(write: Relate) -> Iterator[Want]:
    # check that the user still sees both ends, which the caller passed
    yield from (Want(write.from_id, "see"), Want(write.to_id, "see"))
    if write.kind in ("tag_on", "policy_on"):
        yield Want(write.to_id, "apply")
    elif write.kind == "membership":
        yield Want(write.to_id, "member")
    elif write.kind == "grant":
        yield Want(write.to_id, "grant")
    elif write.kind == OWNER:
        yield Want(write.from_id, "own")
    else:
        yield Want(write.from_id, "alter")


def _template(access: Access, view: View, write: Write) -> Iterator[JobTemplate]:
    """Yield the template of a job that is made or replaced. Raises EntityNotFound, PermissionDenied.

    A job runs a command as the user of some server. So it must come from a template that the user sees.
    """
    if not isinstance(write, Insert | Update) or write.event.kind != JOB.name or write.doc is None:
        return
    if write.event.action not in ("create", "alter") or write.event.changes != "[]":
        return
    job, path = json.loads(write.doc), parse_path(write.event.path_after or "")
    (resolved,) = view.backend.resolve([lookup(JOB_TEMPLATE, (*path[:-1], job["template"]))])
    if resolved.record is None:
        raise EntityNotFound(format_path((*path[:-1], job["template"])))
    template = JOB_TEMPLATE.entity(resolved.record)
    assert isinstance(template, JobTemplate)
    if not is_filled(job, template):
        message = (
            f"{access.who.name} may make only queued jobs with a template's own command: the job {format_path(path)} "
            f"does not match {template.path}; call metastore.jobs.submit"
        )
        raise PermissionDenied(access.who.name, "admin", format_path(path), message)
    yield template


# --- the owner of a new entity


def _without_taken(access: Access, view: View, proposal: Proposal[T], known: Mapping[int, KnownFacts]) -> Proposal[T]:
    """Return the proposal without the inserts whose names are taken, even by entities that the user does not see.

    The database would skip these inserts but still write their owners. If a name is taken only later, the commit
    conflicts. Names of pending drops are rare, so they are read only after such a conflict. A transaction raises
    DropPending for them.
    """
    inserts = {(w.parent_id, w.family, w.key): w for w in reversed(proposal.writes) if isinstance(w, Insert)}
    rows = [*reversed(inserts.values())]
    lookups = [Lookup((w.family,), (w.name,), known[w.parent_id].nodes[-1]) for w in rows]
    free = [
        write
        for write, there in zip(rows, view.backend.resolve(lookups), strict=True)
        if there.record is None and not there.nodes
    ]
    if free and access.mine is None and not view.guess():
        dropping = {at: keys_dropping(access.backend, *at) for at in {(w.parent_id, w.family) for w in free}}
        free = [write for write in free if write.key not in dropping[write.parent_id, write.family]]
    rest = [write for write in proposal.writes if not isinstance(write, Insert)]
    return replace(proposal, writes=(*free, *rest), skip_existing=False)


def _owned(
    access: Access, proposal: Proposal[T], known: Mapping[int, KnownFacts]
) -> tuple[tuple[Write, ...], Callable[[Results], T]]:
    """Return the writes that make the user the owner of its new entities, and the function that returns the result."""
    made = [write for write in proposal.writes if isinstance(write, Insert)]
    if not made:
        return proposal.writes, proposal.finish
    parent = known[made[0].parent_id]
    user = parent.facts.members[0]
    path = format_path((parent.nodes[0].name, user.name))
    writes: list[Write] = []
    owners: list[Write] = []
    for write in proposal.writes:
        if not isinstance(write, Insert):
            writes.append(write)
            continue
        new = access.next_id() if write.id is None else write.id
        access.made(new)
        with_id = replace(write, id=new)
        writes.append(with_id)
        owners.append(_owner(with_id, user.id, path))
    count = len(writes)

    return (*writes, *owners), lambda results: proposal.finish(results[:count])


def _owner(made: Insert, user_id: int, path: str) -> Relate:
    """Return the relation from a new entity to its owner, whose path is ``path``."""
    assert made.id is not None
    event = Event(OWNER, "create", None, made.event.path_after, other_path=path)
    doc = relation_doc(user_id, NO_COLUMN, NO_VALUE)
    return Relate(made.id, OWNER, ONLY, NO_COLUMN, NO_VALUE, user_id, 0, doc, event)
