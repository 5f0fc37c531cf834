"""Users, groups and roles: who may do something in a metalake. Relations hold the memberships and grants.

A user's name is its name in other systems, such as ``ann@corp.com``. A disabled user or group has no rights. Disabling
increases its own scope version, so that commits that relied on its rights are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import COMMON_CHANGES, Kind
from metastore.names import clean_text

__all__ = ["GROUP", "ROLE", "USER", "Group", "Role", "SetExternalId", "User"]


def _clean_external_id(external_id: Any) -> str | None:
    if external_id is not None and not clean_text(external_id, "an external id"):
        raise InvalidArgument("an external id must not be empty; leave it out instead")
    return None if external_id is None else str(external_id)


class _Principal(Entity):
    common_fields = (*Entity.common_fields, "enabled")

    @property
    def enabled(self) -> bool:
        """Whether the user or group has its rights; ``disable`` takes them away, and ``enable`` gives them back."""
        return self.record.chain[-1].in_use


class User(_Principal):
    """A user. ``external_id`` is its name in the directory that the user comes from."""

    external_id: str | None = doc_field(_clean_external_id, default=None)


class Group(_Principal):
    """A group of users. ``external_id`` is its name in the directory that the group comes from."""

    external_id: str | None = doc_field(_clean_external_id, default=None)


class Role(Entity):
    """A role: a set of privileges on objects, which users and groups can have."""


@dataclass(frozen=True)
class SetExternalId(EntityChange):
    """Set the external id of a user or group; None removes it."""

    external_id: str | None
    since: ClassVar[int] = 3

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc["external_id"] = _clean_external_id(self.external_id)


_CHANGES = (*COMMON_CHANGES, SetExternalId)
USER = Kind("user", "user", ("metalake",), User, _CHANGES, can_be_disabled=True, since=3, stays=True)
GROUP = Kind("group", "group", ("metalake",), Group, _CHANGES, can_be_disabled=True, since=3, stays=True)
ROLE = Kind("role", "role", ("metalake",), Role, since=3, stays=True)
