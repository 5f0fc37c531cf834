"""The managers of owners, users, groups and roles.

They write relations and check no rights: :mod:`metastore.operation.authorized` checks what a caller may do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, Unpack, cast

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.governance.privileges import check_privilege, effect_of, known_privilege
from metastore.kinds.attached import Grant
from metastore.kinds.entity import Entity, utc
from metastore.kinds.kind import Kind
from metastore.kinds.principal import Group, Role, User
from metastore.kinds.relation import GRANT, MEMBERSHIP, OWNER
from metastore.managers.builtin import Disableable
from metastore.managers.manager import Manager
from metastore.managers.options import CallOptions, CreateOptions, shows_options
from metastore.managers.relations.ends import WantedRelation, end_of
from metastore.managers.relations.manager import RelationManager
from metastore.managers.relations.reads import leading_to, leads_to, live_related
from metastore.managers.target import Target
from metastore.names import Path, exact_text
from metastore.operation.session import ManagerSession
from metastore.port.records import Record, path_of
from metastore.port.relations import RelationRecord

Effect = Literal["allow", "deny"]
_PRIVILEGE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Owners:
    """The owners of entities: each entity has at most one owner, a user or a group."""

    def __init__(self, session: ManagerSession) -> None:
        self._session = session
        self._relations = RelationManager(session, OWNER)

    @shows_options(CallOptions)
    def set(self, target: Target, owner: Target, *, kind: str | None = None, **options: Unpack[CallOptions]) -> None:
        """Make ``owner`` the owner of ``target``, instead of the previous owner. Raises EntityNotFound."""
        self._relations.attach(target, owner, kind=kind, **options)

    @shows_options(CallOptions)
    def remove(self, target: Target, owner: Target, *, kind: str | None = None, **options: Unpack[CallOptions]) -> bool:
        """Leave ``target`` without an owner, if ``owner`` owns it; return False if ``owner`` does not own it."""
        return self._relations.detach(target, owner, kind=kind, **options)

    def of(self, target: Target, *, kind: str | None = None) -> User | Group | None:
        """Return the owner of ``target`` itself; None: it has no owner, or a dropped one. Raises EntityNotFound."""
        owners = leads_to(self._session, OWNER, end_of(target, OWNER.from_kinds, kind))
        return cast(User | Group, owners[0]) if owners else None

    def owned_by(self, owner: Target) -> Iterator[Entity]:
        """Yield the entities that a user or group owns, ordered by id. Raises EntityNotFound."""
        return leading_to(self._session, OWNER, end_of(owner, OWNER.to_kinds))


class Users(Disableable[User]):
    """Users."""

    @shows_options(CreateOptions)
    def create(self, path: Path, *, external_id: str | None = None, **options: Unpack[CreateOptions]) -> User:
        """Create a user, such as ``("lake", "ann@corp.com")``. Raises EntityAlreadyExists, EntityNotFound, NotInUse."""
        return self._create(path, self._own(locals()), options)

    def groups(self, user: Target) -> list[Group]:
        """Return the groups that a user is in, by name. Raises EntityNotFound."""
        return cast(list[Group], leads_to(self._session, MEMBERSHIP, end_of(user, ("user",)), "group"))


class Groups(Disableable[Group]):
    """Groups of users."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        super().__init__(session, kind)
        self._relations = RelationManager(session, MEMBERSHIP, repeats=True)

    @shows_options(CreateOptions)
    def create(self, path: Path, *, external_id: str | None = None, **options: Unpack[CreateOptions]) -> Group:
        """Create a group. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)

    @shows_options(CallOptions)
    def add(self, group: Target, user: Target, **options: Unpack[CallOptions]) -> None:
        """Put a user into a group; a repeated call is not an error. Raises EntityNotFound."""
        self._relations.relate(self._in(group, user), options)

    @shows_options(CallOptions)
    def remove(self, group: Target, user: Target, **options: Unpack[CallOptions]) -> bool:
        """Take a user out of a group; return False if the user was not in the group."""
        return self._relations.unrelate(self._in(group, user), lambda _: True, None, options)

    def _in(self, group: Target, user: Target) -> WantedRelation:
        return WantedRelation(end_of(user, ("user",)), end_of(group, ("group",)))

    def members(self, group: Target) -> Iterator[User]:
        """Yield the users in a group, by id. Raises EntityNotFound."""
        return cast(Iterator[User], leading_to(self._session, MEMBERSHIP, end_of(group, ("group",)), ("user",)))


class Roles(Manager[Role]):
    """Roles: their grants, and the users and groups that have them."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        super().__init__(session, kind)
        self._members = RelationManager(session, MEMBERSHIP, repeats=True)
        self._grants = RelationManager(session, GRANT, _check_grant)

    @shows_options(CreateOptions)
    def create(self, path: Path, **options: Unpack[CreateOptions]) -> Role:
        """Create a role. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, {}, options)

    @shows_options(CallOptions)
    def grant(
        self,
        role: Target,
        privilege: str,
        on: Target,
        *,
        effect: Effect = "allow",
        kind: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Grant:
        """Allow, or deny, a privilege on an object and on all objects below it. A repeated grant changes nothing.

        ``kind`` is the kind of the entity at the path ``on``. Raises EntityNotFound, InvalidArgument.
        """
        value = f"{_effect(effect)}:{known_privilege(privilege)}"
        made = self._grants.relate(WantedRelation(end_of(role, ("role",)), end_of(on, (), kind), value), options)
        audit = (made.created_by, made.created_at)
        return Grant(made.id, made.target_path, privilege, effect, made.kind, made.path, *audit)

    @shows_options(CallOptions)
    def revoke(
        self, role: Target, privilege: str, on: Target, *, kind: str | None = None, **options: Unpack[CallOptions]
    ) -> bool:
        """Remove the grant and the denial of a privilege on an object; return False if there was neither."""
        word = clean_privilege(privilege)
        values = [f"{effect}:{word}" for effect in ("allow", "deny")]
        wanted = WantedRelation(end_of(role, ("role",)), end_of(on, (), kind))
        return self._grants.unrelate(wanted, lambda row: row.value in values, values, options)

    def grants(self, role: Target) -> Iterator[Grant]:
        """Yield the grants and denials of a role, ordered by the object's id; it reads one page at a time.

        Raises EntityNotFound, also if the role is dropped meanwhile.
        """
        for row, far, _, own in live_related(self._session.backend, GRANT, end_of(role, GRANT.from_kinds)):
            yield _grant(row, path_of(own.chain), far.chain[-1].kind, path_of(far.chain))

    @shows_options(CallOptions)
    def assign(self, role: Target, to: Target, **options: Unpack[CallOptions]) -> None:
        """Give a role to a user or a group; a repeated call is not an error. Raises EntityNotFound."""
        self._members.relate(self._has(role, to), options)

    @shows_options(CallOptions)
    def unassign(self, role: Target, frm: Target, **options: Unpack[CallOptions]) -> bool:
        """Take a role from a user or a group; return False if it did not have the role."""
        return self._members.unrelate(self._has(role, frm), lambda _: True, None, options)

    def _has(self, role: Target, member: Target) -> WantedRelation:
        return WantedRelation(end_of(member, ("user", "group")), end_of(role, ("role",)))

    def of(self, member: Target) -> list[Role]:
        """Return the roles that were given to the user or group itself, by name. Raises EntityNotFound."""
        return cast(list[Role], leads_to(self._session, MEMBERSHIP, end_of(member, ("user", "group")), "role"))

    def members(self, role: Target) -> Iterator[User | Group]:
        """Yield the users and groups that have a role, by id. Raises EntityNotFound."""
        return cast(Iterator[User | Group], leading_to(self._session, MEMBERSHIP, end_of(role, ("role",))))


def _check_grant(role: Record, on: Record, value: str, column: int) -> None:  # noqa: ARG001  (a Judge)
    """Raise InvalidArgument for a privilege that has no effect on objects of this kind."""
    check_privilege(effect_of(value)[0], on.chain[-1].kind)


def clean_privilege(privilege: Any) -> str:
    """Return the word of a privilege. Raises InvalidArgument."""
    if not isinstance(privilege, str) or not _PRIVILEGE.fullmatch(exact_text(privilege, "a privilege")):
        raise InvalidArgument(f"a privilege is a word such as select_table, not {shown(privilege)}")
    return privilege


def _effect(effect: Any) -> str:
    if effect not in ("allow", "deny"):
        raise InvalidArgument(f'an effect is "allow" or "deny", not {shown(effect)}')
    return str(effect)


def _grant(row: RelationRecord, role: str, kind: str, path: str) -> Grant:
    effect, _, privilege = row.value.partition(":")
    return Grant(row.id, role, privilege, effect, kind, path, row.created_by, utc(row.created_at))
