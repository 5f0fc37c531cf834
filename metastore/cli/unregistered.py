"""Find entities of kinds that this program does not know, because another package, or a newer version, declares them.

No manager lists them, and their fields cannot be decoded here. They are found by their place in the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from metastore.cli.output import tell
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.installed import GROUP
from metastore.kinds.registry import KINDS, kind_named
from metastore.managers.all import Managers
from metastore.operation.guards import key_under, lookup
from metastore.port.records import Node
from metastore.store import Store

__all__ = ["explain", "unregistered_at", "unregistered_below"]

_AT_ONCE: Final = 1000


def unregistered_below(store: Managers, parent: Entity) -> Iterator[Entity]:
    """Yield the children of ``parent`` whose kinds are not registered, by kind and name; in the past, nothing."""
    if not isinstance(store, Store):
        return iter(())
    return _below(store, parent.record.chain[-1], None)


def unregistered_at(store: Managers, names: tuple[str, ...]) -> list[Entity]:
    """Return the entities at the path ``names`` whose kinds are not registered."""
    if len(names) < 2 or not isinstance(store, Store):
        return []
    return [entity for parent in _containers(store, names[:-1]) for entity in _below(store, parent, names[-1])]


def explain(kinds: Iterable[str]) -> None:
    """Write to stderr why entities of ``kinds`` are shown in their stored form, and how to change that."""
    if listed := ", ".join(sorted(set(kinds))):
        tell(
            f"not registered in this program, so shown as stored: {listed}; install the package that declares it, and "
            f'names its module under the entry points "{GROUP}" (docs/kinds.md)'
        )


def _containers(store: Store, names: tuple[str, ...]) -> list[Node]:
    """Return the entities at ``names`` that can have children, of registered or unregistered kinds."""
    kinds = [kind for kind in KINDS.values() if kind.container and families_of(kind, len(names))]
    lookups = {found.families: found for kind in kinds if (found := lookup(kind, names))}
    records = [found.record for found in store._session.backend.resolve(list(lookups.values()))]  # noqa: SLF001
    return [r.chain[-1] for r in records if r] + [e.record.chain[-1] for e in unregistered_at(store, names)]


def _below(store: Store, parent: Node, name: str | None) -> Iterator[Entity]:
    backend = store._session.backend  # noqa: SLF001
    key = None if name is None else key_under(parent, name)
    with backend.snapshot() as snapshot:
        rows = snapshot.below([parent.id], ("id", "kind", "key"), gone=False)
        ids = iter([row[0] for row in rows if row[1] not in KINDS and key in (None, row[2])])
    while some := list(islice(ids, _AT_ONCE)):
        for known in backend.by_id(some):
            if known is not None and known.live:
                yield kind_named(known.record.chain[-1].kind).entity(known.record)
