"""What a transaction found changed, for the error that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from metastore.names import format_path
from metastore.port.backend import Backend
from metastore.port.commit import ROOT_ID

__all__ = ["Changed", "changed"]


class Changed(NamedTuple):
    """What a transaction found changed: the versions, where they are known, and by whom."""

    path: str
    expected: int | None
    found: int | None
    principal: str | None


def changed(
    backend: Backend, expected: Mapping[int, int], guards: Mapping[int, int], name_of: Callable[[int], str]
) -> Changed | None:
    """Return which entity has not the version that was ``expected``, or which scope not the one of its guard.

    Both by id. ``name_of`` is asked for what was purged meanwhile. None: neither, or not any more.
    """
    for (entity_id, version), known in zip(expected.items(), backend.by_id(list(expected)), strict=True):
        if known is None:
            return Changed(name_of(entity_id), version, None, None)
        chain = known.record.chain
        path = format_path([n.name for n in chain])
        moved = [n for n, a in enumerate(chain) if guards.get(a.id, a.scope_version) != a.scope_version]
        if moved and (known.live or moved[0] < len(chain) - 1) and known.record.version == version:
            return Changed(format_path([a.name for a in chain[: moved[0] + 1]]), None, None, None)
        if not known.live:
            return Changed(path, version, None, None)
        if known.record.version != version:
            return Changed(path, version, known.record.version, known.record.modified_by)
    for known in backend.by_id([i for i in guards if i != ROOT_ID]):
        if known is not None and guards[known.record.chain[-1].id] != known.record.chain[-1].scope_version:
            return Changed(format_path([n.name for n in known.record.chain]), None, None, None)
    return None
