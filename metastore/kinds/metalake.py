"""The metalake: the top of a tree. A disabled metalake admits no writes below it."""

from __future__ import annotations

from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind

__all__ = ["METALAKE", "Metalake"]


class Metalake(Entity):
    """A metalake."""

    common_fields = (*Entity.common_fields, "in_use")

    @property
    def in_use(self) -> bool:
        return self.record.chain[-1].in_use


METALAKE = Kind("metalake", "metalake", (), Metalake, container=True, can_be_disabled=True)
