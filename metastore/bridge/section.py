"""Describe a section: the code that runs under one lock of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metastore.leases.lease import Lease

__all__ = ["STAGES", "Mode", "Section", "Stage"]

Mode = Literal["read", "write"]
Stage = Literal["lock", "shadow", "bridged"]

STAGES: tuple[Stage, ...] = ("lock", "shadow", "bridged")
"""The stages of a migration, in order."""


@dataclass(frozen=True)
class Section:
    """The code that runs under one lock: ``with tree_lock(path, mode) as section: …``.

    ``lease`` is None except in a bridged section for writing. Hand it to each mutation of the store
    (``store.tables.alter(…, lease=section.lease)``): a commit after a take-over then raises LeaseLost and changes
    nothing. ``token`` is its fencing token, for writes to other systems.
    """

    names: tuple[str, ...]
    mode: Mode
    stage: Stage
    lease: Lease | None = None

    @property
    def token(self) -> int | None:
        """The fencing token: it grows with each holder of this path. None if the section has no lease."""
        return self.lease.token if self.lease is not None else None
