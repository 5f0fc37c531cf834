"""The managers of tags and policies: entities of a metalake that are attached to other entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from metastore.errors import InvalidArgument
from metastore.kinds.kind import Kind
from metastore.kinds.policy import Policy, SetEnabled
from metastore.kinds.relation import POLICY_ON, TAG_ON
from metastore.kinds.tag import Tag
from metastore.managers.manager import Manager
from metastore.managers.options import CallOptions, CreateOptions, shows_options
from metastore.managers.reader import E
from metastore.managers.relations.manager import RelationManager
from metastore.managers.target import Target
from metastore.names import Path
from metastore.operation.session import ManagerSession
from metastore.port.records import Record
from metastore.port.relations import NO_COLUMN, NO_VALUE

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class _Attachable(Manager[E]):
    """A manager of entities that are attached to others; the manager of the relation attaches them."""

    def __init__(self, session: ManagerSession, kind: Kind, relations: RelationManager) -> None:
        super().__init__(session, kind)
        self.attach = relations.attach
        self.detach = relations.detach
        self.attach_many = relations.attach_many
        self.on = relations.on
        self.on_columns = relations.on_columns
        self.targets = relations.targets


class Tags(_Attachable[Tag]):
    """Tags, and where they are attached."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        super().__init__(session, kind, RelationManager(session, TAG_ON, _check_allowed))

    @shows_options(CreateOptions)
    def create(self, path: Path, *, allowed_values: Iterable[str] = (), **options: Unpack[CreateOptions]) -> Tag:
        """Create a tag. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Policies(_Attachable[Policy]):
    """Policies, and where they are attached."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        super().__init__(session, kind, RelationManager(session, POLICY_ON, _check_supports))

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
        """Disable the policy: it stays attached, but is marked as not in force. Return the policy."""
        return self.alter(target, SetEnabled(False), **options)


def _check_allowed(target: Record, tag: Record, value: str, column: int) -> None:  # noqa: ARG001  (a Judge)
    """Raise InvalidArgument for a value that the tag does not allow, or for no value if the tag lists values."""
    allowed = Tag(tag).allowed_values
    if allowed and value not in allowed:
        given = "none; give one as value=" if value == NO_VALUE else repr(value)
        raise InvalidArgument(f"the tag {tag.path} allows the values {', '.join(allowed)}, not {given}")


def _check_supports(target: Record, policy: Record, value: str, column: int) -> None:
    """Raise InvalidArgument for a kind that the policy does not support, or if a value is given."""
    kind = target.chain[-1].kind if column == NO_COLUMN else "column"
    supports = Policy(policy).supports
    if supports and kind not in supports:
        raise InvalidArgument(f"the policy {policy.path} is on a {' or a '.join(supports)}, not on a {kind}")
    if value != NO_VALUE:
        raise InvalidArgument("a policy is attached without a value")
