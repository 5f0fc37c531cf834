"""The managers of tags, policies, users, groups and roles. They are entities of a metalake, like a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from metastore.kinds.policy import Policy, SetEnabled
from metastore.kinds.principal import Group, Role, User
from metastore.kinds.tag import Tag
from metastore.managers.builtin import Disableable
from metastore.managers.manager import Manager
from metastore.managers.options import CallOptions, CreateOptions, shows_options
from metastore.managers.target import Target
from metastore.names import Path

__all__ = ["Groups", "Policies", "Roles", "Tags", "Users"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Tags(Manager[Tag]):
    """Tags."""

    @shows_options(CreateOptions)
    def create(self, path: Path, *, allowed_values: Iterable[str] = (), **options: Unpack[CreateOptions]) -> Tag:
        """Create a tag. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Policies(Manager[Policy]):
    """Policies."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        type: str = "custom",
        content: Mapping[str, Any] = _NOTHING,
        enabled: bool = True,
        supports: Iterable[str] = (),
        **options: Unpack[CreateOptions],
    ) -> Policy:
        """Create a policy. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)

    @shows_options(CallOptions)
    def enable(self, target: Target, **options: Unpack[CallOptions]) -> Policy:
        """Enable the policy; return it."""
        return self.alter(target, SetEnabled(True), **options)

    @shows_options(CallOptions)
    def disable(self, target: Target, **options: Unpack[CallOptions]) -> Policy:
        """Disable the policy: it stays where it is attached, and says that it is not to be followed. Return it."""
        return self.alter(target, SetEnabled(False), **options)


class Users(Disableable[User]):
    """Users."""

    @shows_options(CreateOptions)
    def create(self, path: Path, *, external_id: str | None = None, **options: Unpack[CreateOptions]) -> User:
        """Create a user, such as ``("lake", "ann@corp.com")``. Raises EntityAlreadyExists, EntityNotFound, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Groups(Disableable[Group]):
    """Groups."""

    @shows_options(CreateOptions)
    def create(self, path: Path, *, external_id: str | None = None, **options: Unpack[CreateOptions]) -> Group:
        """Create a group. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Roles(Manager[Role]):
    """Roles."""

    @shows_options(CreateOptions)
    def create(self, path: Path, **options: Unpack[CreateOptions]) -> Role:
        """Create a role. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, {}, options)
