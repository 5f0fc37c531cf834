"""The exception that ends a commit inside a backend which checks one precondition after the other."""

from __future__ import annotations

from metastore.port.commit import Cause, Conflicted

__all__ = ["PreconditionFailed"]


class PreconditionFailed(Exception):
    """A precondition does not hold: the backend takes everything back and answers with ``conflict``."""

    def __init__(self, cause: Cause, row_id: int | None = None, found: int | None = None) -> None:
        super().__init__(cause)
        self.conflict = Conflicted(cause, row_id, found)
