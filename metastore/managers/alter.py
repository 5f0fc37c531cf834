"""An alter, from its changes to a mutation that others can merge and apply."""

from __future__ import annotations

from metastore.kinds.change import EntityChange, meant
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind, dump_changes
from metastore.managers.create import rewrite
from metastore.managers.exclusive import check_version
from metastore.managers.mutation import Mutation, first_entity
from metastore.managers.sealing import Seal
from metastore.managers.target import Target, find, names_of
from metastore.operation.merge import altered
from metastore.operation.request import Merge, Proposal, View

__all__ = ["alter", "merge_of"]


def alter(
    kind: Kind,
    target: Target,
    changes: tuple[EntityChange, ...],
    expected_version: int | None,
    merge: Merge | None,
    actor: str | None,
    seal: Seal | None = None,
) -> Mutation[Entity]:
    """Return the mutation that applies ``changes`` to ``target``; ``seal``: what they were encrypted with."""

    def attempt(view: View) -> Proposal[Entity] | Entity:
        record = find(view, kind, target)
        check_version(record, expected_version)
        names = tuple([n.name for n in record.chain])
        text = altered(record.doc, names, changes, kind.check_doc)
        return rewrite(kind, record, text, dump_changes(changes, names), actor)

    return Mutation(
        verb="alter",
        target=target,
        attempt=attempt if seal is None else seal.guarding(attempt),
        replay=first_entity,
        arguments=lambda: [meant(changes), expected_version],
        merge=merge,
        exclusive=False,
        read_first=seal is not None,
    )


def merge_of(
    kind: Kind, target: Target, changes: tuple[EntityChange, ...], settled: tuple[int, int] | None = None
) -> Merge:
    """Return ``changes`` as another process can apply them: to the path, or to the entity in hand wherever it is."""
    if isinstance(target, Entity):
        return Merge(kind.name, None, target.id, changes, settled=settled)
    return Merge(kind.name, names_of(kind, target), None, changes, settled=settled)
