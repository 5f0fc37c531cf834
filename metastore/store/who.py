"""Find the user that a caller means: by a name, a path, or an entity."""

from typing import cast

from metastore.errors import InvalidArgument
from metastore.governance.evidence import Who, who
from metastore.governance.users import users_named
from metastore.kinds.entity import Entity
from metastore.kinds.principal import User
from metastore.kinds.registry import kind_named
from metastore.names import Path, clean_name
from metastore.operation.request import committed
from metastore.port.backend import Backend, Reads

__all__ = ["users_outside", "who_is"]


def who_is(backend: Reads, user: Path | Entity) -> Who:
    """Return the user that the caller means. Raises InvalidArgument for other kinds, and for another database."""
    if not isinstance(user, Entity):
        return who(user)
    committed(backend, user)
    if user.kind != "user":
        raise InvalidArgument(f"{user.path} is a {user.kind}, not a user")
    return Who(user.name, None, frozenset((user.id,)))


def users_outside(backend: Backend, name: str, external_id: str) -> list[User]:
    """Return the users with a name, in any metalake, that have this external id now. Raises InvalidArgument.

    A user with another external id, or without one, is a different user, even if the name is the same.
    """
    kind, origin = kind_named("user"), backend.origin
    users = [cast(User, kind.entity(record, origin)) for record in users_named(backend, clean_name(name))]
    return [user for user in users if user.external_id == external_id]
