"""The endpoints of users, groups and roles: who has which role, and what a role may do on which objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.names import parse_path
from metastore.serve.gravitino import reading, shapes
from metastore.serve.gravitino.errors import Refused
from metastore.serve.gravitino.objects import Target, metadata_object, target_of
from metastore.serve.web import Answer, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["ENDPOINTS", "grants_of_body", "holder", "role"]


class _Privilege(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str = Field(min_length=1)
    condition: Literal["ALLOW", "DENY", "allow", "deny"] = "ALLOW"


class _Securable(BaseModel):
    model_config = ConfigDict(strict=True)
    fullName: str = Field(min_length=1)  # noqa: N815  (the API's own name)
    type: str
    privileges: list[_Privilege] = Field(default_factory=list)


class _Privileges(BaseModel):
    model_config = ConfigDict(strict=True)
    privileges: list[_Privilege] = Field(min_length=1)


class _Roles(BaseModel):
    model_config = ConfigDict(strict=True)
    roleNames: list[str] = Field(min_length=1)  # noqa: N815  (the API's own name)


_SECURABLES: Final = TypeAdapter(list[_Securable])
_PRIVILEGES: Final = TypeAdapter(_Privileges)
_ROLES: Final = TypeAdapter(_Roles)


def holder(store: Any, entity: Any) -> dict[str, Any]:
    """Return a user or group, with the names of its roles."""
    roles = sorted(one.name for one in store.roles.of(entity))
    return {"name": entity.name, "roles": roles, "audit": shapes.audit(entity)}


def role(store: Any, entity: Any) -> dict[str, Any]:
    """Return a role, with its privileges on objects."""
    securables: dict[tuple[str, str], list[dict[str, str]]] = {}
    for grant in store.roles.grants(entity):
        privilege = {"name": grant.privilege, "condition": grant.effect}
        securables.setdefault((grant.kind, grant.path), []).append(privilege)
    securable = [
        {**metadata_object(kind, parse_path(path)), "privileges": privileges}
        for (kind, path), privileges in securables.items()
    ]
    shown = shapes.named(entity)
    del shown["comment"]
    return {**shown, "securableObjects": securable}


def grants_of_body(tx: Any, names: Sequence[str], body: Mapping[str, Any]) -> None:
    """Grant the privileges in the body of a new role."""
    for one in _SECURABLES.validate_python(body.get("securableObjects") or []):
        target = target_of(names[0], one.type, one.fullName)
        for privilege in one.privileges:
            try:
                _grant(tx, tuple(names), target, privilege)
            except EntityNotFound as error:
                raise Refused(1001, 400, "IllegalMetadataObjectException", str(error)) from None


def _grant(tx: Any, names: tuple[str, ...], on: Target, privilege: _Privilege) -> None:
    effect = privilege.condition.lower()
    try:
        tx.roles.grant(names, privilege.name.lower(), on.names, effect=effect, kind=on.kind)
    except InvalidArgument as error:
        raise Refused(1001, 400, "IllegalPrivilegeException", str(error)) from None


def _give(store: Store, call: Call) -> Answer:
    return _roles(store, call, lambda tx, one, to: tx.roles.assign(one, to))


def _take(store: Store, call: Call) -> Answer:
    return _roles(store, call, lambda tx, one, to: tx.roles.unassign(one, to))


def _roles(store: Store, call: Call, change: Any) -> Answer:
    """Give roles to a user or group, or take them away, all in one commit."""
    wanted, metalake = reading.body(call, _ROLES), call.names["metalake"]
    kind = "user" if "user" in call.names else "group"

    def apply(tx: Any) -> dict[str, Any]:
        to = tx.manager(kind).load((metalake, call.names[kind]))
        for name in wanted.roleNames:
            change(tx, _existing(tx, (metalake, name)), to)
        return holder(tx, to)

    return Answer({"code": 0, kind: store.run(apply)})


def _existing(tx: Any, names: tuple[str, ...]) -> Any:
    """Return a role to assign or unassign; clients expect a special error class for a missing one."""
    try:
        return tx.roles.load(names)
    except EntityNotFound as error:
        raise Refused(1001, 400, "IllegalRoleException", str(error)) from None


def _allow(store: Store, call: Call) -> Answer:
    return _privileges(store, call, _grant)


def _revoke(store: Store, call: Call) -> Answer:
    def revoke(tx: Any, names: tuple[str, ...], on: Target, privilege: _Privilege) -> None:
        tx.roles.revoke(names, privilege.name.lower(), on.names, kind=on.kind)

    return _privileges(store, call, revoke)


def _privileges(store: Store, call: Call, change: Any) -> Answer:
    wanted, metalake = reading.body(call, _PRIVILEGES), call.names["metalake"]
    target, names = target_of(metalake, call.names["type"], call.names["object"]), (metalake, call.names["role"])

    def apply(tx: Any) -> dict[str, Any]:
        there = tx.roles.load(names)
        for privilege in wanted.privileges:
            try:
                change(tx, names, target, privilege)
            except EntityNotFound as error:
                raise Refused(1003, 404, "NoSuchMetadataObjectException", str(error)) from None
        return role(tx, there)

    return Answer({"code": 0, "role": store.run(apply)})


_PERMISSIONS: Final = "/metalakes/{metalake}/permissions"
_ROLE: Final = f"{_PERMISSIONS}/roles/{{role}}/{{type}}/{{object}}"
ENDPOINTS: Final = (
    ("PUT", f"{_PERMISSIONS}/users/{{user}}/grant", "user", _give),
    ("PUT", f"{_PERMISSIONS}/users/{{user}}/revoke", "user", _take),
    ("PUT", f"{_PERMISSIONS}/groups/{{group}}/grant", "group", _give),
    ("PUT", f"{_PERMISSIONS}/groups/{{group}}/revoke", "group", _take),
    ("PUT", f"{_ROLE}/grant", "role", _allow),
    ("PUT", f"{_ROLE}/revoke", "role", _revoke),
)
