"""Find the entity that has changed since a transaction read it, for the error that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from metastore.port.backend import Reads
from metastore.port.conditions import ROOT_ID
from metastore.port.records import path_of


class Changed(NamedTuple):
    """A changed entity: its versions, if they are known, and who changed it."""

    path: str
    expected: int | None
    found: int | None
    principal: str | None
    id: int | None = None
    """None: a scope has changed."""


def changed(
    backend: Reads, expected: Mapping[int, int], guards: Mapping[int, int], name_of: Callable[[int], str]
) -> Changed | None:
    """Return the first entity that lost its ``expected`` version, or the first scope whose guard changed.

    Both mappings are by id. ``name_of`` returns the name of an entity that was purged meanwhile. None: nothing differs
    now, perhaps because a change was undone.
    """
    for (entity_id, version), known in zip(expected.items(), backend.by_id(list(expected)), strict=True):
        if known is None:
            return Changed(name_of(entity_id), version, None, None, entity_id)
        chain = known.record.chain
        path = path_of(chain)
        moved = [n for n, a in enumerate(chain) if guards.get(a.id, a.scope_version) != a.scope_version]
        if moved and (known.live or moved[0] < len(chain) - 1) and known.record.version == version:
            return Changed(path_of(chain[: moved[0] + 1]), None, None, None)
        if not known.live:
            return Changed(path, version, None, None, entity_id)
        if known.record.version != version:
            return Changed(path, version, known.record.version, known.record.modified_by, entity_id)
    for known in backend.by_id([i for i in guards if i != ROOT_ID]):
        if known is not None and guards[known.record.chain[-1].id] != known.record.chain[-1].scope_version:
            return Changed(known.record.path, None, None, None)
    return None
