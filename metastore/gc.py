"""gc: what nobody can reach any more is deleted, in bounded batches, by as many processes as like to.

A dropped entity older than the retention is first made unrestorable in a commit of its own (a
restore in the middle would otherwise revive a part). Then everything below it is deleted, leaves
first, itself last. History beyond ``keep_versions`` and older than the retention goes, and
whatever belongs to nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from metastore.port.backend import Backend

__all__ = ["Collected", "delete_steps"]

_BATCH = 500


@dataclass(frozen=True)
class Collected:
    """What a gc removed: entities, versions from the history of those that stay, other operations.

    ``staged``: what was left behind under leases, and was handed over to be cleaned up.
    """

    entities: int
    versions: int
    operations: int
    staged: int = 0


def delete_steps(backend: Backend, before: int, keep: int) -> tuple[int, int]:
    """Delete old history; return how many versions of what exists, and how many others."""
    after, versions, others = 0, 0, 0
    backend.forget(before)
    while True:
        last, some, more = backend.delete_steps(before, keep, after, 2 * _BATCH)
        versions, others = versions + some, others + more
        if last is None:
            return versions, others
        after = last
