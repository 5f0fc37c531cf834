"""The attempt of an alter, whose changes other processes can merge and apply, and the write of the new document."""

from __future__ import annotations

from dataclasses import replace

from metastore.kinds.change import EntityChange
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind, dump_changes
from metastore.managers.attempts.exclusive import check_version
from metastore.managers.target import Target, find, names_of
from metastore.names import format_path
from metastore.operation.guards import check_in_use
from metastore.operation.helping import own_guards
from metastore.operation.merge import altered
from metastore.operation.request import Attempt, Merge, Proposal, Results, View, the_result
from metastore.operation.seals import Seal, bound_changes
from metastore.port.records import Record
from metastore.port.writes import Event, Update
from metastore.secrets.declared import declares


def alter(
    kind: Kind,
    target: Target,
    changes: tuple[EntityChange, ...],
    expected_version: int | None,
    merge: Merge | None,
    actor: str | None,
    seal: Seal | None = None,
    secret: Merge | None = None,
) -> Attempt[Entity]:
    """Return the attempt that applies ``changes`` to ``target``; ``seal`` encrypted them.

    If changes are encrypted, the call announces ``secret`` instead of ``merge``: it has the changes that the attempt
    has bound to the entity.
    """

    def attempt(view: View) -> Proposal[Entity] | Entity:
        record = find(view, kind, target)
        if expected_version is not None:
            check_version(view, record, expected_version, target)
        names = tuple([n.name for n in record.chain])
        if view.asking:
            return rewrite(kind, record, names, record.doc, dump_changes(changes, names), actor)
        made = changes if seal is None else bound_changes(changes, record.chain[-1].id, record.doc)
        text = altered(record.doc, names, made, kind.check_doc)
        proposal = rewrite(kind, record, names, text, dump_changes(made, names), actor, merge)
        if secret is None or not isinstance(proposal, Proposal):
            return proposal
        return replace(proposal, merge=replace(secret, changes=made))

    return attempt if seal is None else seal.guarding(attempt)


def rewrite(
    kind: Kind,
    record: Record,
    names: tuple[str, ...],
    text: str | None,
    changes: str,
    actor: str | None,
    merge: Merge | None = None,
) -> Proposal[Entity] | Entity:
    """Propose a new document for the entity at ``names``. If ``text`` is None, nothing changes: return the entity.

    ``merge``: the intent to announce if the commit loses.
    """
    check_in_use(record.chain[:-1])
    if text is None:
        return kind.entity(record)
    path = format_path(names)
    write = Update(record.chain[-1].id, record.version, Event(kind.name, "alter", path, path, changes), doc=text)

    def finish(results: Results) -> Entity:
        result, chain = the_result(results), record.chain
        if result.scope_version is not None:  # a change of rights may have raised the scope version since the read
            chain = (*chain[:-1], chain[-1]._replace(scope_version=result.scope_version))
        return kind.entity(
            record._replace(chain=chain, version=result.version, doc=text, modified_by=actor, modified_at=result.time)
        )

    proposal = Proposal(own_guards(record.chain), (write,), finish, merge=merge)
    if kind.name != "catalog" or declares(record.doc) == declares(text):
        return proposal
    own = record.chain[-1]
    record = record._replace(chain=(*record.chain[:-1], own._replace(scope_version=own.scope_version + 1)))
    return proposal.counting_up(own.id)


def merge_of(
    kind: Kind, target: Target, changes: tuple[EntityChange, ...], settled: tuple[int, int] | None = None
) -> Merge:
    """Return ``changes`` for other processes to apply: to the path, or to the loaded entity wherever it is."""
    if isinstance(target, Entity):
        return Merge(kind.name, None, target.id, changes, settled=settled)
    return Merge(kind.name, names_of(kind, target), None, changes, settled=settled)
